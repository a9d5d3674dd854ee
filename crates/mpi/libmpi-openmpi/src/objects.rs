//! Objects of predefined handles, and other variables that programs refer to.
//!
//! A handle is the address of its object, which begins with the word of the standard ABI. Objects
//! have the sizes that Open MPI's header says, since the loader may copy them into the program. So
//! addresses are taken where the loader has put them, and are told to the core when the library is
//! loaded.

#![allow(
    non_upper_case_globals,
    reason = "names that programs and other libraries refer to"
)]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize};

/// Address of an object.
#[repr(transparent)]
struct Address(*const usize);

// SAFETY: the address is a constant, and nobody writes through it.
unsafe impl Sync for Address {}

/// Makes an object of its first word.
const fn object<const WORDS: usize>(word: usize) -> [usize; WORDS] {
    let mut words = [0; WORDS];
    words[0] = word;
    words
}

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

unsafe extern "C" {
    /// Keeps the addresses of objects. In `libmpi_abi.so.1`.
    fn garonne_openmpi_objects(first: *const *const usize, count: usize);
    /// Keeps the address of `MPI::ERRORS_THROW_EXCEPTIONS`. In `libmpi_abi.so.1`.
    fn garonne_openmpi_exceptions(object: *const usize);
}

/// Tells the core where the objects are.
extern "C" fn tell_addresses() {
    // SAFETY: the addresses of objects that begin with a word and live as long as the process. The
    // last one is an object of atomic words.
    unsafe {
        garonne_openmpi_objects((&raw const ADDRESSES).cast(), ADDRESSES.len());
        garonne_openmpi_exceptions(EXCEPTIONS.0);
    }
}

/// Address of `MPI::ERRORS_THROW_EXCEPTIONS`, which may lie in the program.
static EXCEPTIONS: Address = Address((&raw const ompi_mpi_errors_throw_exceptions).cast());

/// Functions that the loader calls.
#[used]
#[unsafe(link_section = ".init_array")]
static WHEN_LOADED: extern "C" fn() = tell_addresses;

/// `MPI_F_STATUS_IGNORE`, which Open MPI's Fortran library sets.
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: AtomicPtr<i32> = AtomicPtr::new(std::ptr::null_mut());
/// `MPI_F_STATUSES_IGNORE`, which Open MPI's Fortran library sets.
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: AtomicPtr<i32> = AtomicPtr::new(std::ptr::null_mut());
/// `MPI_F08_STATUS_IGNORE`, which Open MPI 5 has.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: AtomicPtr<i32> = AtomicPtr::new(std::ptr::null_mut());
/// `MPI_F08_STATUSES_IGNORE`, which Open MPI 5 has.
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: AtomicPtr<i32> = AtomicPtr::new(std::ptr::null_mut());

/// Defines variables that Open MPI's C++ library reads or writes.
macro_rules! internals {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub static $name: $type = $value;
        )*
    };
}

internals! {
    /// `MPI::ERRORS_THROW_EXCEPTIONS`. The C++ library stores functions in it.
    ompi_mpi_errors_throw_exceptions: [AtomicUsize; 128] = [const { AtomicUsize::new(0) }; 128];
    /// Codes of the C++ library's own errors: none.
    ompi_errcodes_intern: [AtomicUsize; 15] = [const { AtomicUsize::new(0) }; 15];
    /// Number of these codes.
    ompi_errcode_intern_lastused: AtomicI32 = AtomicI32::new(0);
    /// List of data representations: empty.
    ompi_registered_datareps: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
    /// Number of times that classes were initialised.
    opal_class_init_epoch: AtomicI32 = AtomicI32::new(1);
    /// Class of the elements of lists.
    opal_list_item_t_class: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
    /// Says that the C++ library locks its own lists.
    opal_uses_threads: AtomicBool = AtomicBool::new(true);
}

/// Shows that the library is Garonne's, and which one.
#[unsafe(no_mangle)]
pub static garonne_libmpi_openmpi: u32 = 40;
