//! Datatypes as the algorithms of collectives see them.

use crate::datatype::Datatype;
use crate::error::Result;
use garonne_coll::typed_buffer::ElementLayout;
use garonne_sync::user::{Data, UserMem};

impl ElementLayout for Datatype {
    fn size(&self) -> u64 {
        Datatype::size(self)
    }

    fn extent(&self) -> i64 {
        Datatype::extent(self)
    }

    fn true_bounds(&self) -> (i64, i64) {
        // A user's operator may copy whole structures, padding included.
        let (lb, end) = (self.true_lb(), self.true_lb() + self.true_extent());
        (lb.min(self.lb()), end.max(self.ub()))
    }

    fn data(&self, mem: UserMem, count: u64) -> Data {
        // Calls check their largest run of elements once (`check_count`); what algorithms ask for
        // is never more.
        Datatype::data(self, mem, count).unwrap_or_else(|_| Data::empty())
    }
}

/// Refuses a number of elements that does not fit the address space.
pub fn check_count(datatype: &Datatype, count: u64) -> Result<()> {
    if count > 1 {
        datatype.data(UserMem::null(), count).map(drop)
    } else {
        Ok(())
    }
}
