//! C arguments as values that safe code can use.
//!
//! By the MPI standard, each pointer that a C caller passes is null or points to what the prototype
//! says. That holds for the duration of the call. The types here are those pointers, laid out as C
//! passes them. No code outside this module can make such a value from an address, so each value
//! carries the caller's promise. This is why every `unsafe` block here is sound, and why the bodies
//! need none. Each access checks for null and turns null into an error.
//!
//! The wrapper of another ABI is such a caller, too: it lends places of its own to the call that it
//! makes ([`Ptr::lent`] and such), and keeps them until the call is over.

use crate::abi::{Abi, StandardAbi};
use crate::call::{CallError, Result};
use crate::constants::{MPI_BUFFER_AUTOMATIC, MPI_IN_PLACE};
use crate::handle::{MPI_Aint, MPI_Count};
use garonne_mpi::coll;
use garonne_mpi::error::Class;
use garonne_sync::user::UserMem;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

/// A `void *`: the user's buffer, an attribute value, extra state.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buf(*mut c_void);

/// A `T *` or `T []` that is read or written.
#[repr(transparent)]
#[derive(Debug)]
pub struct Ptr<T>(*mut T);

/// A `const T *` or `const T []`.
#[repr(transparent)]
#[derive(Debug)]
pub struct ConstPtr<T>(*const T);

/// A `const char *` that ends in a zero byte.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct StrIn(*const c_char);

/// A `char *` with as much room as the standard's constant for the call says.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct StrOut(*mut c_char);

/// A function pointer, or one of the small codes that stand for predefined functions. `A` is the
/// ABI in which the function expects its arguments.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Callback<A = StandardAbi>(*const c_void, PhantomData<A>);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> Clone for ConstPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for ConstPtr<T> {}

// SAFETY: a callback is code, and an address of the user's is the user's to share: MPI calls it
// from user threads only.
unsafe impl<A> Send for Callback<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Callback<A> {}
// SAFETY: the address is only handed back to the user's own callbacks, as the standard prescribes.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

/// Returns `address`, or the address of the standard ABI that a special one of another ABI stands
/// for. `special` are pairs of the two.
#[inline(always)]
fn replaced(address: usize, special: &[(usize, usize)]) -> usize {
    let found = special.iter().find(|(_, other)| *other == address);
    found.map_or(address, |(native, _)| *native)
}

fn null(what: &str) -> CallError {
    CallError::new(Class::Arg, format!("{what} is a null pointer"))
}

impl Buf {
    /// `MPI_IN_PLACE`.
    pub const IN_PLACE: usize = MPI_IN_PLACE;
    /// `MPI_BUFFER_AUTOMATIC`.
    pub const AUTOMATIC: usize = MPI_BUFFER_AUTOMATIC;

    /// The address as a number.
    #[inline(always)]
    pub fn addr(self) -> usize {
        self.0 as usize
    }

    /// Returns whether the argument is `MPI_IN_PLACE`.
    pub fn is_in_place(self) -> bool {
        self.addr() == Self::IN_PLACE
    }

    /// Returns the pointer itself, or an error if it is null. For pointers to a result: checked
    /// before the call has any effect.
    pub fn given(self) -> Result<Self> {
        self.typed::<usize>().given().map(|_| self)
    }

    /// Returns the buffer as memory for an operation. The program keeps the memory that count and
    /// type reach valid until completion.
    #[inline]
    pub fn mem(self) -> UserMem {
        // SAFETY: the standard's contract for choice buffers is `UserMem::new`'s.
        unsafe { UserMem::new(self.0.cast()) }
    }

    /// Stores an address through this pointer to a pointer (`void *baseptr`,
    /// `void *attribute_val`).
    pub fn store(self, address: usize) -> Result<()> {
        self.typed::<usize>().set(address)
    }

    /// Casts to a pointer to `T`, for the few functions whose `void *` means one.
    pub fn typed<T>(self) -> Ptr<T> {
        Ptr(self.0.cast())
    }

    /// Returns the raw pointer, to be passed back to C.
    pub fn raw(self) -> *mut c_void {
        self.0
    }

    /// Returns this address, or the standard ABI's for a special address of another ABI.
    #[inline(always)]
    pub fn replaced(self, special: &[(usize, usize)]) -> Self {
        Self(self.0.with_addr(replaced(self.addr(), special)))
    }

    /// An address of our own or of the user's as C sees it.
    pub fn from_addr(addr: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr))
    }
}

impl<T: Copy> Ptr<T> {
    /// Returns the place as one that the program keeps until a request is complete, as the standard
    /// has it do.
    pub fn kept(self) -> Buf {
        Buf(self.0.cast())
    }

    /// Returns whether the program passed null, for example `MPI_STATUS_IGNORE`.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address as a number.
    pub fn addr(self) -> usize {
        self.0 as usize
    }

    /// Returns the pointer itself, or an error if it is null. For output arrays, which the wrapper
    /// cannot check because they may be empty; checked before the call has any effect.
    pub fn given(self) -> Result<Self> {
        match self.is_null() {
            true => Err(null("an output argument")),
            false => Ok(self),
        }
    }

    /// Reads the pointee.
    #[inline]
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// Writes the pointee.
    #[inline]
    pub fn set(self, value: T) -> Result<()> {
        self.put(0, value)
    }

    /// Writes the pointee unless the program passed null.
    #[inline]
    pub fn set_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null; the caller's promise (module comment).
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Reads element `i`.
    #[inline]
    pub fn at(self, i: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(null("an output argument"));
        }
        // SAFETY: not null; the caller's promise (module comment); `i` is below the length the call
        // names.
        Ok(unsafe { self.0.add(i).read_unaligned() })
    }

    /// Writes element `i`.
    #[inline]
    pub fn put(self, i: usize, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(null("an output argument"));
        }
        // SAFETY: not null; the caller's promise (module comment); `i` is below the length the call
        // names.
        unsafe { self.0.add(i).write_unaligned(value) }
        Ok(())
    }

    /// Writes `values` from element 0 on; nothing when there are none.
    pub fn fill(self, values: impl IntoIterator<Item = T>) -> Result<()> {
        for (i, value) in values.into_iter().enumerate() {
            self.put(i, value)?;
        }
        Ok(())
    }

    /// The first `n` elements, copied.
    pub fn take(self, n: usize) -> Result<Vec<T>> {
        ConstPtr(self.0.cast_const()).take(n)
    }

    /// A pointer to element `i`, null when this is null.
    #[inline]
    pub fn element(self, i: usize) -> Self {
        if self.0.is_null() {
            self
        } else {
            Self(self.0.wrapping_add(i))
        }
    }

    /// Returns this address, or the standard ABI's for a special address of another ABI.
    #[inline(always)]
    pub fn replaced(self, special: &[(usize, usize)]) -> Self {
        Self(self.0.with_addr(replaced(self.addr(), special)))
    }

    /// A pointer to a place of the caller's, which keeps it until the call is over.
    pub(crate) fn lent(place: &Cell<T>) -> Self {
        Self(place.as_ptr())
    }

    /// A pointer to the first of several places of the caller's, which keeps them until the call is
    /// over.
    pub(crate) fn lent_array(places: &[Cell<T>]) -> Self {
        Self(places.as_ptr().cast_mut().cast())
    }

    /// The pointer as a `void *`.
    pub(crate) fn untyped(self) -> Buf {
        Buf(self.0.cast())
    }

    /// A pointer that ignores what is stored.
    pub fn ignore() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl<T: Copy> ConstPtr<T> {
    /// Returns this address, or the standard ABI's for a special address of another ABI.
    #[inline(always)]
    pub fn replaced(self, special: &[(usize, usize)]) -> Self {
        Self(self.0.with_addr(replaced(self.addr(), special)))
    }

    /// A null pointer.
    pub(crate) fn null() -> Self {
        Self(std::ptr::null())
    }

    /// A pointer to elements of the caller's, which keeps them until the call is over.
    pub(crate) fn lent(elements: &[T]) -> Self {
        Self(elements.as_ptr())
    }

    /// The address as a number (`MPI_UNWEIGHTED` and such are small ones).
    pub fn addr(self) -> usize {
        self.0 as usize
    }

    /// Reads the pointee.
    #[inline]
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// Reads element `i`.
    #[inline]
    pub fn at(self, i: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(null("an array argument"));
        }
        // SAFETY: not null; the caller's promise (module comment); `i` is below the length the call
        // names.
        Ok(unsafe { self.0.add(i).read_unaligned() })
    }

    /// Borrows the first `n` elements for the duration of the call. For `n` = 0 any pointer is
    /// valid.
    pub fn slice(&self, n: usize) -> Result<&[T]> {
        if n == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(null("an array argument"));
        }
        // SAFETY: not null; the caller's promise (module comment): `n` elements, unchanged while
        // the call runs.
        Ok(unsafe { std::slice::from_raw_parts(self.0, n) })
    }

    /// The first `n` elements, copied; any pointer will do for none.
    pub fn take(self, n: usize) -> Result<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        (0..n).map(|i| self.at(i)).collect()
    }
}

impl StrIn {
    /// Returns whether the program passed null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The text; what is not UTF-8 is replaced.
    pub fn text(self) -> Result<String> {
        let bytes = self.bytes()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes before the final zero.
    pub fn bytes(self) -> Result<Vec<u8>> {
        if self.0.is_null() {
            return Err(null("a string argument"));
        }
        // SAFETY: not null; the caller's promise (module comment).
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }
}

impl StrOut {
    /// Returns whether the program passed null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A pointer to bytes of the caller's, which keeps them until the call is over.
    pub(crate) fn lent(bytes: &[Cell<u8>]) -> Self {
        Self(bytes.as_ptr().cast_mut().cast())
    }

    /// Writes as much of `text` as fits into `room` bytes with its final zero; returns the bytes of
    /// text written.
    pub fn write(self, text: &str, room: usize) -> Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        if self.0.is_null() {
            return Err(null("a string argument"));
        }
        let mut len = text.len().min(room - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: not null; the caller has `room` bytes by the standard, and len + 1 <= room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, len);
            self.0.add(len).write(0);
        }
        Ok(len)
    }
}

impl<A: Abi> Callback<A> {
    /// The code of `*_NULL_COPY_FN` and of absent functions.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The code of `*_DUP_FN`.
    pub fn is_dup(self) -> bool {
        A::DUP_FN == Some(self.0 as usize)
    }

    /// The function itself; `None` for the codes that stand for predefined ones.
    ///
    /// # Safety
    /// `F` is the function-pointer type that the prototype of the call that took this callback
    /// names.
    pub unsafe fn function<F: Copy>(self) -> Option<F> {
        assert_eq!(
            size_of::<F>(),
            size_of::<*const c_void>(),
            "F is a function pointer"
        );
        // SAFETY: same size, and of type `F` by this function's contract.
        (self.0 as usize > 1)
            .then(|| unsafe { std::mem::transmute_copy::<*const c_void, F>(&self.0) })
    }
}

/// An array of counts, displacements or indices in either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountsIn {
    /// `const int []`.
    Int(ConstPtr<c_int>),
    /// `const MPI_Count []` (`MPI_Aint` is as wide).
    Large(ConstPtr<i64>),
}

impl From<ConstPtr<c_int>> for CountsIn {
    fn from(array: ConstPtr<c_int>) -> Self {
        Self::Int(array)
    }
}

impl From<ConstPtr<MPI_Count>> for CountsIn {
    fn from(array: ConstPtr<MPI_Count>) -> Self {
        Self::Large(array)
    }
}

impl From<ConstPtr<MPI_Aint>> for CountsIn {
    fn from(array: ConstPtr<MPI_Aint>) -> Self {
        const {
            assert!(
                size_of::<MPI_Aint>() == size_of::<MPI_Count>(),
                "the ABI is 64 bits wide here"
            )
        };
        Self::Large(ConstPtr(array.0.cast()))
    }
}

impl CountsIn {
    /// Element `i`.
    #[inline]
    pub fn at(self, i: usize) -> Result<i64> {
        match self {
            Self::Int(array) => array.at(i).map(i64::from),
            Self::Large(array) => array.at(i),
        }
    }

    /// The first `n` elements.
    pub fn take(self, n: usize) -> Result<Vec<i64>> {
        (0..n).map(|i| self.at(i)).collect()
    }

    /// Borrows the first `n` elements in the form that collectives take.
    pub fn numbers(&self, n: usize) -> Result<coll::CountArray<'_>> {
        match self {
            Self::Int(array) => array.slice(n).map(coll::CountArray::Int),
            Self::Large(array) => array.slice(n).map(coll::CountArray::Wide),
        }
    }
}

/// A pointer to a count that the call returns, in either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountOut {
    /// `int *`.
    Int(Ptr<c_int>),
    /// `MPI_Count *` (`MPI_Aint` is as wide).
    Large(Ptr<i64>),
}

impl From<Ptr<c_int>> for CountOut {
    fn from(place: Ptr<c_int>) -> Self {
        Self::Int(place)
    }
}

impl From<Ptr<MPI_Count>> for CountOut {
    fn from(place: Ptr<MPI_Count>) -> Self {
        Self::Large(place)
    }
}

impl From<Ptr<MPI_Aint>> for CountOut {
    fn from(place: Ptr<MPI_Aint>) -> Self {
        Self::Large(Ptr(place.0.cast()))
    }
}

impl CountOut {
    /// Reads it.
    pub fn get(self) -> Result<i64> {
        match self {
            Self::Int(place) => place.get().map(i64::from),
            Self::Large(place) => place.get(),
        }
    }

    /// Stores `value`, or `MPI_UNDEFINED` where it does not fit.
    pub fn set_or_undefined(self, value: i64) -> Result<()> {
        match self {
            Self::Int(place) => {
                place.set(c_int::try_from(value).unwrap_or(crate::constants::MPI_UNDEFINED))
            }
            Self::Large(place) => place.set(value),
        }
    }

    /// Stores `value`; one that does not fit is an error.
    pub fn set(self, value: i64) -> Result<()> {
        match self {
            Self::Int(place) => match c_int::try_from(value) {
                Ok(value) => place.set(value),
                Err(_) => Err(CallError::new(
                    Class::ValueTooLarge,
                    format!("the result {value} does not fit into an int; call the `_c` function"),
                )),
            },
            Self::Large(place) => place.set(value),
        }
    }
}
