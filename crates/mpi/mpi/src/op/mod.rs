//! Reduction operations (MPI 5.0, section 6.9): which are legal on which data, and applying them.
//!
//! Owns the handle [`Op`], the table of predefined operations and the trait behind which the C edge
//! puts operations of the program. Applying computes `inout = in OP inout` for each element, in
//! MPI's order. Predefined operations run over slices of native numbers that the compiler
//! vectorises; what the machine has no arithmetic for (`long double`, quadruple and half precision)
//! goes through software floating point.

mod kernels;
mod minloc_maxloc;
mod number;

#[cfg(test)]
mod tests;

use crate::datatype::basic_type::BasicType;
use crate::datatype::{Datatype, LeafRun, LeafType};
use crate::error::{Class, Error, Result};
use garonne_sync::user::UserMem;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Predefined operations with their codes in the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum PredefinedOp {
    Sum = 0x21,
    Min = 0x22,
    Max = 0x23,
    Prod = 0x24,
    Band = 0x28,
    Bor = 0x29,
    Bxor = 0x2a,
    Land = 0x30,
    Lor = 0x31,
    Lxor = 0x32,
    Minloc = 0x38,
    Maxloc = 0x39,
    Replace = 0x3c,
    NoOp = 0x3d,
}

impl PredefinedOp {
    const ALL: [PredefinedOp; 14] = {
        use PredefinedOp::*;
        [
            Sum, Min, Max, Prod, Band, Bor, Bxor, Land, Lor, Lxor, Minloc, Maxloc, Replace, NoOp,
        ]
    };

    /// The operation of a code.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u16 == code)
    }

    /// The standard's name.
    pub fn name(self) -> &'static str {
        match self {
            PredefinedOp::Sum => "MPI_SUM",
            PredefinedOp::Min => "MPI_MIN",
            PredefinedOp::Max => "MPI_MAX",
            PredefinedOp::Prod => "MPI_PROD",
            PredefinedOp::Band => "MPI_BAND",
            PredefinedOp::Bor => "MPI_BOR",
            PredefinedOp::Bxor => "MPI_BXOR",
            PredefinedOp::Land => "MPI_LAND",
            PredefinedOp::Lor => "MPI_LOR",
            PredefinedOp::Lxor => "MPI_LXOR",
            PredefinedOp::Minloc => "MPI_MINLOC",
            PredefinedOp::Maxloc => "MPI_MAXLOC",
            PredefinedOp::Replace => "MPI_REPLACE",
            PredefinedOp::NoOp => "MPI_NO_OP",
        }
    }

    /// Returns whether it is defined on elements of a kind (MPI 5.0, section 6.9.2). Characters
    /// count as the integers that they are in C, beyond the standard: other libraries let programs
    /// have that.
    pub fn is_legal_on(self, leaf: LeafType) -> bool {
        use PredefinedOp::*;
        let is_integer = |b: BasicType| b.is_integer() || b == BasicType::Char;
        match (self, leaf) {
            (Replace | NoOp, _) => true,
            (Minloc | Maxloc, leaf) => matches!(leaf, LeafType::Pair { .. }),
            (_, LeafType::Pair { .. }) => false,
            (Sum | Prod, LeafType::Basic(b)) => {
                is_integer(b) || b.is_real() || b.real_part().is_some()
            }
            (Min | Max, LeafType::Basic(b)) => is_integer(b) || b.is_real(),
            (Band | Bor | Bxor, LeafType::Basic(b)) => is_integer(b) || b == BasicType::Byte,
            (Land | Lor | Lxor, LeafType::Basic(b)) => is_integer(b) || b.is_logical(),
        }
    }
}

/// An operation of the program. Called on user threads inside MPI calls only.
pub trait UserOp: Send + Sync {
    /// Computes `inoutvec = invec OP inoutvec` for `count` elements of `datatype`.
    fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, datatype: &Datatype);
}

/// A handle of an operation. Cheap to clone.
#[derive(Clone)]
pub enum Op {
    /// One of the standard's.
    Predefined(PredefinedOp),
    /// The program's.
    User {
        /// The program's function.
        function: Arc<dyn UserOp>,
        /// Whether the program said that operands may be exchanged.
        commutes: Commutativity,
    },
}

/// Commutativity of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commutativity {
    /// The operands may be exchanged.
    Yes,
    /// Ranks' operands must be combined in the order of ranks.
    No,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Op::Predefined(a), Op::Predefined(b)) => a == b,
            (Op::User { function: a, .. }, Op::User { function: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Op {
    /// The predefined operation of a code of the standard ABI.
    pub fn predefined(code: u16) -> Option<Op> {
        PredefinedOp::from_code(code).map(Op::Predefined)
    }

    /// An operation of the program.
    pub fn user(function: Arc<dyn UserOp>, commutes: Commutativity) -> Op {
        Op::User { function, commutes }
    }

    /// A name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Predefined(op) => op.name(),
            Op::User { .. } => "a user-defined operation",
        }
    }

    /// Returns whether operands may be exchanged.
    pub fn is_commutative(&self) -> bool {
        match self {
            Op::Predefined(op) => !matches!(op, PredefinedOp::Replace | PredefinedOp::NoOp),
            Op::User { commutes, .. } => *commutes == Commutativity::Yes,
        }
    }

    /// Returns whether applying it runs code of the program, which must happen on a user thread.
    pub fn is_user(&self) -> bool {
        matches!(self, Op::User { .. })
    }

    /// Returns whether it may be used in collective reductions; `MPI_REPLACE` and `MPI_NO_OP` are
    /// for one-sided calls.
    pub fn is_for_reductions(&self) -> bool {
        !matches!(
            self,
            Op::Predefined(PredefinedOp::Replace | PredefinedOp::NoOp)
        )
    }

    /// Refuses data that the operation is not defined on.
    ///
    /// # Errors
    /// `Op`, naming operation and datatype.
    pub fn check(&self, datatype: &Datatype) -> Result<()> {
        let Op::Predefined(op) = self else {
            return Ok(());
        };
        match datatype.leaf() {
            Some(leaf) if op.is_legal_on(leaf) => Ok(()),
            None if datatype.size() == 0 || !self.is_for_reductions() => Ok(()),
            _ => Err(self.illegal(datatype)),
        }
    }

    #[cold]
    fn illegal(&self, datatype: &Datatype) -> Error {
        Error::new(
            Class::Op,
            format!("{} is not defined on {datatype}", self.name()),
        )
    }

    /// Computes `inout = in OP inout` for `count` elements of `datatype` at `src` (in) and `dst`
    /// (inout).
    ///
    /// # Errors
    /// As [`Op::check`].
    pub fn apply(&self, src: UserMem, dst: UserMem, count: u64, datatype: &Datatype) -> Result<()> {
        match self {
            Op::User { function, .. } => function.call(src, dst, count, datatype),
            Op::Predefined(op) => {
                self.check(datatype)?;
                apply_predefined(*op, (src, dst), count, datatype);
            }
        }
        Ok(())
    }

    /// Applies the operation to slices that hold whole elements of a predefined datatype back to
    /// back; the last need not have its padding. For predefined operations only.
    ///
    /// # Errors
    /// As [`Op::check`]; `Op` for a user-defined operation, `Count` for slices of different
    /// lengths, `Type` for a datatype that is not predefined.
    pub fn apply_bytes(&self, src: &[u8], dst: &mut [u8], datatype: &Datatype) -> Result<()> {
        let Op::Predefined(op) = self else {
            return Err(self.illegal(datatype));
        };
        self.check(datatype)?;
        if src.len() != dst.len() {
            let text = format!("operands of {} and {} bytes", src.len(), dst.len());
            return Err(Error::new(Class::Count, text));
        }
        match datatype.leaf() {
            Some(leaf) if datatype.is_predefined() => {
                kernels::combine(*op, leaf, src, dst);
                Ok(())
            }
            _ => Err(Error::new(
                Class::Type,
                format!("{datatype} is not predefined"),
            )),
        }
    }
}

fn apply_predefined(
    op: PredefinedOp,
    operands: (UserMem, UserMem),
    count: u64,
    datatype: &Datatype,
) {
    if count == 0 || op == PredefinedOp::NoOp {
        return;
    }
    if let (true, Some(leaf)) = (datatype.is_predefined(), datatype.leaf()) {
        return apply_run(op, operands, LeafRun { at: 0, leaf, count });
    }
    let _ = datatype.visit_leaves(count, &mut |run| {
        apply_run(op, operands, run);
        ControlFlow::Continue(())
    });
}

/// Side of an application whose elements have a derived datatype; those of the other side lie as an
/// array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DerivedSide {
    /// The operands.
    Source,
    /// The elements that are changed.
    Target,
}

/// Applies to `count` elements of a datatype on one side, and an array of the datatype's one kind
/// of elements on the other side.
pub(crate) fn apply_leaves(
    op: PredefinedOp,
    (src, dst): (UserMem, UserMem),
    (count, datatype): (u64, &Datatype),
    derived: DerivedSide,
) {
    if datatype.is_predefined() {
        return apply_predefined(op, (src, dst), count, datatype);
    }
    let mut taken = 0;
    let _ = datatype.visit_leaves(count, &mut |run| {
        let moved = (taken - run.at) as isize;
        let operands = match derived {
            DerivedSide::Source => (src, dst.offset(moved)),
            DerivedSide::Target => (src.offset(moved), dst),
        };
        apply_run(op, operands, run);
        taken += (run.count * run.leaf.extent()) as i64;
        ControlFlow::Continue(())
    });
}

/// Applies to consecutive elements of one kind.
fn apply_run(op: PredefinedOp, (src, dst): (UserMem, UserMem), run: LeafRun) {
    let LeafRun { at, leaf, count } = run;
    // The padding after the last element need not exist.
    let len = (count - 1) * leaf.extent() + leaf.end();
    let (at, len) = (at as isize, len as usize);
    src.with(at, len, |input| {
        dst.with_mut(at, len, |inout| kernels::combine(op, leaf, input, inout))
    });
}
