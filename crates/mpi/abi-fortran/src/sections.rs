//! Buffers of `mpi_f08`, which are passed by descriptor: arrays, and sections of arrays whose
//! elements do not follow each other.
//!
//! Descriptors are those of GNU Fortran and of LLVM Flang. A blocking call gets a copy of such a
//! section, which is written back after the call. For an operation that goes on after the call, a
//! datatype is made that describes the section; where that cannot be, in reductions and where each
//! process has a count of its own, the section is refused.

use crate::family::Standard;
use crate::routines::NAMES;
use crate::sentinels::SENTINELS;
use garonne_fortran::calls::{self, Function, Site};
use garonne_fortran::is_in_place;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::transmute;

/// Dimensions of a descriptor.
const RANK_MAX: usize = 15;

/// One dimension of an array.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dimension {
    lower_bound: isize,
    /// Elements; -1: as many as there are.
    extent: isize,
    /// Bytes from one element to the next.
    stride: isize,
}

/// `CFI_cdesc_t` of GNU Fortran and of LLVM Flang.
#[repr(C)]
pub(crate) struct Descriptor {
    base: *mut u8,
    element_bytes: usize,
    version: c_int,
    rank: u8,
    others: [u8; 3],
    dimensions: [Dimension; RANK_MAX],
}

/// A buffer as a call uses it.
pub(crate) struct Section {
    base: *mut u8,
    /// A copy of elements that do not follow each other.
    copy: Option<Box<Copied>>,
}

/// The elements of a section one after the other, and how they lie.
struct Copied {
    bytes: Vec<u8>,
    layout: Layout,
}

/// How the elements of a section lie: extents and strides.
struct Layout {
    element_bytes: usize,
    dimensions: Vec<Dimension>,
}

/// Reads base, bytes of an element, and dimensions.
///
/// # Safety
/// The address is that of a descriptor. Only as many dimensions are there as the rank says.
#[inline]
unsafe fn read<'a>(descriptor: *const Descriptor) -> (*mut u8, usize, &'a [Dimension]) {
    // SAFETY: as the caller says. No reference to the whole descriptor is made.
    unsafe {
        let rank = usize::from((*descriptor).rank).min(RANK_MAX);
        let first = (&raw const (*descriptor).dimensions).cast();
        let dimensions = std::slice::from_raw_parts(first, rank);
        ((*descriptor).base, (*descriptor).element_bytes, dimensions)
    }
}

/// Returns C's address of a buffer whose elements follow each other. `None`: that takes a closer
/// look.
///
/// # Safety
/// The address is that of a descriptor.
#[inline(always)]
pub(crate) unsafe fn plain(descriptor: *const Descriptor) -> Option<*mut c_void> {
    // SAFETY: as the caller says. No more dimensions are read than the rank says.
    unsafe {
        let mut expected = (*descriptor).element_bytes.cast_signed();
        let first: *const Dimension = (&raw const (*descriptor).dimensions).cast();
        for at in 0..usize::from((*descriptor).rank) {
            let dimension = &*first.add(at);
            if dimension.stride != expected || dimension.extent <= 0 {
                return None;
            }
            expected = expected.wrapping_mul(dimension.extent);
        }
        SENTINELS.known((*descriptor).base.cast())
    }
}

/// A buffer of an operation that goes on after the call.
pub(crate) struct Lasting {
    base: *mut u8,
    count: i64,
    datatype: usize,
    /// The datatype was made for this call.
    is_made: bool,
}

type TypeSize = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type ExtentOf = unsafe extern "C" fn(usize, *mut isize, *mut isize) -> c_int;
type Contiguous = unsafe extern "C" fn(c_int, usize, *mut usize) -> c_int;
type MakeHvector = unsafe extern "C" fn(c_int, c_int, isize, usize, *mut usize) -> c_int;
type Blocks = unsafe extern "C" fn(c_int, c_int, *const isize, usize, *mut usize) -> c_int;
type OfHandle = unsafe extern "C" fn(*mut usize) -> c_int;

/// A datatype that is freed unless it is kept.
struct Made(usize);

impl Drop for Made {
    fn drop(&mut self) {
        let free = calls::own::<Standard>(c"MPI_Type_free");
        // SAFETY: the function has this type, and the handle was made here.
        unsafe { transmute::<Function, OfHandle>(free)(&raw mut self.0) };
    }
}

impl Lasting {
    /// Reads a descriptor of a buffer whose count and datatype are those of a whole operation.
    ///
    /// # Errors
    /// The class of the error, if the elements do not follow each other.
    ///
    /// # Safety
    /// The address is that of a descriptor.
    #[inline]
    pub(crate) unsafe fn contiguous(descriptor: *const Descriptor) -> Result<Self, c_int> {
        // SAFETY: as the caller says.
        let (base, element_bytes, dimensions) = unsafe { read(descriptor) };
        match is_contiguous(element_bytes, dimensions) {
            true => Ok(Self {
                base,
                count: 0,
                datatype: 0,
                is_made: false,
            }),
            false => Err(MPI_ERR_UNSUPPORTED_OPERATION),
        }
    }

    /// Reads a descriptor of a buffer with this count and datatype, and makes a datatype of the
    /// section's layout if its elements do not follow each other.
    ///
    /// # Errors
    /// The class of the error: the datatype's elements are not those of the section.
    ///
    /// # Safety
    /// The address is that of a descriptor.
    #[inline]
    pub(crate) unsafe fn typed(
        descriptor: *const Descriptor,
        count: i64,
        datatype: usize,
    ) -> Result<Self, c_int> {
        // SAFETY: as the caller says.
        let (base, element_bytes, dimensions) = unsafe { read(descriptor) };
        if is_contiguous(element_bytes, dimensions) {
            return Ok(Self {
                base,
                count,
                datatype,
                is_made: false,
            });
        }
        let made = layout_type(element_bytes, dimensions, count, datatype)?;
        let datatype = made.0;
        std::mem::forget(made);
        Ok(Self {
            base,
            count: 1,
            datatype,
            is_made: true,
        })
    }

    /// Returns C's address of the buffer.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        SENTINELS.c_address(self.base.cast())
    }

    /// Returns whether the buffer is `MPI_IN_PLACE`.
    pub(crate) fn is_in_place(&self) -> bool {
        is_in_place::<Standard>(self.base.cast())
    }

    /// Returns the count for C.
    #[inline]
    pub(crate) fn count(&self) -> i64 {
        self.count
    }

    /// Returns the datatype for C.
    #[inline]
    pub(crate) fn datatype(&self) -> usize {
        self.datatype
    }
}

impl Drop for Lasting {
    #[inline]
    fn drop(&mut self) {
        if self.is_made {
            // An operation that uses a datatype keeps it.
            drop(Made(self.datatype));
        }
    }
}

/// Makes a datatype of the first `count` elements of a section, each of this datatype.
#[cold]
fn layout_type(
    element_bytes: usize,
    dimensions: &[Dimension],
    count: i64,
    datatype: usize,
) -> Result<Made, c_int> {
    let (mut size, mut lower, mut extent) = (0, 0, 0);
    // SAFETY: functions with these types, and places for numbers. The handle is checked.
    let codes = unsafe {
        let size_of = transmute::<Function, TypeSize>(calls::own::<Standard>(c"MPI_Type_size"));
        let extent_of =
            transmute::<Function, ExtentOf>(calls::own::<Standard>(c"MPI_Type_get_extent"));
        [
            size_of(datatype, &raw mut size),
            extent_of(datatype, &raw mut lower, &raw mut extent),
        ]
    };
    if let Some(code) = codes.into_iter().find(|code| *code != 0) {
        return Err(code);
    }
    let size = usize::try_from(size).unwrap_or(0);
    let is_dense = size > 0 && lower == 0 && extent.cast_unsigned() == size;
    if !is_dense || element_bytes == 0 || !element_bytes.is_multiple_of(size) {
        return Err(MPI_ERR_UNSUPPORTED_OPERATION);
    }
    let per_element = element_bytes / size;
    let count = usize::try_from(count).unwrap_or(0);
    if !count.is_multiple_of(per_element) {
        return Err(MPI_ERR_UNSUPPORTED_OPERATION);
    }
    let wanted = count / per_element;
    let elements = dimensions
        .iter()
        .map(|d| d.extent.cast_unsigned())
        .product::<usize>();
    let mut made = make(|made| {
        // SAFETY: the function has this type.
        let call = unsafe {
            transmute::<Function, Contiguous>(calls::own::<Standard>(c"MPI_Type_contiguous"))
        };
        let count = c_int::try_from(per_element).map_err(|_| MPI_ERR_COUNT)?;
        // SAFETY: a handle and a place for one.
        Ok(unsafe { call(count, datatype, made) })
    })?;
    if wanted == elements {
        for dimension in dimensions {
            let old = made.0;
            made = make(|made| {
                let call = calls::own::<Standard>(c"MPI_Type_create_hvector");
                // SAFETY: the function has this type.
                let call = unsafe { transmute::<Function, MakeHvector>(call) };
                let count = c_int::try_from(dimension.extent).map_err(|_| MPI_ERR_COUNT)?;
                // SAFETY: a handle and a place for one.
                Ok(unsafe { call(count, 1, dimension.stride, old, made) })
            })?;
        }
    } else {
        let layout = Layout {
            element_bytes,
            dimensions: dimensions.to_vec(),
        };
        let mut places = Vec::new();
        layout.for_each(|offset| {
            if places.len() < wanted {
                places.push(offset);
            }
        });
        if places.len() < wanted {
            return Err(MPI_ERR_BUFFER);
        }
        let old = made.0;
        made = make(|made| {
            let call = calls::own::<Standard>(c"MPI_Type_create_hindexed_block");
            // SAFETY: the function has this type.
            let call = unsafe { transmute::<Function, Blocks>(call) };
            let count = c_int::try_from(places.len()).map_err(|_| MPI_ERR_COUNT)?;
            // SAFETY: as many displacements, a handle and a place for one.
            Ok(unsafe { call(count, 1, places.as_ptr(), old, made) })
        })?;
    }
    let commit = calls::own::<Standard>(c"MPI_Type_commit");
    // SAFETY: the function has this type, and the handle was made above.
    match unsafe { transmute::<Function, OfHandle>(commit)(&raw mut made.0) } {
        0 => Ok(made),
        code => Err(code),
    }
}

/// Makes a datatype by a call that gets a place for its handle.
fn make(call: impl FnOnce(*mut usize) -> Result<c_int, c_int>) -> Result<Made, c_int> {
    let mut handle = 0;
    match call(&raw mut handle)? {
        0 => Ok(Made(handle)),
        code => Err(code),
    }
}

/// Classes of errors.
const MPI_ERR_BUFFER: c_int = 1;
const MPI_ERR_COUNT: c_int = 2;

/// Class of the error that something is not supported.
const MPI_ERR_UNSUPPORTED_OPERATION: c_int = 55;
/// `MPI_COMM_WORLD`.
const COMM_WORLD: usize = 0x101;

impl Section {
    /// Reads a descriptor. Elements that do not follow each other are copied.
    ///
    /// # Safety
    /// The address is that of a descriptor, whose elements can be read.
    #[inline]
    pub(crate) unsafe fn copied(descriptor: *const Descriptor) -> Self {
        // SAFETY: as the caller says.
        let (base, element_bytes, dimensions) = unsafe { read(descriptor) };
        let copy = match is_contiguous(element_bytes, dimensions) {
            true => None,
            // SAFETY: as the caller says.
            false => unsafe { copy(base, element_bytes, dimensions) },
        };
        Self { base, copy }
    }

    /// Returns C's address of the buffer.
    #[inline]
    pub(crate) fn address(&mut self) -> *mut c_void {
        match &mut self.copy {
            Some(copied) => copied.bytes.as_mut_ptr().cast(),
            None => SENTINELS.c_address(self.base.cast()),
        }
    }

    /// Returns whether the buffer is `MPI_IN_PLACE`.
    pub(crate) fn is_in_place(&self) -> bool {
        is_in_place::<Standard>(self.base.cast())
    }

    /// Stores in the section what a call wrote to the copy.
    ///
    /// # Safety
    /// The section's elements can be written.
    #[inline]
    pub(crate) unsafe fn write_back(&self) {
        if let Some(copied) = &self.copy {
            // SAFETY: as the caller says.
            unsafe { copied.layout.scatter(&copied.bytes, self.base) }
        }
    }
}

/// Copies the elements of a section.
///
/// # Safety
/// The elements can be read.
#[cold]
#[inline(never)]
unsafe fn copy(
    base: *const u8,
    element_bytes: usize,
    dimensions: &[Dimension],
) -> Option<Box<Copied>> {
    let layout = Layout {
        element_bytes,
        dimensions: dimensions.to_vec(),
    };
    // SAFETY: as the caller says.
    let bytes = unsafe { layout.gather(base) };
    Some(Box::new(Copied { bytes, layout }))
}

/// Returns whether the elements of an array follow each other. Scalars and arrays of one dimension,
/// which most buffers are, are told at once.
#[inline(always)]
fn is_contiguous(element_bytes: usize, dimensions: &[Dimension]) -> bool {
    match dimensions {
        [] => true,
        [only] => only.extent <= 1 || only.stride == element_bytes.cast_signed(),
        _ => is_contiguous_in_all(element_bytes, dimensions),
    }
}

fn is_contiguous_in_all(element_bytes: usize, dimensions: &[Dimension]) -> bool {
    if dimensions.iter().any(|dimension| dimension.extent == 0) {
        return true;
    }
    let mut expected = element_bytes.cast_signed();
    for dimension in dimensions {
        if dimension.extent < 0 {
            return true;
        }
        if dimension.extent > 1 && dimension.stride != expected {
            return false;
        }
        expected *= dimension.extent;
    }
    true
}

impl Layout {
    /// Calls with the offset of each element, first dimension first.
    fn for_each(&self, mut call: impl FnMut(isize)) {
        let mut index = vec![0; self.dimensions.len()];
        loop {
            let steps = index.iter().zip(&self.dimensions);
            call(steps.map(|(at, dimension)| at * dimension.stride).sum());
            let mut next = 0;
            loop {
                let Some(dimension) = self.dimensions.get(next) else {
                    return;
                };
                index[next] += 1;
                if index[next] < dimension.extent {
                    break;
                }
                index[next] = 0;
                next += 1;
            }
        }
    }

    /// # Safety
    /// The elements can be read.
    unsafe fn gather(&self, base: *const u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.for_each(|offset| {
            // SAFETY: as the caller says.
            let element =
                unsafe { std::slice::from_raw_parts(base.offset(offset), self.element_bytes) };
            bytes.extend_from_slice(element);
        });
        bytes
    }

    /// # Safety
    /// The elements can be written.
    unsafe fn scatter(&self, bytes: &[u8], base: *mut u8) {
        let mut elements = bytes.chunks_exact(self.element_bytes.max(1));
        self.for_each(|offset| {
            if let Some(element) = elements.next() {
                // SAFETY: as the caller says.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        element.as_ptr(),
                        base.offset(offset),
                        element.len(),
                    );
                }
            }
        });
    }
}

/// Raises the error that a routine cannot take a section whose elements do not follow each other.
///
/// # Safety
/// MPI is initialised, or the C library says that it is not.
#[cold]
pub(crate) unsafe fn refuse(index: usize, code: c_int, site: Site) -> c_int {
    let name = NAMES[index].to_string_lossy();
    let _ = writeln!(
        std::io::stderr(),
        "garonne: {name}: the elements of an array section do not follow each other, and no \
         datatype can describe them here\n  help: pass a contiguous array, or a datatype made by \
         MPI_Type_vector with the first element"
    );
    type Raise = unsafe extern "C" fn(usize, c_int, Site) -> c_int;
    let raise = calls::own::<Standard>(c"MPI_Comm_call_errhandler");
    // SAFETY: the function has this type.
    let raise = unsafe { transmute::<Function, Raise>(raise) };
    // SAFETY: a handle of the standard ABI and an error class.
    unsafe { raise(COMM_WORLD, code, site) };
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension(extent: isize, stride: isize) -> Dimension {
        Dimension {
            lower_bound: 1,
            extent,
            stride,
        }
    }

    #[test]
    fn whole_arrays_and_leading_parts_are_contiguous() {
        assert!(is_contiguous(8, &[]));
        assert!(is_contiguous(8, &[dimension(4, 8), dimension(3, 32)]));
        assert!(is_contiguous(8, &[dimension(4, 8), dimension(1, 99)]));
        assert!(is_contiguous(8, &[dimension(0, 16)]));
        assert!(is_contiguous(8, &[dimension(4, 8), dimension(-1, 32)]));
        assert!(!is_contiguous(8, &[dimension(4, 16)]));
        assert!(!is_contiguous(8, &[dimension(2, 8), dimension(3, 32)]));
        assert!(!is_contiguous(8, &[dimension(4, -8)]));
    }

    #[test]
    fn sections_are_copied_there_and_back() {
        let mut array: Vec<u32> = (0..12).collect();
        let layout = Layout {
            element_bytes: 4,
            dimensions: vec![dimension(2, 8), dimension(3, 16)],
        };
        // SAFETY: the section lies in the array.
        let bytes = unsafe { layout.gather(array.as_ptr().cast()) };
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [0, 2, 4, 6, 8, 10]);
        let zeros = vec![0; bytes.len()];
        // SAFETY: as above.
        unsafe { layout.scatter(&zeros, array.as_mut_ptr().cast()) };
        assert_eq!(array, [0, 1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11]);
    }
}
