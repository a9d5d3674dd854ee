//! The ABI as a type: its handles and numbers.

use crate::status::Status;
use crate::wrappers::{
    DATATYPE_HANDLES, ERROR, LAST_ERROR_CODES, native_error, own_error, own_keyval,
    predefined_from_native, predefined_to_native,
};
use garonne_bodies::abi::convert::{ErrorNumbers, HandleConversion};
use garonne_bodies::abi::fast::{CommKey, FastAbi, PlainType, int_key};
use garonne_bodies::abi::{
    Abi, FILE_MARK, HandleCell, HandleKind, MPICH_THROWS, UNKNOWN_INT_HANDLE,
    UNKNOWN_POINTER_HANDLE,
};
use std::ffi::c_int;

/// Error classes and codes of this ABI.
pub(crate) const ERROR_NUMBERS: ErrorNumbers = ErrorNumbers {
    classes: &ERROR,
    last: LAST_ERROR_CODES,
};

/// Bit of a handle that names an object of the program's.
const DYNAMIC: u32 = 1 << 31;

/// `MPI::ERRORS_THROW_EXCEPTIONS`, of the C++ library.
const ERRORS_THROW_EXCEPTIONS: u32 = 0x5400_0002;

fn is_throwing(kind: HandleKind, handle: u32) -> bool {
    kind == HandleKind::Errhandler && handle == ERRORS_THROW_EXCEPTIONS
}

/// The ABI of the MPICH family, whose handles are `int`. Any handle that is not predefined is the
/// word of the standard ABI with the highest bit set. A handle of a file is a pointer: the word
/// with [`FILE_MARK`], or null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mpich;

impl HandleConversion<c_int> for Mpich {
    #[inline]
    fn to_native(kind: HandleKind, handle: c_int) -> usize {
        let handle = handle as u32;
        if kind == HandleKind::Datatype {
            let at = (handle & 0xff) as usize;
            if DATATYPES[at].handle == handle {
                return DATATYPE_WORDS[at];
            }
        }
        match predefined_to_native(kind, handle) {
            Some(word) => word,
            None if is_throwing(kind, handle) => MPICH_THROWS,
            None if handle & DYNAMIC != 0 => (handle & !DYNAMIC) as usize,
            None => UNKNOWN_INT_HANDLE | handle as usize,
        }
    }

    #[inline]
    fn from_native(kind: HandleKind, word: usize) -> c_int {
        match predefined_from_native(kind, word) {
            Some(handle) => handle as c_int,
            None if word == MPICH_THROWS => ERRORS_THROW_EXCEPTIONS as c_int,
            None if word & UNKNOWN_INT_HANDLE != 0 => word as c_int,
            None => (word as u32 | DYNAMIC) as c_int,
        }
    }
}

impl HandleConversion<usize> for Mpich {
    fn to_native(kind: HandleKind, handle: usize) -> usize {
        let null = u32::try_from(handle).ok();
        match null.and_then(|null| predefined_to_native(kind, null)) {
            Some(word) => word,
            None if handle & FILE_MARK != 0 => handle & !FILE_MARK,
            None => UNKNOWN_POINTER_HANDLE | handle,
        }
    }

    fn from_native(kind: HandleKind, word: usize) -> usize {
        match predefined_from_native(kind, word) {
            Some(handle) => handle as usize,
            None if word & UNKNOWN_POINTER_HANDLE != 0 => word & !UNKNOWN_POINTER_HANDLE,
            None => word | FILE_MARK,
        }
    }
}

/// Datatypes by the lower byte of their handles, which tells the predefined ones apart but for the
/// five pairs of different types.
const DATATYPES: &[NumberedType; 256] = &numbered_types().0;
/// Words of the standard ABI for [`DATATYPES`].
const DATATYPE_WORDS: &[usize; 256] = &numbered_types().1;

/// A predefined datatype; its handle is 0 where no datatype has this byte. Fast paths find it by
/// one addition, so it is small.
#[derive(Clone, Copy)]
struct NumberedType {
    handle: u32,
    /// Bytes of an element, as [`PlainType`] has them.
    bytes: u8,
    code: u8,
}

const fn numbered_types() -> ([NumberedType; 256], [usize; 256]) {
    let none = NumberedType {
        handle: 0,
        bytes: 0,
        code: 0,
    };
    let (mut types, mut words) = ([none; 256], [0; 256]);
    let mut at = 0;
    while at < DATATYPE_HANDLES.len() {
        let (native, handle) = DATATYPE_HANDLES[at];
        if handle >> 16 == NUMBERED >> 16 {
            let place = (handle & 0xff) as usize;
            assert!(types[place].handle == 0, "two datatypes with one byte");
            let plain = PlainType::of(native);
            assert!(plain.bytes < 256, "an element has few bytes");
            types[place] = NumberedType {
                handle,
                bytes: plain.bytes as u8,
                code: plain.code,
            };
            words[place] = native;
        }
        at += 1;
    }
    (types, words)
}

/// Upper bits of the handles in [`DATATYPES`].
const NUMBERED: u32 = 0x4c00_0000;

impl FastAbi for Mpich {
    #[inline(always)]
    fn plain_type(datatype: c_int) -> Option<PlainType> {
        let found = &DATATYPES[(datatype & 0xff) as usize];
        (found.handle == datatype as u32).then_some(PlainType {
            bytes: found.bytes.into(),
            code: found.code,
        })
    }

    #[inline(always)]
    fn comm_key(comm: c_int) -> CommKey {
        int_key(comm as u32)
    }

    #[inline(always)]
    fn recv_tag(tag: c_int) -> c_int {
        // The lowest bit of negative numbers changes, so -1 becomes -2.
        tag ^ (tag as u32 >> 31) as c_int
    }
}

impl Abi for Mpich {
    type Status = Status;
    type Handle = c_int;
    const DUP_FN: Option<usize> = None;

    fn handle(kind: HandleKind, word: usize) -> c_int {
        Self::from_native(kind, word)
    }

    fn handle_cell(kind: HandleKind, word: usize) -> HandleCell {
        match kind {
            HandleKind::File => HandleCell::of_word(Self::from_native(kind, word)),
            _ => HandleCell::of_int(Self::from_native(kind, word)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrappers::*;
    use garonne_bodies::abi::convert::HandleConversion;

    /// Every table of predefined handles, with its kind.
    fn tables() -> [(HandleKind, &'static [(usize, u32)]); 11] {
        [
            (HandleKind::Comm, &COMM_HANDLES),
            (HandleKind::Datatype, &DATATYPE_HANDLES),
            (HandleKind::Errhandler, &ERRHANDLER_HANDLES),
            (HandleKind::File, &FILE_HANDLES),
            (HandleKind::Group, &GROUP_HANDLES),
            (HandleKind::Info, &INFO_HANDLES),
            (HandleKind::Message, &MESSAGE_HANDLES),
            (HandleKind::Op, &OP_HANDLES),
            (HandleKind::Request, &REQUEST_HANDLES),
            (HandleKind::Session, &SESSION_HANDLES),
            (HandleKind::Win, &WIN_HANDLES),
        ]
    }

    fn to_native(kind: HandleKind, handle: u32) -> usize {
        <Mpich as HandleConversion<c_int>>::to_native(kind, handle as c_int)
    }

    fn from_native(kind: HandleKind, word: usize) -> u32 {
        <Mpich as HandleConversion<c_int>>::from_native(kind, word) as u32
    }

    #[test]
    fn every_predefined_handle_converts_both_ways() {
        let mut count = 0;
        for (kind, table) in tables() {
            for (word, handle) in table {
                assert_eq!(to_native(kind, *handle), *word, "{kind:?} {handle:#x}");
                assert_eq!(from_native(kind, *word), *handle, "{kind:?} {word:#x}");
                count += 1;
            }
        }
        assert!(count > 100, "{count} handles");
    }

    #[test]
    fn handles_of_objects_and_handles_that_name_nothing_come_back() {
        for (kind, _) in tables() {
            for word in [4095, 4096, 4097, (1 << 30) + 5, (1 << 31) - 1] {
                assert!((from_native(kind, word) as i32) < 0);
                assert_eq!(to_native(kind, from_native(kind, word)), word);
            }
            for garbage in [1_u32, 0x101, 0x7fff_ffff] {
                let word = to_native(kind, garbage);
                assert!(word > 1 << 31, "{garbage:#x} names nothing: {word:#x}");
                assert_eq!(from_native(kind, word), garbage);
            }
        }
    }

    #[test]
    fn fast_paths_know_plain_datatypes_and_no_other_word() {
        let mut plain = 0;
        for (native, handle) in DATATYPE_HANDLES {
            let found = Mpich::plain_type(handle as c_int);
            let expected = PlainType::of(native);
            if let Some(found) = found {
                assert_eq!((found.bytes, found.code), (expected.bytes, expected.code));
                plain += usize::from(found.bytes > 0);
            } else {
                assert_ne!(handle >> 16, NUMBERED >> 16, "{handle:#x}");
                assert_eq!(expected.bytes, 0, "{handle:#x}");
            }
        }
        assert!(plain > 40, "{plain} datatypes");
        for garbage in [0, 1, 0x205, 0x4c00_0404, 0x4c00_0505, 0x8c00_0405] {
            let found = Mpich::plain_type(garbage_handle(garbage));
            assert!(found.is_none_or(|found| found.bytes == 0), "{garbage:#x}");
        }
    }

    fn garbage_handle(word: u32) -> c_int {
        word as c_int
    }

    #[test]
    fn tags_of_receives_that_mean_nothing_stay_so() {
        let tags = [0, 7, c_int::MAX, -1, -2, -3, c_int::MIN].map(Mpich::recv_tag);
        assert_eq!(tags[..4], [0, 7, c_int::MAX, native_tag(-1)]);
        let means_nothing = |tag: &c_int| *tag < 0 && *tag != native_tag(-1);
        assert!(tags[4..].iter().all(means_nothing), "{tags:?}");
    }

    #[test]
    fn handles_of_files_are_pointers() {
        type File = Mpich;
        let null = <File as HandleConversion<usize>>::to_native(HandleKind::File, 0);
        assert_eq!(null, 0x118);
        let back = <File as HandleConversion<usize>>::from_native(HandleKind::File, null);
        assert_eq!(back, 0);
        let word = <File as HandleConversion<usize>>::from_native(HandleKind::File, 5000);
        assert_eq!(word, FILE_MARK | 5000);
        let to_native = <File as HandleConversion<usize>>::to_native;
        assert_eq!(to_native(HandleKind::File, word), 5000);
        let of_another = to_native(HandleKind::File, 5000);
        assert_eq!(of_another, UNKNOWN_POINTER_HANDLE | 5000);
    }

    type Conversion = fn(c_int) -> c_int;
    /// Pairs of values, and the conversions there and back.
    type Set<'a> = (&'a [(c_int, c_int)], Conversion, Conversion);

    #[test]
    fn every_constant_converts_both_ways() {
        let sets: [Set<'_>; 17] = [
            (&RANK, native_rank, own_rank),
            (&TAG, native_tag, own_tag),
            (&ERROR, native_error, own_error),
            (&KEYVAL, native_keyval, own_keyval),
            (&THREAD_LEVEL, native_thread_level, own_thread_level),
            (&COMPARISON, native_comparison, own_comparison),
            (&TOPOLOGY, native_topology, own_topology),
            (&SPLIT_TYPE, native_split_type, own_split_type),
            (&ARRAY_ORDER, native_array_order, own_array_order),
            (&DISTRIBUTION, native_distribution, own_distribution),
            (
                &DISTRIBUTION_ARGUMENT,
                native_distribution_argument,
                own_distribution_argument,
            ),
            (&COMBINER, native_combiner, own_combiner),
            (&TYPE_CLASS, native_type_class, own_type_class),
            (&WINDOW_LOCK, native_window_lock, own_window_lock),
            (&ASSERTION, native_assertion, own_assertion),
            (&FILE_MODE, native_file_mode, own_file_mode),
            (&FILE_POSITION, native_file_position, own_file_position),
        ];
        for (set, native, own) in sets {
            assert!(!set.is_empty());
            for (standard, other) in set {
                assert_eq!((native(*other), own(*standard)), (*standard, *other));
            }
        }
    }

    #[test]
    fn numbers_of_errors_come_back() {
        for code in [0, 1, 62, 63, 64, 16382, 16383, 16384, 20000] {
            assert_eq!(native_error(own_error(code)), code, "{code}");
        }
        for code in [0, 14, 19, 99, 333, 0x3fff_ffff, 0x4000_0000] {
            assert_eq!(own_error(native_error(code)), code, "{code}");
        }
    }
}
