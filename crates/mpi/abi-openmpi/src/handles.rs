//! The ABI as a type: its handles and numbers.

use crate::object_table::{ObjectTable, PlainTypes};
use crate::wrappers::{
    ERROR, LAST_ERROR_CODES, fortran_integers, native_error, own_error, own_keyval,
};
use garonne_bodies::abi::convert::{ErrorNumbers, HandleConversion};
use garonne_bodies::abi::fast::{CommKey, FastAbi, PlainType, pointer_key};
use garonne_bodies::abi::{Abi, HandleCell, HandleKind, OPENMPI_THROWS, UNKNOWN_POINTER_HANDLE};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Error classes and codes of this ABI.
pub(crate) const ERROR_NUMBERS: ErrorNumbers = ErrorNumbers {
    classes: &ERROR,
    last: LAST_ERROR_CODES,
};

/// Bit of a handle that names an object of the program's: the other bits are the word.
const DYNAMIC: usize = 1 << 63;
/// Words of the program's objects are below.
const DYNAMIC_MAX: usize = 1 << 31;
/// Addresses are smaller. An object that stands for nothing in the standard ABI has a larger word.
const ADDRESS_MAX: usize = 1 << 61;
/// Words of an object that the library makes for an error handler.
pub(crate) const OBJECT_WORDS: usize = 128;
/// Words of predefined handles are below.
const PREDEFINED_MAX: usize = 1024;

/// Addresses of the objects of predefined handles, by their words in the standard ABI.
static OBJECTS: [AtomicUsize; PREDEFINED_MAX] = [const { AtomicUsize::new(0) }; PREDEFINED_MAX];
/// Objects by their addresses.
static WORDS: ObjectTable = ObjectTable::new();
/// Plain datatypes among them.
static PLAIN_TYPES: PlainTypes = PlainTypes::new();
/// Keeps the addresses of the objects of predefined handles. The library that has the objects calls
/// this when it is loaded. The addresses are those that the program uses: the loader may have put
/// the objects into the program.
///
/// # Safety
/// `first` is the address of so many addresses of objects, which live as long as the process and
/// begin with a word.
pub unsafe fn set_objects(first: *const *const usize, count: usize) {
    for at in 0..count {
        // SAFETY: as the caller says.
        let (object, word) = unsafe {
            let object = *first.add(at);
            (object, *object)
        };
        let address = object.expose_provenance();
        if let Some(place) = OBJECTS.get(word) {
            place.store(address, Ordering::Relaxed);
        }
        WORDS.add(address, word);
        let plain = PlainType::of(word);
        if plain.bytes > 0 {
            PLAIN_TYPES.add(address, plain);
        }
    }
}

/// Keeps the address of the object of `MPI::ERRORS_THROW_EXCEPTIONS`. The library that has the
/// object calls this when it is loaded.
///
/// # Safety
/// `object` is the address of so many words, which live as long as the process and are accessed as
/// atomics alone.
pub unsafe fn set_exceptions(object: *const usize) {
    WORDS.add(object.expose_provenance(), OPENMPI_THROWS);
    // SAFETY: as the caller says.
    let words = unsafe { &*object.cast::<[AtomicUsize; OBJECT_WORDS]>() };
    crate::languages::set_exceptions(words);
}

/// Makes an object for a handle whose library stores something in it; `None` if there are too many.
/// The object lives as long as the process.
pub(crate) fn make_object(word: usize) -> Option<&'static [AtomicUsize; OBJECT_WORDS]> {
    let object = Box::leak(Box::new([const { AtomicUsize::new(0) }; OBJECT_WORDS]));
    object[0].store(word, Ordering::Relaxed);
    let address = object.as_ptr().expose_provenance();
    WORDS.add(address, word).then_some(object)
}

/// Returns the word of an object. An address of no object, such as null or a handle of another ABI,
/// becomes a word that names nothing.
#[inline(never)]
fn word_of_object(handle: usize) -> usize {
    WORDS
        .word(handle)
        .unwrap_or(UNKNOWN_POINTER_HANDLE | handle)
}

/// The ABI of Open MPI, whose handles are pointers. A predefined handle is the address of an object
/// that begins with the word of the standard ABI. Any other handle is the word with the highest bit
/// set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMpi;

impl HandleConversion<usize> for OpenMpi {
    #[inline]
    fn to_native(_: HandleKind, handle: usize) -> usize {
        match handle & DYNAMIC {
            0 => word_of_object(handle),
            _ => handle & !DYNAMIC,
        }
    }

    #[inline]
    fn from_native(_: HandleKind, word: usize) -> usize {
        if (PREDEFINED_MAX..DYNAMIC_MAX).contains(&word) {
            return word | DYNAMIC;
        }
        let object = OBJECTS.get(word).map(|place| place.load(Ordering::Relaxed));
        match object {
            Some(address) if address != 0 => address,
            _ if word & UNKNOWN_POINTER_HANDLE != 0 => {
                let object =
                    (word > UNKNOWN_POINTER_HANDLE + ADDRESS_MAX).then(|| WORDS.address(word));
                (object.flatten()).unwrap_or(word & !UNKNOWN_POINTER_HANDLE)
            }
            _ => word | DYNAMIC,
        }
    }
}

impl FastAbi for OpenMpi {
    #[inline(always)]
    fn plain_type(datatype: usize) -> Option<PlainType> {
        PLAIN_TYPES.find(datatype)
    }

    #[inline(always)]
    fn comm_key(comm: usize) -> CommKey {
        pointer_key(comm)
    }

    #[inline(always)]
    fn request_word(request: usize) -> usize {
        match request & DYNAMIC {
            0 => UNKNOWN_POINTER_HANDLE,
            _ => request & !DYNAMIC,
        }
    }

    #[inline(always)]
    fn recv_tag(tag: c_int) -> c_int {
        // The lowest bit of negative numbers changes, so -1 becomes -2.
        tag ^ (tag as u32 >> 31) as c_int
    }
}

impl Abi for OpenMpi {
    type Status = crate::status::Status;
    type Handle = usize;
    const DUP_FN: Option<usize> = None;

    fn handle(kind: HandleKind, word: usize) -> usize {
        Self::from_native(kind, word)
    }

    fn handle_cell(kind: HandleKind, word: usize) -> HandleCell {
        HandleCell::of_word(Self::from_native(kind, word))
    }

    fn keyval(native: c_int) -> c_int {
        own_keyval(native)
    }

    fn error(native: c_int) -> c_int {
        own_error(native)
    }

    fn native_error(code: c_int) -> c_int {
        native_error(code)
    }
}

/// Returns the integer of a handle in Fortran; -1 for one that has none.
pub(crate) fn to_fortran(kind: HandleKind, word: usize) -> c_int {
    let known = fortran_integers(kind).iter();
    let mut known = known.filter(|(of, _)| *of == word);
    match known.next() {
        Some((_, integer)) => *integer,
        None if word & UNKNOWN_POINTER_HANDLE != 0 => -1,
        None => word as u32 as c_int,
    }
}

/// Returns the word of the standard ABI for an integer of Fortran; `None` if it names nothing.
pub(crate) fn from_fortran(kind: HandleKind, integer: c_int) -> Option<usize> {
    let known = fortran_integers(kind).iter();
    let mut known = known.filter(|(_, of)| *of == integer);
    match known.next() {
        Some((word, _)) => Some(*word),
        None => usize::try_from(integer)
            .ok()
            .filter(|word| *word >= PREDEFINED_MAX),
    }
}

/// Returns the cell of a handle for a callback of Fortran.
pub(crate) fn fortran_cell(kind: HandleKind, word: usize) -> HandleCell {
    HandleCell::of_int(to_fortran(kind, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: usize = 0x101;
    const INTEGER: usize = 0x219;
    /// `MPI_UB`, for which the standard has no word.
    const UPPER_BOUND: usize = (1 << 62 | 1 << 61) + 1;

    #[test]
    fn predefined_handles_are_addresses_of_objects_and_others_have_the_highest_bit() {
        static MADE: [[usize; 64]; 3] = [[WORLD; 64], [INTEGER; 64], [UPPER_BOUND; 64]];
        let addresses = [MADE[0].as_ptr(), MADE[1].as_ptr(), MADE[2].as_ptr()];
        // SAFETY: the objects are statics that begin with a word.
        unsafe { set_objects(addresses.as_ptr(), 3) };
        for object in &MADE {
            let address = object.as_ptr().expose_provenance();
            assert_eq!(OpenMpi::to_native(HandleKind::Comm, address), object[0]);
            assert_eq!(OpenMpi::from_native(HandleKind::Comm, object[0]), address);
        }
        // A datatype that the standard does not have has an integer in Fortran nevertheless.
        assert_eq!(from_fortran(HandleKind::Datatype, 3), Some(UPPER_BOUND));
        assert_eq!(to_fortran(HandleKind::Datatype, UPPER_BOUND), 3);
        for word in [4095, 4096, (1 << 31) - 1] {
            let handle = OpenMpi::from_native(HandleKind::Request, word);
            assert_eq!(handle, DYNAMIC | word);
            assert_eq!(OpenMpi::to_native(HandleKind::Request, handle), word);
        }
        // Null, a handle of MPICH, one of the standard ABI, and an address beside an object.
        let beside = MADE[0].as_ptr().expose_provenance() + 8;
        for garbage in [0, 0x4400_0000, WORLD, beside] {
            let word = OpenMpi::to_native(HandleKind::Comm, garbage);
            assert!(word > 1 << 61, "{garbage:#x} names nothing: {word:#x}");
            assert_eq!(OpenMpi::from_native(HandleKind::Comm, word), garbage);
        }
    }

    #[test]
    fn integers_of_fortran_are_fixed_for_predefined_handles_and_words_for_others() {
        assert_eq!(to_fortran(HandleKind::Comm, WORLD), 0);
        assert_eq!(
            from_fortran(HandleKind::Comm, 2),
            Some(0x100),
            "MPI_COMM_NULL"
        );
        assert_eq!(from_fortran(HandleKind::Comm, 3), None);
        assert_eq!(from_fortran(HandleKind::Datatype, 7), Some(INTEGER));
        assert_eq!(to_fortran(HandleKind::Group, 5000), 5000);
        assert_eq!(from_fortran(HandleKind::Group, 5000), Some(5000));
        assert_eq!(from_fortran(HandleKind::Op, -1), None);
    }
}
