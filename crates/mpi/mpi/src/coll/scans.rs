//! Prefix reductions: `MPI_Scan` and `MPI_Exscan`.
//!
//! As in [`super::reductions`], whose checks and statements they share.

use super::algo::scan::{self, Own};
use super::call_signature::Statement;
use super::call_tag::Kind;
use super::choose::{Algorithm, choose};
use super::plan::Plan;
use super::reductions::{OpOn, ask, check, for_rounds, is_for_boards, said};
use super::sealed::Planned;
use super::shm_large::{self, Large};
use super::shm_nonblocking::shm_op::Errand;
use super::shm_small::{self, Small};
use super::shm_sync::Table;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Result};
use crate::op::Op;
use garonne_sync::user::UserMem;

/// `MPI_Scan`.
pub struct Scan<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<UserMem>,
    /// The result.
    pub recv: UserMem,
    /// Elements.
    pub count: u64,
    /// Their datatype.
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
    /// Their datatype.
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
    fn check_as(&self, comm: &Comm, kind: Kind) -> Result<()> {
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

    fn plan_as<P: Plan>(&self, p: &mut P, own: Own) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let fold = OpOn::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        match choose(Kind::Scan, ask(p, &r)) {
            Algorithm::Chain { segment } => {
                let elements = segment / r.shape().size().max(1);
                scan::chain(p, &r, own, elements)
            }
            _ => scan::recursive_doubling(p, &r, own),
        }
    }
}

impl Scan<'_> {
    fn meet_as(&self, table: &Table<'_>, own: Own) -> Result<bool> {
        let fold = OpOn::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        Ok(is_for_boards(&r, self.datatype)
            && (shm_small::meet(table, &Small::Scan(&r, own))?
                || shm_large::meet(table, &Large::Scan(&r, own))?))
    }
}

impl Planned for Scan<'_> {
    fn kind(&self) -> Kind {
        Kind::Scan
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.check_as(comm, Kind::Scan)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        self.plan_as(p, Own::Included)
    }

    fn statement(&self, _: &Comm) -> Statement {
        said(Kind::Scan, (self.op, self.datatype), self.count)
    }

    fn meet(&self, table: &Table<'_>) -> Result<bool> {
        self.meet_as(table, Own::Included)
    }

    fn errand(&self, _: &Comm) -> Option<Errand<'_>> {
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), self.count)?;
        Some(Errand::Scan(combined, Own::Included))
    }
}

impl Planned for Exscan<'_> {
    fn kind(&self) -> Kind {
        Kind::Exscan
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.as_scan().check_as(comm, Kind::Exscan)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        self.as_scan().plan_as(p, Own::Excluded)
    }

    fn statement(&self, _: &Comm) -> Statement {
        said(Kind::Exscan, (self.op, self.datatype), self.count)
    }

    fn meet(&self, table: &Table<'_>) -> Result<bool> {
        self.as_scan().meet_as(table, Own::Excluded)
    }

    fn errand(&self, _: &Comm) -> Option<Errand<'_>> {
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), self.count)?;
        Some(Errand::Scan(combined, Own::Excluded))
    }
}
