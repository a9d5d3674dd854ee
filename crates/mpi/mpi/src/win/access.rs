//! Put, get and accumulates.
//!
//! The origin moves and combines bytes itself. Accumulates take the stripes of the target's bytes
//! in the target's control block, whichever way they use. So all accumulates on an element exclude
//! each other.

use super::Window;
use super::target::{TargetData, TargetPlace};
use crate::datatype::basic_type::BasicType;
use crate::datatype::{Datatype, LeafType};
use crate::error::{Class, Result};
use crate::op::{Op, PredefinedOp, apply_leaves};
use garonne_sync::peer_memory::{self, PeerCopy};
use garonne_sync::user::{self, Data, Scratch, UserMem};

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

/// Elements of one predefined datatype, as they lie in an array.
struct Natural {
    leaf: LeafType,
    datatype: &'static Datatype,
    count: u64,
}

impl Natural {
    /// Memory for the elements.
    fn scratch(&self) -> Option<Scratch> {
        let len = self.leaf.extent().checked_mul(self.count)?;
        Scratch::new(usize::try_from(len).ok()?)
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
        match (there.place, direction) {
            (TargetPlace::Here, PeerCopy::Write) => {
                user::copy(here, &there.data);
            }
            (TargetPlace::Here, PeerCopy::Read) => {
                user::copy(&there.data, here);
            }
            (TargetPlace::Process(process), _) => {
                peer_memory::copy(process, direction, here, &there.data)
                    .map_err(|error| self.unreachable(rank, direction, &error))?;
            }
        }
        Ok(())
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
        args.op.check(target.datatype)?;
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
        let natural = self.natural(target.datatype, len)?;
        let (operands, _kept) = match &args.origin {
            Some(origin) => self.operands(origin, &natural)?,
            None => (UserMem::null(), None),
        };
        let control = &self.0.members[rank as usize].control;
        let _stripes = control.lock_stripes(self.rank(), there.first, there.len);
        match there.place {
            TargetPlace::Here => {
                if let Some(result) = &result {
                    user::copy(&there.data, result);
                }
                match op {
                    PredefinedOp::NoOp => {}
                    PredefinedOp::Replace => {
                        user::copy(
                            &natural.datatype.data(operands, natural.count)?,
                            &there.data,
                        );
                    }
                    _ => apply_leaves(op, operands, (there.mem, target.count), target.datatype),
                }
                Ok(())
            }
            TargetPlace::Process(_) => {
                self.update_afar(rank, op, (operands, &natural), (&there, result.as_ref()))
            }
        }
    }

    /// Combines in a buffer what was read from another process, and writes it back.
    fn update_afar(
        &self,
        rank: u32,
        op: PredefinedOp,
        (operands, natural): (UserMem, &Natural),
        (there, result): (&TargetData, Option<&Data>),
    ) -> Result<()> {
        if op == PredefinedOp::Replace && result.is_none() {
            let here = natural.datatype.data(operands, natural.count)?;
            return self.copy(rank, PeerCopy::Write, &here, there);
        }
        let room = natural.scratch().ok_or_else(|| self.no_room())?;
        let here = natural.datatype.data(room.mem(), natural.count)?;
        self.copy(rank, PeerCopy::Read, &here, there)?;
        if let Some(result) = result {
            user::copy(&here, result);
        }
        match op {
            PredefinedOp::NoOp => return Ok(()),
            PredefinedOp::Replace => {
                let new = natural.datatype.data(operands, natural.count)?;
                return self.copy(rank, PeerCopy::Write, &new, there);
            }
            _ => apply_leaves(op, operands, (room.mem(), natural.count), natural.datatype),
        }
        self.copy(rank, PeerCopy::Write, &here, there)
    }

    #[cold]
    fn no_room(&self) -> crate::error::Error {
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

    /// Returns the operands as an array, and the memory that is kept for them if they are copied.
    fn operands(&self, origin: &Part<'_>, natural: &Natural) -> Result<(UserMem, Option<Scratch>)> {
        if origin.datatype.leaf() != Some(natural.leaf) {
            let text = format!(
                "is accessed with {} at the origin and elements of {} at the target",
                origin.datatype, natural.datatype
            );
            return Err(self.error(Class::Type, text));
        }
        if origin.datatype.is_predefined() {
            return Ok((origin.mem, None));
        }
        let room = natural.scratch().ok_or_else(|| self.no_room())?;
        let array = natural.datatype.data(room.mem(), natural.count)?;
        user::copy(&origin.data()?, &array);
        Ok((room.mem(), Some(room)))
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
        let there = self.target_data(rank, target.disp, 1, target.datatype)?;
        let (mut old, mut want) = ([0; 16], [0; 16]);
        let (old, want) = (&mut old[..size as usize], &mut want[..size as usize]);
        compare.read(0, want);
        let room = Scratch::new(16).ok_or_else(|| self.no_room())?;
        let here = Data::contiguous(room.mem(), size);
        let control = &self.0.members[rank as usize].control;
        let _stripes = control.lock_stripes(self.rank(), there.first, there.len);
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
