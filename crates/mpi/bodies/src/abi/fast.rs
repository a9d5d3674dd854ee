//! Fast paths of the point-to-point calls, for the wrappers of other ABIs.
//!
//! A fast path takes the arguments as they are. It converts neither the communicator, by whose
//! handle in its ABI the table of peers is searched, nor ranks and tags that mean the same in every
//! ABI. Special ranks are never found in the table, so the general path converts them.

use super::convert::HandleConversion;
use super::{Abi, CallSite, HandleKind, Ptr};
use crate::c_args::Buf;
use crate::call::{CallId, ErrorObject, Result, return_code};
use crate::constants::{MPI_REQUEST_NULL, MPI_SUCCESS};
use crate::fast_path;
use crate::handle::{MPI_Comm, MPI_Request};
use crate::last_call;
use crate::light_request::{self, RequestArray};
use crate::status::StatusLayout;
use crate::trace_calls::needs_check;
use garonne_engine::api::Request;
use std::cell::Cell;
use std::ffi::c_int;

pub use crate::fast_path::{CommKey, ElementCount, PlainType, int_key, pointer_key};

/// What fast paths need of an ABI.
pub trait FastAbi: HandleConversion<<Self as Abi>::Handle> {
    /// Returns what the fast paths need of a datatype. `None` for one that they do not know.
    fn plain_type(datatype: Self::Handle) -> Option<PlainType>;
    /// Returns the key of a communicator.
    fn comm_key(comm: Self::Handle) -> CommKey;
    /// Returns the standard ABI's word of a request. A predefined one may become a word that names
    /// nothing.
    #[inline(always)]
    fn request_word(request: Self::Handle) -> usize {
        Self::to_native(HandleKind::Request, request)
    }
    /// Returns the standard ABI's tag for a receive. A tag that means nothing becomes one that
    /// means nothing.
    fn recv_tag(tag: c_int) -> c_int;
}

/// Fast path of `MPI_Send`. Returns the error code, or `None` without any effect if the general
/// path must run. `call` is the function's call number.
#[inline(always)]
pub fn send<A: FastAbi>(
    (call, site): (u16, CallSite),
    buf: Buf,
    (count, datatype): (impl ElementCount, A::Handle),
    envelope: (c_int, c_int),
    comm: A::Handle,
) -> Option<c_int> {
    last_call::record_site(site);
    let data = (count, A::plain_type(datatype)?);
    fast_path::send_plain((CallId(call), site), buf, data, envelope, A::comm_key(comm))
}

/// `MPI_Isend`, as [`send`].
#[inline(always)]
pub fn isend<A: FastAbi>(
    call: (u16, CallSite),
    buf: Buf,
    data: (impl ElementCount, A::Handle),
    envelope: (c_int, c_int),
    (comm, request): (A::Handle, Ptr<A::Handle>),
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    let sent = send::<A>(call, buf, data, envelope, comm)?;
    request.set_if(A::handle(HandleKind::Request, light_request::DONE.0));
    Some(sent)
}

/// `MPI_Recv`, as [`send`].
#[inline(always)]
pub fn recv<A: FastAbi>(
    (call, site): (u16, CallSite),
    buf: Buf,
    (count, datatype): (impl ElementCount, A::Handle),
    (source, tag): (c_int, c_int),
    (comm, status): (A::Handle, Ptr<impl StatusLayout>),
) -> Option<c_int> {
    last_call::record_site(site);
    let data = (count, A::plain_type(datatype)?);
    let envelope = (source, A::recv_tag(tag));
    let place = (A::comm_key(comm), status);
    fast_path::recv_plain((CallId(call), site), buf, data, envelope, place)
}

/// `MPI_Irecv`, as [`send`].
#[inline(always)]
pub fn irecv<A: FastAbi>(
    (call, site): (u16, CallSite),
    buf: Buf,
    (count, datatype): (impl ElementCount, A::Handle),
    (source, tag): (c_int, c_int),
    (comm, request): (A::Handle, Ptr<A::Handle>),
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    last_call::record_site(site);
    let data = (count, A::plain_type(datatype)?);
    let envelope = (source, A::recv_tag(tag));
    let (call, key) = (CallId(call), A::comm_key(comm));
    match fast_path::irecv_plain((call, site), buf, data, envelope, key)? {
        Ok(handle) => request.set_if(A::handle(HandleKind::Request, handle.0)),
        Err(name) => {
            site.note();
            return Some(return_posted::<A>(call, name, comm, request));
        }
    }
    Some(MPI_SUCCESS)
}

/// Gives a table entry to a receive whose name does not fit into a handle.
#[cold]
fn return_posted<A: FastAbi>(
    call: CallId,
    name: Request,
    comm: A::Handle,
    request: Ptr<A::Handle>,
) -> c_int {
    let comm = MPI_Comm(A::to_native(HandleKind::Comm, comm));
    let place = Cell::new(MPI_REQUEST_NULL);
    let named = light_request::return_posted(comm, name, Ptr::lent(&place));
    request.set_if(A::handle(HandleKind::Request, place.get().0));
    A::error(return_code(call, ErrorObject::Comm(comm), named))
}

/// Array of requests in another ABI.
#[derive(Clone, Copy)]
struct ForeignRequests<A: FastAbi> {
    requests: Ptr<A::Handle>,
    /// `MPI_REQUEST_NULL` of the ABI.
    null: A::Handle,
}

impl<A: FastAbi> RequestArray for ForeignRequests<A> {
    #[inline(always)]
    fn at(self, at: usize) -> Result<MPI_Request> {
        Ok(MPI_Request(A::request_word(self.requests.at(at)?)))
    }

    #[inline(always)]
    fn clear(self, at: usize) -> Result<()> {
        self.requests.put(at, self.null)
    }

    #[inline(always)]
    fn was_complete(self, at: usize) -> Result<bool> {
        let done = A::handle(HandleKind::Request, light_request::DONE.0);
        let handle = self.requests.at(at)?;
        Ok(handle == done || handle == self.null)
    }
}

/// `MPI_Waitall` in an ABI.
type Waitall<A> = extern "C-unwind" fn(
    c_int,
    Ptr<<A as Abi>::Handle>,
    Ptr<<A as Abi>::Status>,
    CallSite,
) -> c_int;

/// `MPI_Waitall`. Light requests at the beginning are read and written in place; `general`
/// completes the rest. Returns the error code.
#[inline(always)]
pub fn waitall<A: FastAbi>(
    (call, site): (u16, CallSite),
    count: c_int,
    requests: Ptr<A::Handle>,
    statuses: Ptr<A::Status>,
    general: Waitall<A>,
) -> c_int {
    let call = CallId(call);
    site.note();
    last_call::record(call, site);
    let Some(total) = usize::try_from(count).ok().filter(|_| !needs_check()) else {
        return general(count, requests, statuses, site);
    };
    let given = match statuses.addr() <= A::Status::IGNORED {
        true => Buf::from_addr(0).typed(),
        false => statuses,
    };
    let array = ForeignRequests::<A> {
        requests,
        null: A::handle(HandleKind::Request, MPI_REQUEST_NULL.0),
    };
    match light_request::wait_all(total, array, given) {
        Ok(seen) if seen == total => MPI_SUCCESS,
        Ok(seen) => {
            let rest = match given.is_null() {
                true => statuses,
                false => statuses.element(seen),
            };
            general(count - seen as c_int, requests.element(seen), rest, site)
        }
        Err(error) => A::error(return_code(call, ErrorObject::None, Err(error))),
    }
}

/// Lets the fast paths of an ABI find a pair that the general path has found. `native` is the
/// communicator's handle in the standard ABI, `rank` a rank as the program passed it.
#[inline]
pub fn learn<A: FastAbi>(comm: A::Handle, native: MPI_Comm, rank: c_int) {
    if rank >= 0 {
        fast_path::learn_foreign(native, rank, A::comm_key(comm));
    }
}
