//! Prefix reductions: `MPI_Scan` and `MPI_Exscan`.
//!
//! As in [`super::reductions`], whose checks and statements they share.

use super::call_signature::CallSignature;
use super::reductions::{TypedOp, check, for_rounds, said, suits_segment};
use super::sealed::Planned;
use super::shm_large::{self, LargeOp};
use super::shm_nonblocking::shm_op::ShmOp;
use super::shm_small::{self, SmallOp};
use super::shm_sync::ShmSync;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Result};
use crate::op::Op;
use garonne_coll::algo::scan::{self, ScanKind};
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::choose::{Algorithm, ChoiceInput, choose};
use garonne_coll::plan::Plan;
use garonne_sync::user::UserMem;

/// `MPI_Scan`.
pub struct Scan<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<UserMem>,
    /// The result.
    pub recv: UserMem,
    /// Elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
}

/// `MPI_Exscan`.
pub struct Exscan<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<UserMem>,
    /// The result, which rank 0 does not get.
    pub recv: UserMem,
    /// Elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
}

impl<'a> Exscan<'a> {
    fn as_scan(&self) -> Scan<'a> {
        let Self {
            send,
            recv,
            count,
            datatype,
            op,
        } = *self;
        Scan {
            send,
            recv,
            count,
            datatype,
            op,
        }
    }
}

impl Scan<'_> {
    fn check_as(&self, comm: &Comm, kind: CollectiveKind) -> Result<()> {
        if comm.is_inter() {
            return Err(comm.error(
                Class::Comm,
                format!("is an intercommunicator, on which {kind} is not defined"),
            ));
        }
        check(
            comm,
            kind,
            (self.op, self.datatype),
            self.count,
            self.send.is_none(),
        )
    }

    fn plan_as<P: Plan>(&self, p: &mut P, own: ScanKind) -> Result<(), P::Error> {
        if self.count == 0 {
            return Ok(());
        }
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        match choose(CollectiveKind::Scan, ChoiceInput::of_reduction(p, &r)) {
            Algorithm::Chain { segment } => {
                let elements = segment / r.shape().size().max(1);
                scan::chain(p, &r, own, elements)
            }
            _ => scan::recursive_doubling(p, &r, own),
        }
    }
}

impl Scan<'_> {
    fn meet_as(&self, sync: &ShmSync<'_>, own: ScanKind) -> Result<bool> {
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        Ok(suits_segment(&r, self.datatype)
            && (shm_small::run(sync, &SmallOp::Scan(&r, own))?
                || shm_large::run(sync, &LargeOp::Scan(&r, own))?))
    }
}

impl Planned for Scan<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Scan
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.check_as(comm, CollectiveKind::Scan)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        self.plan_as(p, ScanKind::Inclusive)
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        said(CollectiveKind::Scan, (self.op, self.datatype), self.count)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        self.meet_as(sync, ScanKind::Inclusive)
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), self.count)?;
        Some(ShmOp::Scan(combined, ScanKind::Inclusive))
    }
}

impl Planned for Exscan<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Exscan
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.as_scan().check_as(comm, CollectiveKind::Exscan)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        self.as_scan().plan_as(p, ScanKind::Exclusive)
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        said(CollectiveKind::Exscan, (self.op, self.datatype), self.count)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        self.as_scan().meet_as(sync, ScanKind::Exclusive)
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), self.count)?;
        Some(ShmOp::Scan(combined, ScanKind::Exclusive))
    }
}
