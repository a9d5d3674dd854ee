//! Put, get, accumulates and notified access.
//!
//! The origin moves and combines bytes itself. Accumulates take the stripes of the target's bytes
//! in the target's control block, whichever way they use. So all accumulates on an element exclude
//! each other.

use super::Window;
use super::target::{TargetData, TargetPlace};
use crate::datatype::basic_type::BasicType;
use crate::datatype::{Datatype, LeafType};
use crate::error::{Class, Result};
use crate::op::{DerivedSide, Op, PredefinedOp, apply_leaves};
use garonne_engine::one_sided::AtomicType;
use garonne_sync::peer_memory::{self, PeerCopy};
use garonne_sync::user::{self, Data, Packed, Scratch, UserMem};
use garonne_sync::window_control::{NOTIFY_COUNTERS, WindowControl};
use std::sync::atomic::Ordering;

/// Elements in memory of the origin.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Address.
    pub mem: UserMem,
    /// Number of elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
}

impl Part<'_> {
    fn data(&self) -> Result<Data> {
        self.datatype.data(self.mem, self.count)
    }
}

/// Elements in memory of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetPart<'a> {
    /// The target's rank.
    pub rank: i32,
    /// Displacement of the first element.
    pub disp: i64,
    /// Number of elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
}

/// An accumulate.
#[derive(Clone, Debug)]
pub struct AccumulateArgs<'a> {
    /// The operands; `None`: the operation is `MPI_NO_OP`, which has none.
    pub origin: Option<Part<'a>>,
    /// Memory for the old values.
    pub result: Option<Part<'a>>,
    /// The elements that are combined with the operands.
    pub target: TargetPart<'a>,
    /// The operation.
    pub op: Op,
}

/// Bytes of another process's memory that are combined at once: they stay in cache.
const PIECE_BYTES: u64 = 64 << 10;

/// Elements of one predefined datatype, as they lie in an array.
struct Natural {
    leaf: LeafType,
    datatype: &'static Datatype,
    count: u64,
}

impl Natural {
    /// Memory for so many elements.
    fn scratch(&self, count: u64) -> Option<Scratch> {
        let len = self.leaf.extent().checked_mul(count)?;
        Scratch::new(usize::try_from(len).ok()?)
    }

    fn data(&self, mem: UserMem, count: u64) -> Result<Data> {
        self.datatype.data(mem, count)
    }
}

/// Whether elements may be compared and swapped: integers, logicals and bytes.
fn is_comparable(datatype: &Datatype) -> bool {
    let of_kind = |leaf| match leaf {
        LeafType::Basic(basic) => {
            basic.is_integer()
                || basic.is_logical()
                || matches!(basic, BasicType::Byte | BasicType::Char)
        }
        LeafType::Pair { .. } => false,
    };
    datatype.is_predefined() && datatype.size() <= 16 && datatype.leaf().is_some_and(of_kind)
}

impl Window {
    /// `MPI_Put`.
    ///
    /// # Errors
    /// `RmaSync`, `Rank`, `RmaRange`, `Disp`, `Count`; `Other` where the target's memory cannot be
    /// written.
    pub fn put(&self, origin: &Part<'_>, target: &TargetPart<'_>) -> Result<()> {
        self.transfer(origin, target, PeerCopy::Write)
    }

    /// `MPI_Get`.
    ///
    /// # Errors
    /// As for `put`.
    pub fn get(&self, origin: &Part<'_>, target: &TargetPart<'_>) -> Result<()> {
        self.transfer(origin, target, PeerCopy::Read)
    }

    /// Puts, and then adds 1 to a counter of the target: who sees the counter sees the bytes.
    ///
    /// # Errors
    /// As for `put`; `Arg` for a counter that does not exist.
    pub fn put_notify(
        &self,
        origin: &Part<'_>,
        target: &TargetPart<'_>,
        counter: i32,
    ) -> Result<()> {
        let counter = self.check_counter(counter)?;
        self.put(origin, target)?;
        let Some(rank) = self.target(target.rank)? else {
            return Ok(());
        };
        // Release: the bytes. SYNC(window-notify).
        let notify = |control: &WindowControl| {
            control.notified(counter).fetch_add(1, Ordering::Release);
        };
        let word = (WindowControl::notified_offset(counter), AtomicType::U64);
        self.count_up(rank, notify, word)
    }

    /// Returns how often others have notified this member by one of its counters, since the window
    /// was made.
    ///
    /// # Errors
    /// `Arg` for a counter that does not exist.
    pub fn notified(&self, counter: i32) -> Result<i64> {
        let counter = self.check_counter(counter)?;
        self.serve_other_hosts();
        // Acquire: the bytes. SYNC(window-notify).
        let seen = self.own_control().notified(counter).load(Ordering::Acquire);
        Ok(seen as i64)
    }

    /// Waits until others have notified this member so often by one of its counters.
    ///
    /// # Errors
    /// `Arg` for a counter that does not exist, `Count` for a negative count; `ProcFailed` where a
    /// member has died and the counter does not come as far.
    pub fn wait_notified(&self, counter: i32, count: i64) -> Result<()> {
        let counter = self.check_counter(counter)?;
        let wanted = u64::try_from(count).map_err(|_| {
            let text = format!("cannot wait for {count} notifications");
            self.error(Class::Count, text)
        })?;
        let word = self.own_control().notified(counter);
        // Acquire: the bytes. SYNC(window-notify).
        let has_come = || word.load(Ordering::Acquire) >= wanted;
        let (mut come, mut dead) = (has_come(), None);
        if !come {
            self.wait(&mut || {
                // Deaths first: what the dead did before counts.
                dead = self.dead_members().first().copied();
                come = has_come();
                come || dead.is_some()
            });
        }
        match dead.filter(|_| !come) {
            None => Ok(()),
            Some(dead) => {
                let text = format!(
                    "has lost rank {dead}, while rank {} waits for notifications",
                    self.rank()
                );
                Err(self.error(Class::ProcFailed, text))
            }
        }
    }

    fn check_counter(&self, counter: i32) -> Result<u32> {
        let found = u32::try_from(counter).ok();
        found
            .filter(|counter| (*counter as usize) < NOTIFY_COUNTERS)
            .ok_or_else(|| {
                let text = format!(
                    "has no counter {counter}: they are 0 to {}",
                    NOTIFY_COUNTERS - 1
                );
                self.error(Class::Arg, text)
            })
    }

    fn transfer(
        &self,
        origin: &Part<'_>,
        target: &TargetPart<'_>,
        direction: PeerCopy,
    ) -> Result<()> {
        let Some(rank) = self.accessible(target.rank)? else {
            return Ok(());
        };
        let there = self.target_data(rank, target.disp, target.count, target.datatype)?;
        let here = origin.data()?;
        self.check_lengths(here.len, there.data.len)?;
        self.copy(rank, direction, &here, &there)
    }

    /// Returns the target of an access; `None` for `MPI_PROC_NULL`.
    fn accessible(&self, rank: i32) -> Result<Option<u32>> {
        let target = self.target(rank)?;
        self.check_access(rank)?;
        if !self.0.one_host {
            self.serve_in_turn();
        }
        Ok(target)
    }

    fn check_lengths(&self, origin: u64, target: u64) -> Result<()> {
        if origin == target {
            return Ok(());
        }
        let text = format!(
            "is accessed with {origin} B at the origin and {target} B at the target; they must be as many"
        );
        Err(self.error(Class::Count, text))
    }

    fn copy(&self, rank: u32, direction: PeerCopy, here: &Data, there: &TargetData) -> Result<()> {
        match (&there.place, direction) {
            (TargetPlace::Mapped, PeerCopy::Write) => {
                user::copy(here, &there.data);
                Ok(())
            }
            (TargetPlace::Mapped, PeerCopy::Read) => {
                user::copy(&there.data, here);
                Ok(())
            }
            _ => self.copy_unmapped(rank, direction, here, (there, 0)),
        }
    }

    /// Copies between `here` and the packed bytes of `there` from `from` on, which are not mapped
    /// here.
    fn copy_unmapped(
        &self,
        rank: u32,
        direction: PeerCopy,
        here: &Data,
        (there, from): (&TargetData, u64),
    ) -> Result<()> {
        match &there.place {
            TargetPlace::Mapped => Ok(()),
            TargetPlace::Process(process) => {
                peer_memory::copy(*process, direction, here, (&there.data, from))
                    .map_err(|error| self.unreachable(rank, direction, &error))
            }
            TargetPlace::OtherHost(region) => {
                self.copy_remote(region, direction, here, (&there.data, from))
            }
        }
    }

    #[cold]
    fn unreachable(
        &self,
        rank: u32,
        direction: PeerCopy,
        error: &std::io::Error,
    ) -> crate::error::Error {
        let verb = match direction {
            PeerCopy::Read => "read",
            PeerCopy::Write => "write",
        };
        let text = format!(
            "lets rank {} not {verb} memory of rank {rank}: {error}",
            self.rank()
        );
        self.error(Class::Other, text)
    }

    /// `MPI_Accumulate`, `MPI_Get_accumulate` and `MPI_Fetch_and_op`.
    ///
    /// # Errors
    /// As for `put`; `Op` for an operation that is not predefined or not defined for the datatype,
    /// `Type` for elements of several kinds.
    pub fn accumulate(&self, args: &AccumulateArgs<'_>) -> Result<()> {
        let Op::Predefined(op) = args.op else {
            let text =
                "is accessed with an operation of the program; only predefined ones are allowed";
            return Err(self.error(Class::Op, text));
        };
        let target = &args.target;
        let Some(rank) = self.accessible(target.rank)? else {
            return Ok(());
        };
        let there = self.target_data(rank, target.disp, target.count, target.datatype)?;
        let len = there.data.len;
        let result = args.result.as_ref().map(Part::data).transpose()?;
        if let Some(result) = &result {
            self.check_lengths(result.len, len)?;
        }
        if let Some(origin) = &args.origin {
            self.check_lengths(origin.datatype.size().saturating_mul(origin.count), len)?;
        }
        if len == 0 {
            return Ok(());
        }
        args.op.check(target.datatype)?;
        let natural = self.natural(target.datatype, len)?;
        if let Some(origin) = &args.origin {
            self.check_leaf(origin, &natural)?;
        }
        let operands = match (op, &args.origin) {
            (PredefinedOp::NoOp, _) | (_, None) => None,
            (_, Some(origin)) => Some((origin, origin.data()?)),
        };
        let _stripes = self.hold_stripes(rank, there.first, there.len)?;
        // What is combined piece by piece is read only once.
        let is_combined = operands.is_some() && op != PredefinedOp::Replace;
        let is_mapped = matches!(there.place, TargetPlace::Mapped);
        if let Some(result) = result.as_ref().filter(|_| is_mapped || !is_combined) {
            self.copy(rank, PeerCopy::Read, result, &there)?;
        }
        match (operands, &there.place) {
            (None, _) => Ok(()),
            (Some((_, data)), _) if op == PredefinedOp::Replace => {
                self.copy(rank, PeerCopy::Write, &data, &there)
            }
            (Some((origin, data)), TargetPlace::Mapped) => {
                self.combine_mapped(op, (origin, &data), (target, &there), &natural)
            }
            (Some((origin, data)), TargetPlace::Process(_) | TargetPlace::OtherHost(_)) => {
                let into = (rank, &there, result.as_ref());
                self.combine_unmapped(op, (origin, &data), into, &natural)
            }
        }
    }

    /// Combines elements of a predefined datatype that lie in an array with as many of the target,
    /// if its memory is near: the short way of `MPI_Accumulate`. `false`: nothing was done.
    ///
    /// # Errors
    /// `Op` for an operation that is not defined for the datatype, `ProcFailed`.
    pub fn accumulate_near(
        &self,
        origin: UserMem,
        (rank, disp, elements): (i32, i64, (u64, &Datatype)),
        op: &Op,
    ) -> Result<bool> {
        let (count, datatype) = elements;
        let len = datatype.size().saturating_mul(count);
        let (Some((there, at)), Op::Predefined(kind)) = (self.near(rank, disp, len), op) else {
            return Ok(false);
        };
        op.check(datatype)?;
        let _stripes = self.hold_stripes(rank as u32, at, len)?;
        match kind {
            PredefinedOp::NoOp => {}
            PredefinedOp::Replace => there.copy_from(0, origin, 0, len as usize),
            _ => apply_leaves(*kind, (origin, there), elements, DerivedSide::Target),
        }
        Ok(true)
    }

    /// Fetches one element of a predefined datatype and combines it with `origin`, if the target's
    /// memory is near: the short way of `MPI_Fetch_and_op`. `false`: nothing was done.
    ///
    /// # Errors
    /// `Op` for an operation that is not defined for the datatype, `ProcFailed`.
    pub fn fetch_near(
        &self,
        (origin, result): (UserMem, UserMem),
        (rank, disp, datatype): (i32, i64, &Datatype),
        op: &Op,
    ) -> Result<bool> {
        let size = datatype.size();
        let (Some((there, at)), Op::Predefined(kind)) = (self.near(rank, disp, size), op) else {
            return Ok(false);
        };
        op.check(datatype)?;
        let stripes = self.hold_stripes(rank as u32, at, size)?;
        result.copy_from(0, there, 0, size as usize);
        match kind {
            PredefinedOp::NoOp => {}
            PredefinedOp::Replace => there.copy_from(0, origin, 0, size as usize),
            _ => apply_leaves(*kind, (origin, there), (1, datatype), DerivedSide::Target),
        }
        drop(stripes);
        Ok(true)
    }

    /// Combines operands with elements that this process may load and store.
    fn combine_mapped(
        &self,
        op: PredefinedOp,
        (origin, data): (&Part<'_>, &Data),
        (target, there): (&TargetPart<'_>, &TargetData),
        natural: &Natural,
    ) -> Result<()> {
        let into = (target.count, target.datatype);
        if origin.datatype.is_predefined() {
            let side = DerivedSide::Target;
            apply_leaves(op, (origin.mem, there.mem), into, side);
        } else if target.datatype.is_predefined() {
            let from = (origin.count, origin.datatype);
            apply_leaves(op, (origin.mem, there.mem), from, DerivedSide::Source);
        } else {
            let room = natural
                .scratch(natural.count)
                .ok_or_else(|| self.no_room())?;
            user::copy(data, &natural.datatype.data(room.mem(), natural.count)?);
            apply_leaves(op, (room.mem(), there.mem), into, DerivedSide::Target);
        }
        Ok(())
    }

    /// Combines operands with elements of another process, piece by piece in a buffer, and copies
    /// their old values to `result`.
    fn combine_unmapped(
        &self,
        op: PredefinedOp,
        (origin, data): (&Part<'_>, &Data),
        (rank, there, result): (u32, &TargetData, Option<&Data>),
        natural: &Natural,
    ) -> Result<()> {
        let (extent, size) = (natural.leaf.extent(), natural.datatype.size());
        let is_array = origin.datatype.is_predefined();
        // What is packed is an array only of elements without padding.
        let whole = match is_array || extent == size {
            true => None,
            false => {
                let room = natural
                    .scratch(natural.count)
                    .ok_or_else(|| self.no_room())?;
                user::copy(data, &natural.data(room.mem(), natural.count)?);
                Some(room)
            }
        };
        let piece = natural.count.min((PIECE_BYTES / extent).max(1));
        let room = natural.scratch(2 * piece).ok_or_else(|| self.no_room())?;
        let packed = room.mem().offset((piece * extent) as isize);
        let mut done = 0;
        while done < natural.count {
            let count = piece.min(natural.count - done);
            let here = natural.data(room.mem(), count)?;
            let copy = |direction| self.copy_unmapped(rank, direction, &here, (there, done * size));
            copy(PeerCopy::Read)?;
            if let Some(result) = result {
                let old = Packed::new(packed, (count * size) as usize);
                here.pack_to(0, old);
                result.unpack_from(done * size, old);
            }
            let operands = match &whole {
                Some(whole) => whole.mem().offset((done * extent) as isize),
                None if is_array => origin.mem.offset((done * extent) as isize),
                None => {
                    let len = (count * size) as usize;
                    data.pack_to(done * size, Packed::new(packed, len));
                    packed
                }
            };
            let elements = (count, natural.datatype);
            apply_leaves(op, (operands, room.mem()), elements, DerivedSide::Target);
            copy(PeerCopy::Write)?;
            done += count;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn no_room(&self) -> crate::error::Error {
        self.error(Class::NoMem, "has no memory left for an accumulate")
    }

    /// Returns the elements of an accumulate of `len` bytes as an array of one predefined datatype.
    fn natural(&self, datatype: &Datatype, len: u64) -> Result<Natural> {
        let leaf = datatype.leaf().ok_or_else(|| {
            let text =
                format!("is accessed with {datatype}; an accumulate takes elements of one kind");
            self.error(Class::Type, text)
        })?;
        let found = match datatype.code() {
            Some(code) => Datatype::predefined_ref(code),
            None => Datatype::predefined_of(leaf),
        };
        let datatype = found.ok_or_else(|| {
            self.error(
                Class::Intern,
                format!("knows no predefined datatype for {datatype}"),
            )
        })?;
        Ok(Natural {
            leaf,
            datatype,
            count: len / datatype.size().max(1),
        })
    }

    /// Refuses operands of another kind than the elements.
    fn check_leaf(&self, origin: &Part<'_>, natural: &Natural) -> Result<()> {
        if origin.datatype.leaf() == Some(natural.leaf) {
            return Ok(());
        }
        let text = format!(
            "is accessed with {} at the origin and elements of {} at the target",
            origin.datatype, natural.datatype
        );
        Err(self.error(Class::Type, text))
    }

    /// `MPI_Compare_and_swap`.
    ///
    /// # Errors
    /// As for `put`; `Type` for a datatype that cannot be compared.
    pub fn compare_and_swap(
        &self,
        (origin, compare, result): (UserMem, UserMem, UserMem),
        target: &TargetPart<'_>,
    ) -> Result<()> {
        let Some(rank) = self.accessible(target.rank)? else {
            return Ok(());
        };
        let size = target.datatype.size();
        if !is_comparable(target.datatype) {
            let text = format!(
                "cannot compare and swap {}: only integers, logicals and bytes",
                target.datatype
            );
            return Err(self.error(Class::Type, text));
        }
        let (mut old, mut want) = ([0; 16], [0; 16]);
        let (old, want) = (&mut old[..size as usize], &mut want[..size as usize]);
        compare.read(0, want);
        if let Some((there, at)) = self.near(target.rank, target.disp, size) {
            let stripes = self.hold_stripes(rank, at, size)?;
            there.read(0, old);
            if old == want {
                there.copy_from(0, origin, 0, size as usize);
            }
            drop(stripes);
            result.write(0, old);
            return Ok(());
        }
        let there = self.target_data(rank, target.disp, 1, target.datatype)?;
        let room = Scratch::new(16).ok_or_else(|| self.no_room())?;
        let here = Data::contiguous(room.mem(), size);
        let _stripes = self.hold_stripes(rank, there.first, there.len)?;
        self.copy(rank, PeerCopy::Read, &here, &there)?;
        room.mem().read(0, old);
        if old == want {
            self.copy(
                rank,
                PeerCopy::Write,
                &Data::contiguous(origin, size),
                &there,
            )?;
        }
        result.write(0, old);
        Ok(())
    }
}
