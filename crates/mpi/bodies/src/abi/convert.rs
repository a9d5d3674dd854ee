//! Conversion of arguments and results between the standard ABI and another one, for generated
//! wrappers.
//!
//! A wrapper of another ABI makes places of its own for what the call returns, and passes them to
//! the wrapper of the standard ABI. That one finishes the places when the body is over: what the
//! body has written is converted and stored where the program wants it. This happens before an
//! error is raised, because an error handler may throw, jump or exit.

use crate::constants::{MPI_WIN_CREATE_FLAVOR, MPI_WIN_FLAVOR_CREATE, MPI_WIN_MODEL};
use crate::{attr, objects};
use garonne_mpi::coll::Neighbors;
use garonne_mpi::datatype::{Combiner, Datatype};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

pub use super::*;
pub use crate::c_args::Buf;
pub use crate::handle::{
    MPI_Aint, MPI_Count, MPI_Offset, MPI_T_cvar_handle, MPI_T_enum, MPI_T_event_instance,
    MPI_T_event_registration, MPI_T_pvar_handle, MPI_T_pvar_session,
};

/// Conversion of handles that C passes as `T`.
pub trait HandleConversion<T>: Abi {
    /// Returns the word of the standard ABI. A handle that names nothing becomes a word that names
    /// nothing, and converts back to the same handle.
    fn to_native(kind: HandleKind, handle: T) -> usize;
    /// Returns the handle of a word of the standard ABI.
    fn from_native(kind: HandleKind, word: usize) -> T;
}

/// Word that no handle has: the call has not written a result.
const UNWRITTEN_WORD: usize = usize::MAX;
/// Number that no call returns.
const UNWRITTEN_INT: c_int = c_int::MIN + 1;
/// Number that no set of constants has and that every call refuses.
const INVALID_INT: c_int = c_int::MIN;

/// Returns the number of the standard ABI for one of the other ABI. A number that means nothing
/// there and something here becomes one that every call refuses.
#[inline]
pub fn int_to_native(constants: &[(c_int, c_int)], value: c_int) -> c_int {
    if let Some((native, _)) = constants.iter().find(|(_, other)| *other == value) {
        return *native;
    }
    match constants.iter().any(|(native, _)| *native == value) {
        true => INVALID_INT,
        false => value,
    }
}

/// Returns the number of the other ABI for one of the standard ABI.
#[inline]
pub fn int_from_native(constants: &[(c_int, c_int)], value: c_int) -> c_int {
    let found = constants.iter().find(|(native, _)| *native == value);
    found.map_or(value, |(_, other)| *other)
}

/// Converts bits; `from` and `to` choose the sides of the pairs.
fn bits(
    pairs: &[(c_int, c_int)],
    value: c_int,
    from: fn(&(c_int, c_int)) -> c_int,
    to: fn(&(c_int, c_int)) -> c_int,
) -> c_int {
    let set = pairs.iter().filter(|pair| value & from(pair) != 0);
    let unknown = value & !pairs.iter().fold(0, |all, pair| all | from(pair));
    set.fold(0, |all, pair| all | to(pair)) | if unknown == 0 { 0 } else { INVALID_INT }
}

/// Returns the bits of the standard ABI for bits of the other ABI. Unknown bits become one that
/// every call refuses.
pub fn bits_to_native(constants: &[(c_int, c_int)], value: c_int) -> c_int {
    bits(constants, value, |pair| pair.1, |pair| pair.0)
}

/// Returns the bits of the other ABI for bits of the standard ABI.
pub fn bits_from_native(constants: &[(c_int, c_int)], value: c_int) -> c_int {
    bits(constants, value, |pair| pair.0, |pair| pair.1)
}

/// Error classes and codes of the other ABI.
///
/// Classes are converted by table. The library's own codes lie between the classes and
/// `MPI_ERR_LASTCODE`, and are moved above the classes of the other ABI. Codes of the program lie
/// above `MPI_ERR_LASTCODE` in both.
#[derive(Debug)]
pub struct ErrorNumbers {
    /// Classes in the standard ABI and in the other one.
    pub classes: &'static [(c_int, c_int)],
    /// `MPI_ERR_LASTCODE` in the standard ABI and in the other one.
    pub last: (c_int, c_int),
}

impl ErrorNumbers {
    /// Distance by which codes of the library are moved.
    const MOVED: c_int = 0x1_0000;

    /// Returns the number of the other ABI.
    #[inline]
    pub fn from_native(&self, code: c_int) -> c_int {
        match code {
            0 => 0,
            _ => self.failure_from_native(code),
        }
    }

    #[cold]
    fn failure_from_native(&self, code: c_int) -> c_int {
        let (last, other_last) = self.last;
        match self.classes.iter().find(|(native, _)| *native == code) {
            Some((_, other)) => *other,
            None if code == last => other_last,
            None if code > last => (code - last).saturating_add(other_last),
            None if code > 0 => code + Self::MOVED,
            None => code.saturating_neg(),
        }
    }

    /// Returns the number of the standard ABI. A number that is no class and no code becomes a
    /// negative one, which is none there, and comes back.
    pub fn to_native(&self, code: c_int) -> c_int {
        let (last, other_last) = self.last;
        match self.classes.iter().find(|(_, other)| *other == code) {
            Some((native, _)) => *native,
            None if code == other_last => last,
            None if code > Self::MOVED && code < Self::MOVED + last => code - Self::MOVED,
            None if code > other_last => code - other_last + last,
            None if code > 0 => -code,
            None => code,
        }
    }
}

/// Replaces the address of a predefined attribute's value, which a call returned at `value`, by the
/// address of the converted value. `keyval` is a key of the standard ABI.
pub fn convert_attribute(
    abi: OtherAbi,
    keyval: c_int,
    (value, flag): (Buf, Ptr<c_int>),
    convert: fn(c_int) -> c_int,
) {
    let place = value.typed::<usize>();
    if flag.get().is_ok_and(|found| found != 0)
        && let Ok(native) = place.get()
    {
        place.set_if(attr::converted_value(abi, keyval, native, convert));
    }
}

/// Small numbers, whose addresses are values of attributes.
static NUMBERS: [c_int; 5] = [0, 1, 2, 3, 4];

/// Replaces the address of the kind or the memory model of a window, which a call returned at
/// `value`, by the address of the number that stands for it in ABIs that count kinds from 1.
/// `keyval` is a key of the standard ABI; `unified` is the ABI's `MPI_WIN_UNIFIED`.
pub fn convert_window_attribute(keyval: c_int, (value, flag): (Buf, Ptr<c_int>), unified: c_int) {
    let place = value.typed::<usize>();
    let is_found = flag.get().is_ok_and(|found| found != 0);
    let number = match keyval {
        MPI_WIN_CREATE_FLAVOR if is_found => {
            let native = place.get().map(|at| Buf::from_addr(at).typed::<c_int>());
            let native = native.and_then(Ptr::get).unwrap_or_default();
            native - MPI_WIN_FLAVOR_CREATE + 1
        }
        MPI_WIN_MODEL if is_found => unified,
        _ => return,
    };
    let number = usize::try_from(number).ok().and_then(|at| NUMBERS.get(at));
    if let Some(number) = number {
        place.set_if(std::ptr::from_ref(number).expose_provenance());
    }
}

/// Defines the functions of another ABI that get attributes of communicators and windows:
/// `wrap_MPI_Comm_get_attr`, `wrap_MPI_Attr_get` and `wrap_MPI_Win_get_attr`. The ABI's generated
/// conversions are those in scope where the macro is used. `handle` is the type of a handle;
/// `ranks` and `error` are the keys whose values are ranks and an error code; `unified` is
/// `MPI_WIN_UNIFIED`.
#[macro_export]
macro_rules! attribute_getters {
    ($abi:expr, handle: $handle:ty, ranks: $ranks:pat, error: $error:pat, unified: $unified:expr) => {
        $crate::attribute_getters! { @communicator $handle, wrap_MPI_Comm_get_attr wrap_MPI_Attr_get }

        /// Gets an attribute of a window.
        pub extern "C-unwind" fn wrap_MPI_Win_get_attr(
            win: $handle,
            keyval: c_int,
            value: Buf,
            flag: Ptr<c_int>,
            site: CallSite,
        ) -> c_int {
            let (win, key) = (native_win(win), native_keyval(keyval));
            let code = native::wrap_MPI_Win_get_attr(win, key, value, flag, site);
            if code == 0 {
                convert_window_attribute(key, (value, flag), $unified);
            }
            own_error(code)
        }

        /// Converts what a call returned for a predefined attribute.
        fn convert_predefined(keyval: c_int, value: Buf, flag: Ptr<c_int>, code: c_int) -> c_int {
            let convert: fn(c_int) -> c_int = match keyval {
                $ranks => own_rank,
                $error => own_error,
                _ => return own_error(code),
            };
            if code == 0 {
                convert_attribute($abi, native_keyval(keyval), (value, flag), convert);
            }
            own_error(code)
        }
    };
    (@communicator $handle:ty, $($name:ident)*) => {
        $(
            /// Gets an attribute of a communicator.
            pub extern "C-unwind" fn $name(
                comm: $handle,
                keyval: c_int,
                value: Buf,
                flag: Ptr<c_int>,
                site: CallSite,
            ) -> c_int {
                let (comm, key) = (native_comm(comm), native_keyval(keyval));
                let code = native::$name(comm, key, value, flag, site);
                convert_predefined(keyval, value, flag, code)
            }
        )*
    };
}

/// Places for numbers that the call has not written.
fn unwritten(count: usize) -> impl Iterator<Item = Cell<c_int>> {
    (0..count).map(|_| Cell::new(UNWRITTEN_INT))
}

/// Number of elements of an array of which the call says the length.
pub fn length(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Number of elements of an array whose length the call reads and changes.
pub fn length_at(count: Ptr<c_int>) -> usize {
    count.get().map_or(0, |count| length(count.into()))
}

/// Sum of the first `count` numbers, without negative ones.
pub fn sum(numbers: ConstPtr<c_int>, count: usize) -> usize {
    let numbers = numbers.slice(count).unwrap_or_default();
    numbers.iter().map(|number| length((*number).into())).sum()
}

/// Returns the number of elements at the root, and 0 at other processes, whose argument means
/// nothing.
pub fn at_root(comm: MPI_Comm, root: c_int, count: impl FnOnce() -> usize) -> usize {
    match objects::comm(comm) {
        Ok(comm) if c_int::try_from(comm.rank()) == Ok(root) => count(),
        _ => 0,
    }
}

/// Number of processes with which each process exchanges data: the communicator's, or those of the
/// remote group.
pub fn processes(comm: MPI_Comm) -> usize {
    objects::comm(comm).map_or(0, |comm| comm.peers() as usize)
}

/// Number of neighbours that a process receives from.
pub fn sources(comm: MPI_Comm) -> usize {
    let comm = objects::comm(comm).ok();
    let found = comm.and_then(|comm| Neighbors::of(comm).ok());
    found.map_or(0, |neighbors| neighbors.indegree())
}

/// Number of neighbours that a process sends to.
pub fn destinations(comm: MPI_Comm) -> usize {
    let comm = objects::comm(comm).ok();
    let found = comm.and_then(|comm| Neighbors::of(comm).ok());
    found.map_or(0, |neighbors| neighbors.outdegree())
}

/// Returns `count`, or 0 where `MPI_IN_PLACE` says that the array means nothing.
pub fn unless_in_place(buffer: Buf, count: usize) -> usize {
    match buffer.is_in_place() {
        true => 0,
        false => count,
    }
}

/// A handle that a call returns or changes.
pub struct HandlePlace<A, N, T> {
    kind: HandleKind,
    place: Ptr<T>,
    native: Cell<N>,
    before: usize,
    abi: PhantomData<A>,
}

impl<A: HandleConversion<T>, N: Handle, T: Copy> HandlePlace<A, N, T> {
    /// A place that the call reads and may change.
    pub fn changed(kind: HandleKind, place: Ptr<T>) -> Self {
        let read = place.get().map(|handle| A::to_native(kind, handle));
        Self::holding(kind, place, read.unwrap_or(UNWRITTEN_WORD))
    }

    /// A place that the call only writes.
    pub fn returned(kind: HandleKind, place: Ptr<T>) -> Self {
        Self::holding(kind, place, UNWRITTEN_WORD)
    }

    fn holding(kind: HandleKind, place: Ptr<T>, before: usize) -> Self {
        Self {
            kind,
            place,
            native: Cell::new(N::from_word(before)),
            before,
            abi: PhantomData,
        }
    }

    /// Returns the place for the call; null if the program passed null.
    pub fn native(&self) -> Ptr<N> {
        match self.place.is_null() {
            true => Ptr::ignore(),
            false => Ptr::lent(&self.native),
        }
    }

    /// Stores what the call has written.
    pub fn finish(&self) {
        let word = self.native.get().word();
        if word != self.before {
            self.place.set_if(A::from_native(self.kind, word));
        }
    }
}

/// Handles that a call returns or changes. Most programs wait for fewer requests than lie in place.
pub struct HandlesPlace<A, N, T> {
    kind: HandleKind,
    place: Ptr<T>,
    native: SmallVec<[Cell<N>; 64]>,
    abi: PhantomData<A>,
}

impl<A: HandleConversion<T>, N: Handle, T: Copy> HandlesPlace<A, N, T> {
    /// Places that the call reads and may change.
    #[inline]
    pub fn changed(kind: HandleKind, place: Ptr<T>, count: usize) -> Self {
        let read = |at| place.at(at).map(|handle| A::to_native(kind, handle));
        Self::holding(kind, place, count, |at| read(at).unwrap_or(UNWRITTEN_WORD))
    }

    /// Places that the call only writes.
    pub fn returned(kind: HandleKind, place: Ptr<T>, count: usize) -> Self {
        Self::holding(kind, place, count, |_| UNWRITTEN_WORD)
    }

    #[inline]
    fn holding(
        kind: HandleKind,
        place: Ptr<T>,
        count: usize,
        word: impl Fn(usize) -> usize,
    ) -> Self {
        Self {
            kind,
            place,
            native: (0..count)
                .map(|at| Cell::new(N::from_word(word(at))))
                .collect(),
            abi: PhantomData,
        }
    }

    /// Returns the places for the call; null if the program passed null.
    #[inline]
    pub fn native(&self) -> Ptr<N> {
        match self.place.is_null() {
            true => Ptr::ignore(),
            false => Ptr::lent_array(&self.native),
        }
    }

    /// Stores what the call has written. A handle that the call left as it was converts back to
    /// itself.
    #[inline]
    pub fn finish(&self) {
        for (at, native) in self.native.iter().enumerate() {
            let word = native.get().word();
            if word != UNWRITTEN_WORD {
                let handle = A::from_native(self.kind, word);
                self.place.element(at).set_if(handle);
            }
        }
    }
}

/// Handles that a call reads.
#[derive(Debug)]
pub struct HandlesIn<N> {
    /// `None` if the program passed null.
    native: Option<SmallVec<[N; 16]>>,
}

impl<N: Handle> HandlesIn<N> {
    /// Converts the first `count` handles.
    pub fn new<A: HandleConversion<T>, T: Copy>(
        kind: HandleKind,
        place: ConstPtr<T>,
        count: usize,
    ) -> Self {
        let convert = |handle: &T| N::from_word(A::to_native(kind, *handle));
        let converted = |handles: &[T]| handles.iter().map(convert).collect();
        Self {
            native: match place.addr() {
                0 => None,
                _ => place.slice(count).ok().map(converted),
            },
        }
    }

    /// Returns the handles for the call.
    pub fn native(&self) -> ConstPtr<N> {
        self.native
            .as_deref()
            .map_or(ConstPtr::null(), ConstPtr::lent)
    }
}

/// Numbers with special values that a call reads.
#[derive(Debug)]
pub struct IntsIn {
    /// `None` if the program passed null.
    native: Option<SmallVec<[c_int; 16]>>,
}

impl IntsIn {
    /// Converts the first `count` numbers.
    pub fn new(place: ConstPtr<c_int>, count: usize, to_native: fn(c_int) -> c_int) -> Self {
        let converted = |ints: &[c_int]| ints.iter().copied().map(to_native).collect();
        Self {
            native: match place.addr() {
                0 => None,
                _ => place.slice(count).ok().map(converted),
            },
        }
    }

    /// Returns the numbers for the call.
    pub fn native(&self) -> ConstPtr<c_int> {
        self.native
            .as_deref()
            .map_or(ConstPtr::null(), ConstPtr::lent)
    }
}

/// Numbers with special values that a call returns.
#[derive(Debug)]
pub struct IntsOut {
    place: Ptr<c_int>,
    native: SmallVec<[Cell<c_int>; 16]>,
    from_native: fn(c_int) -> c_int,
}

impl IntsOut {
    /// Makes place for `count` numbers.
    pub fn new(
        place: Ptr<c_int>,
        count: usize,
        _: fn(c_int) -> c_int,
        from_native: fn(c_int) -> c_int,
    ) -> Self {
        // What a call of another ABI may have left.
        crate::dynamic::take_codes_written();
        Self {
            place,
            native: unwritten(count).collect(),
            from_native,
        }
    }

    /// Returns the places for the call; null if the program passed null. Where the number of
    /// integers is not known before the call, which is so for codes of spawned processes on ranks
    /// other than the root, these are the program's own places.
    pub fn native(&self) -> Ptr<c_int> {
        match self.native.is_empty() || self.place.is_null() {
            true => self.place,
            false => Ptr::lent_array(&self.native),
        }
    }

    /// Stores what the call has written, or converts it where it is.
    pub fn finish(&self) {
        let in_place = crate::dynamic::take_codes_written();
        for at in 0..if self.native.is_empty() { in_place } else { 0 } {
            let place = self.place.element(at);
            if let Ok(value) = place.get() {
                place.set_if((self.from_native)(value));
            }
        }
        for (at, value) in self.native.iter().map(Cell::get).enumerate() {
            if value != UNWRITTEN_INT {
                self.place.element(at).set_if((self.from_native)(value));
            }
        }
    }
}

/// Conversions of an array order, of a distribution, and of a distribution's argument.
pub type TypeConversions = [fn(c_int) -> c_int; 3];

/// Integers of which a datatype was made, which a call returns.
#[derive(Debug)]
pub struct TypeIntegers {
    place: Ptr<c_int>,
    native: Vec<Cell<c_int>>,
    combiner: Option<Combiner>,
    from_native: TypeConversions,
}

impl TypeIntegers {
    /// Makes place for the integers of a datatype.
    pub fn new(datatype: MPI_Datatype, place: Ptr<c_int>, from_native: TypeConversions) -> Self {
        let envelope = objects::datatype(datatype).ok().map(Datatype::envelope);
        let count = envelope.map_or(0, |envelope| envelope.integers as usize);
        Self {
            place,
            native: unwritten(count).collect(),
            combiner: envelope.map(|envelope| envelope.combiner),
            from_native,
        }
    }

    /// Returns the places for the call; null if the program passed null.
    pub fn native(&self) -> Ptr<c_int> {
        match self.place.is_null() {
            true => Ptr::ignore(),
            false => Ptr::lent_array(&self.native),
        }
    }

    /// Stores what the call has written.
    pub fn finish(&self) {
        let mut integers: Vec<c_int> = self.native.iter().map(Cell::get).collect();
        if integers.contains(&UNWRITTEN_INT) {
            return;
        }
        self.convert(&mut integers);
        for (at, value) in integers.into_iter().enumerate() {
            self.place.element(at).set_if(value);
        }
    }

    /// Converts constants in place. The order of both kinds of arrays comes last. A distributed
    /// array has distributions, their arguments and the numbers of processes before, as many as
    /// dimensions; the third integer says how many these are.
    fn convert(&self, integers: &mut [c_int]) {
        let [order, distribution, argument] = self.from_native;
        let Some((last, before)) = integers.split_last_mut() else {
            return;
        };
        match self.combiner {
            Some(Combiner::Subarray) => *last = order(*last),
            Some(Combiner::Darray) => {
                *last = order(*last);
                let dims = before.get(2).map_or(0, |dims| length((*dims).into()));
                let Some(start) = before.len().checked_sub(3 * dims) else {
                    return;
                };
                let lists = &mut before[start..];
                lists[..dims]
                    .iter_mut()
                    .for_each(|value| *value = distribution(*value));
                lists[dims..2 * dims]
                    .iter_mut()
                    .for_each(|value| *value = argument(*value));
            }
            _ => {}
        }
    }
}

/// A number with special values that a call returns or changes.
#[derive(Debug)]
pub struct IntPlace {
    place: Ptr<c_int>,
    native: Cell<c_int>,
    before: c_int,
    from_native: fn(c_int) -> c_int,
}

impl IntPlace {
    /// A place that the call reads and may change.
    pub fn changed(
        place: Ptr<c_int>,
        to_native: fn(c_int) -> c_int,
        from_native: fn(c_int) -> c_int,
    ) -> Self {
        let before = place.get().map_or(UNWRITTEN_INT, to_native);
        Self {
            place,
            native: Cell::new(before),
            before,
            from_native,
        }
    }

    /// A place that the call only writes.
    pub fn returned(
        place: Ptr<c_int>,
        _: fn(c_int) -> c_int,
        from_native: fn(c_int) -> c_int,
    ) -> Self {
        Self {
            place,
            native: Cell::new(UNWRITTEN_INT),
            before: UNWRITTEN_INT,
            from_native,
        }
    }

    /// Returns the place for the call; null if the program passed null.
    pub fn native(&self) -> Ptr<c_int> {
        match self.place.is_null() {
            true => Ptr::ignore(),
            false => Ptr::lent(&self.native),
        }
    }

    /// Stores what the call has written.
    pub fn finish(&self) {
        let value = self.native.get();
        if value != self.before {
            self.place.set_if((self.from_native)(value));
        }
    }
}

/// A place of the wrapper's own for a number that a call returns.
#[derive(Debug, Default)]
pub struct NumberPlace<T: Copy>(Cell<T>);

impl<T: Copy + Default> NumberPlace<T> {
    /// Returns the place for the call.
    pub fn native(&self) -> Ptr<T> {
        Ptr::lent(&self.0)
    }

    /// Returns what the call has written, or zero.
    pub fn get(&self) -> T {
        self.0.get()
    }
}

/// The address of a buffer that a call returns.
#[derive(Debug)]
pub struct BufferPlace {
    place: Buf,
    native: Cell<usize>,
    special: &'static [(usize, usize)],
}

impl BufferPlace {
    /// Makes a place for the address. `special` are the addresses that differ between the ABIs.
    pub fn new(place: Buf, special: &'static [(usize, usize)]) -> Self {
        Self {
            place,
            native: Cell::new(UNWRITTEN_WORD),
            special,
        }
    }

    /// Returns the place for the call; null if the program passed null.
    pub fn native(&self) -> Buf {
        match self.place.addr() {
            0 => self.place,
            _ => Ptr::lent(&self.native).untyped(),
        }
    }

    /// Stores what the call has written.
    pub fn finish(&self) {
        let native = self.native.get();
        if native != UNWRITTEN_WORD {
            let special = self.special.iter().find(|pair| pair.0 == native);
            let address = special.map_or(native, |pair| pair.1);
            self.place.typed::<usize>().set_if(address);
        }
    }
}

/// A string for which the program has less room than the call may need; `N` bytes hold all.
#[derive(Debug)]
pub struct ShorterString<const N: usize> {
    place: StrOut,
    room: usize,
    /// No zero is among the bytes before the call has written the string.
    native: [Cell<u8>; N],
}

impl<const N: usize> ShorterString<N> {
    /// Makes place for the call's string. The program has `room` bytes.
    pub fn new(place: StrOut, room: usize) -> Self {
        Self {
            place,
            room,
            native: [const { Cell::new(u8::MAX) }; N],
        }
    }

    /// Returns the place for the call; null if the program passed null.
    pub fn native(&self) -> StrOut {
        match self.place.is_null() {
            true => self.place,
            false => StrOut::lent(&self.native),
        }
    }

    /// Stores as much of the string as fits, and its length.
    pub fn finish(&self, length: Option<Ptr<c_int>>) {
        self.finish_after("", length);
    }

    /// Stores `before` and as much of the string as fits, and the length of both.
    pub fn finish_after(&self, before: &str, length: Option<Ptr<c_int>>) {
        let bytes: Vec<u8> = self.native.iter().map(Cell::get).collect();
        let Ok(text) = CStr::from_bytes_until_nul(&bytes) else {
            return;
        };
        let text = format!("{before}{}", text.to_string_lossy());
        let written = self.place.write(&text, self.room);
        if let (Ok(written), Some(length)) = (written, length) {
            length.set_if(written as c_int);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [(c_int, c_int); 3] = [(-1, -2), (-3, -1), (-4, -3)];

    #[test]
    fn numbers_convert_both_ways_and_what_means_nothing_is_refused() {
        for (native, other) in NUMBERS {
            assert_eq!(int_to_native(&NUMBERS, other), native);
            assert_eq!(int_from_native(&NUMBERS, native), other);
        }
        assert_eq!(int_to_native(&NUMBERS, 7), 7);
        assert_eq!(int_to_native(&NUMBERS, -4), INVALID_INT);
    }

    #[test]
    fn bits_convert_one_by_one() {
        let modes = [(1, 128), (2, 1), (16, 2)];
        assert_eq!(bits_to_native(&modes, 128 | 2), 1 | 16);
        assert_eq!(bits_from_native(&modes, 1 | 16), 128 | 2);
        assert_eq!(bits_to_native(&modes, 4), INVALID_INT);
    }

    #[test]
    fn error_numbers_are_one_to_one() {
        let numbers = ErrorNumbers {
            classes: &[(0, 0), (7, 19), (8, 7), (15, 14)],
            last: (16383, 0x3fff_ffff),
        };
        for native in (0..70_000).filter(|code| ![14, 19].contains(code)) {
            assert_eq!(numbers.to_native(numbers.from_native(native)), native);
        }
        assert!(numbers.from_native(16384) > 0x3fff_ffff);
        assert!(numbers.to_native(333) < 0, "no class and no code");
        assert_eq!(numbers.from_native(numbers.to_native(333)), 333);
    }

    #[test]
    fn codes_of_the_library_convert_back_where_the_last_code_is_small() {
        // Open MPI's `MPI_ERR_LASTCODE` lies below the codes that the library moves.
        let numbers = ErrorNumbers {
            classes: &[(0, 0)],
            last: (16383, 92),
        };
        for native in 0..70_000 {
            assert_eq!(numbers.to_native(numbers.from_native(native)), native);
        }
    }
}
