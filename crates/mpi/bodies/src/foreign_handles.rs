//! Handles of another ABI, recognised in errors.
//!
//! A process may contain code for several ABIs, whose handles do not cross. Such a handle names no
//! object; this module says whose it is, as far as that can be seen.

use crate::abi::{FILE_MARK, OtherAbi, UNKNOWN_INT_HANDLE, UNKNOWN_POINTER_HANDLE};
use crate::handle::FIRST_DYNAMIC;
use std::ffi::{CStr, c_void};

/// The upper bits of a negative `int` that became a word, without the highest one.
const NEGATIVE_INT: usize = 0xffff_ffff;

/// Returns a handle as the program passed it.
pub(crate) fn as_passed(word: usize) -> usize {
    match word & !(u32::MAX as usize) {
        UNKNOWN_INT_HANDLE => word as u32 as usize,
        // A negative `int` that became a pointer.
        // Wrappers of Open MPI's ABI drop the highest bit.
        _ if word << 1 >> 32 == NEGATIVE_INT => word as u32 as usize,
        _ if word & UNKNOWN_POINTER_HANDLE != 0 => word & !UNKNOWN_POINTER_HANDLE,
        _ => word,
    }
}

/// Returns of which other ABI a handle is that names no object. `None`: nothing shows that it is of
/// one.
pub(crate) fn origin(word: usize) -> Option<String> {
    let handle = as_passed(word);
    let is_int = i32::try_from(handle.cast_signed()).is_ok() || u32::try_from(handle).is_ok();
    if handle != word && (0x20..FIRST_DYNAMIC).contains(&handle) {
        return Some("a handle of the MPI 5 standard ABI".into());
    }
    let is_of_mpich = handle != word && word >> 62 == 0;
    if is_int && !is_of_mpich && is_predefined_of_mpich(handle as u32) {
        return Some("a handle of MPICH's ABI".into());
    }
    if !is_of_mpich && handle >> 31 == 1 && is_any_loaded(OtherAbi::Mpich) {
        return Some("a handle of MPICH's ABI".into());
    }
    if handle >> FILE_MARK.trailing_zeros() == 1 {
        return Some("a handle of MPICH's ABI".into());
    }
    if handle >> 31 == 1 << 32 && is_any_loaded(OtherAbi::OpenMpi) {
        return Some("a handle of Open MPI's ABI".into());
    }
    let name = symbol_at(handle)?;
    let rest = name.strip_prefix("ompi_")?;
    (rest.starts_with("mpi_") || rest.starts_with("request_") || rest.starts_with("message_"))
        .then(|| format!("the address of {name}, a handle of Open MPI's ABI"))
}

/// Libraries of the other ABIs, by ABI.
const LIBRARIES: [&[&CStr]; OtherAbi::COUNT] =
    [&[c"libmpi.so.12", c"libmpich.so.12"], &[c"libmpi.so.40"]];

/// Returns a remark for errors that name a handle whose ABI does not show: which libraries this
/// process has, if they have several ABIs; else nothing.
pub(crate) fn hint() -> String {
    let loaded = LIBRARIES.map(|names| names.iter().find(|name| is_loaded(name)));
    match loaded {
        [Some(first), Some(second)] => format!(
            ", or of another ABI: this process has {} and {}, whose handles differ",
            first.to_string_lossy(),
            second.to_string_lossy()
        ),
        _ => String::new(),
    }
}

/// Above the handles of Open MPI's `mpif.h`: numbers of predefined objects.
const OPENMPI_FORTRAN_END: usize = 0x80;

/// Returns a remark for errors that name a small number, which no object has: in a process with
/// Fortran code it may come from a file that was compiled with the header of Open MPI. Else
/// nothing.
pub(crate) fn fortran_hint(handle: usize) -> &'static str {
    match handle < OPENMPI_FORTRAN_END && is_loaded(c"libmpifort_abi.so.1") {
        true => {
            ", or of Open MPI's mpif.h, whose handles are such numbers: compile with Garonne's mpifort, or link with Open MPI's libraries"
        }
        false => "",
    }
}

/// Returns whether the process has loaded a library of an ABI.
fn is_any_loaded(abi: OtherAbi) -> bool {
    LIBRARIES[abi as usize].iter().any(|name| is_loaded(name))
}

/// Returns whether the process has loaded a library.
fn is_loaded(name: &CStr) -> bool {
    // SAFETY: loads nothing, and gives back what it has got.
    unsafe {
        let found = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        !found.is_null() && libc::dlclose(found) == 0
    }
}

/// Returns whether a word looks like a predefined handle of MPICH's: a mark of predefined objects,
/// one of some kinds, and a small index.
fn is_predefined_of_mpich(handle: u32) -> bool {
    let (mark, kind) = (handle >> 30, handle >> 26 & 15);
    let is_datatype = kind == 3 && handle >> 16 & 0x3ff == 0;
    match mark {
        1 => is_datatype || (1..=14).contains(&kind) && handle & 0x03ff_ffff < 16,
        // Pairs of different types.
        2 => kind == 3 && handle & 0x03ff_ffff < 5,
        _ => false,
    }
}

/// Returns the name of the symbol that lies at an address.
fn symbol_at(address: usize) -> Option<String> {
    // SAFETY: zeros are a value of this type. The function reads no memory at the address, and the
    // name that it returns belongs to a loaded object.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let address = std::ptr::with_exposed_provenance::<c_void>(address);
        if libc::dladdr(address, &raw mut found) == 0
            || found.dli_sname.is_null()
            || found.dli_saddr.cast_const() != address
        {
            return None;
        }
        Some(
            CStr::from_ptr(found.dli_sname)
                .to_string_lossy()
                .into_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_handles_of_mpich_are_known_and_handles_of_objects_are_not() {
        for handle in [0x4400_0000, 0x4c00_080b, 0x5800_0003, 0x8c00_0001_u32] {
            assert!(is_predefined_of_mpich(handle), "{handle:#x}");
        }
        for handle in [0x101, 0x1000, 0x0600_1000, 0x4000_1000, 0x4400_1000_u32] {
            assert!(!is_predefined_of_mpich(handle), "{handle:#x}");
        }
    }

    #[test]
    fn a_negative_int_that_became_a_pointer_is_shown_as_it_was_passed() {
        let handle = 0x8400_1000_u32 as i32 as isize as usize;
        assert_eq!(as_passed(handle), 0x8400_1000);
        let by_open_mpi = handle & !(1 << 63);
        assert_eq!(as_passed(by_open_mpi), 0x8400_1000);
        assert_eq!(as_passed(1 << 63 | 5000), 1 << 63 | 5000);
    }

    #[test]
    fn handles_of_other_abis_are_named() {
        assert_eq!(
            origin(0x4400_0000).as_deref(),
            Some("a handle of MPICH's ABI")
        );
        let standard = UNKNOWN_INT_HANDLE | 0x101;
        let found = origin(standard);
        assert_eq!(found.as_deref(), Some("a handle of the MPI 5 standard ABI"));
        assert_eq!(as_passed(standard), 0x101);
        let in_open_mpi = UNKNOWN_POINTER_HANDLE | 0x4400_0000;
        assert_eq!(
            origin(in_open_mpi).as_deref(),
            Some("a handle of MPICH's ABI")
        );
        assert_eq!(origin(UNKNOWN_INT_HANDLE | 0x4400_0005), None);
        for word in [0, UNKNOWN_POINTER_HANDLE].map(|mark| mark | FILE_MARK | 5000) {
            let found = origin(word);
            assert_eq!(found.as_deref(), Some("a handle of MPICH's ABI"), "a file");
        }
        assert_eq!(origin(5000), None);
        assert_eq!(origin(&raw const FIRST_DYNAMIC_PLACE as usize), None);
    }

    static FIRST_DYNAMIC_PLACE: usize = FIRST_DYNAMIC;
}
