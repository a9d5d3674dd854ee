//! Partitioned point-to-point communication (MPI 5.0 chapter 5).
//!
//! `MPI_Psend_init` announces its operation to the receiver, and `MPI_Precv_init` matches the
//! announcements of its source and tag in order ([`matching`]). The receiver answers with the
//! number of *pieces* that each round has. A piece consists of whole partitions of the sender and
//! whole elements of the receiver. Each piece is a message with a tag of its own, sent as soon as
//! its partitions are ready, and received in place.
//!
//! A round is what one `MPI_Start` begins. Messages of one tag arrive in order, so rounds do not
//! mix.

pub(crate) mod matching;
mod receive;
mod send;
mod tag_space;
#[cfg(test)]
mod tests;

pub use receive::PartitionedReceive;
pub use send::PartitionedSend;

use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::request::Request;
use garonne_engine::api::CallOrigin;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// Arguments of `MPI_Psend_init` and `MPI_Precv_init`.
#[derive(Clone)]
pub struct PartitionedArgs {
    /// Address of the buffer.
    pub mem: UserMem,
    /// Number of partitions.
    pub partitions: u32,
    /// Elements of each partition.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: Datatype,
    /// Rank of the other side, or `MPI_PROC_NULL`.
    pub rank: i32,
    /// Tag.
    pub tag: i32,
    /// The program's call.
    pub origin: CallOrigin,
}

impl PartitionedArgs {
    fn elements(&self) -> u64 {
        self.count * u64::from(self.partitions)
    }

    fn bytes(&self) -> u64 {
        self.elements() * self.datatype.size()
    }

    /// Refuses a wrong tag, and a buffer that does not fit the address space.
    fn check(&self, comm: &Comm) -> Result<()> {
        comm.check_tag(self.tag)?;
        let elements = self.count.checked_mul(self.partitions.into());
        let Some(elements) = elements else {
            let (count, partitions) = (self.count, self.partitions);
            let text = format!("{partitions} partitions of {count} elements exceed 64 bits");
            return Err(Error::new(Class::Count, text));
        };
        self.datatype.data(UserMem::null(), elements).map(drop)
    }

    /// The elements of piece `index` of `pieces`, of which there is one at least.
    fn piece(&self, pieces: u32, index: u32) -> Result<Data> {
        let count = self.elements() / u64::from(pieces);
        // `check` found that the whole fits the address space.
        let first = (count * u64::from(index)) as i64;
        let offset = first.wrapping_mul(self.datatype.extent());
        self.datatype.data(self.mem.offset(offset as isize), count)
    }
}

/// Returns the number of pieces of a round: the most that consist of whole partitions of the
/// sender and whole elements of the receiver.
fn pieces(partitions: u32, elements: u64) -> u32 {
    let (mut a, mut b) = (u64::from(partitions), elements);
    if a == 0 {
        return 0;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // A divisor of `partitions`, or that number itself.
    a as u32
}

/// A partitioned operation behind a request.
#[derive(Clone)]
pub enum PartitionedOperation {
    /// `MPI_Psend_init`.
    Send(Arc<PartitionedSend>),
    /// `MPI_Precv_init`.
    Receive(Arc<PartitionedReceive>),
}

impl PartitionedOperation {
    /// The communicator of the operation.
    pub fn comm(&self) -> &Comm {
        match self {
            PartitionedOperation::Send(send) => send.comm(),
            PartitionedOperation::Receive(receive) => receive.comm(),
        }
    }

    /// `MPI_Pready` and its forms: the sender has written these partitions.
    ///
    /// # Errors
    /// `MPI_ERR_REQUEST` for a receive or an inactive request. `MPI_ERR_ARG` for a partition that
    /// does not exist or that is ready already; then none of them is marked.
    pub fn ready(&self, partitions: impl Iterator<Item = i32>) -> Result<()> {
        match self {
            PartitionedOperation::Send(send) => send.ready(partitions),
            PartitionedOperation::Receive(receive) => Err(receive.comm().error(
                Class::Request,
                "carries this request, which receives: only a sender marks partitions as ready",
            )),
        }
    }

    /// `MPI_Parrived`: returns whether the receive buffer has this partition.
    ///
    /// # Errors
    /// `MPI_ERR_REQUEST` for a send, `MPI_ERR_ARG` for a partition that does not exist.
    pub fn arrived(&self, partition: i32) -> Result<bool> {
        match self {
            PartitionedOperation::Receive(receive) => receive.arrived(partition),
            PartitionedOperation::Send(send) => Err(send.comm().error(
                Class::Request,
                "carries this request, which sends: only a receiver asks what arrived",
            )),
        }
    }
}

impl Comm {
    /// `MPI_Psend_init`: returns an inactive request and its operation.
    ///
    /// # Errors
    /// As `MPI_Send_init`.
    pub fn psend_init(&self, args: PartitionedArgs) -> Result<(Request, PartitionedOperation)> {
        args.check(self)?;
        let send = PartitionedSend::new(self, args)?;
        let round = send.clone();
        let start = Box::new(move || Ok(round.start()));
        let request = Request::persistent(self, start);
        Ok((request, PartitionedOperation::Send(send)))
    }

    /// `MPI_Precv_init`: returns an inactive request and its operation.
    ///
    /// # Errors
    /// As `MPI_Recv_init`; wildcards are errors here.
    pub fn precv_init(&self, args: PartitionedArgs) -> Result<(Request, PartitionedOperation)> {
        args.check(self)?;
        let receive = PartitionedReceive::new(self, args)?;
        let round = receive.clone();
        let start = Box::new(move || Ok(round.start()));
        let request = Request::persistent(self, start);
        Ok((request, PartitionedOperation::Receive(receive)))
    }
}

fn bad_partition(comm: &Comm, partition: i32, partitions: u32) -> Error {
    comm.error(
        Class::Arg,
        format!("carries a request of {partitions} partitions: {partition} is none of them"),
    )
}
