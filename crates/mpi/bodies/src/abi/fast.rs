//! Fast paths of the point-to-point calls, for the wrappers of other ABIs.
//!
//! A fast path takes the arguments as they are. It converts neither the communicator, by whose
//! handle in its ABI the table of peers is searched, nor ranks and tags that mean the same in every
//! ABI. Special ranks are never found in the table, so the general path converts them.

use super::convert::HandleConversion;
use super::{Abi, CallSite, HandleKind, Ptr};
use crate::c_args::Buf;
use crate::call::{CallId, ErrorObject, return_code};
use crate::constants::{MPI_REQUEST_NULL, MPI_SUCCESS};
use crate::fast_path::{self, CommKey, foreign_key};
use crate::handle::MPI_Comm;
use crate::last_call;
use crate::light_request;
use crate::status::StatusLayout;
use garonne_engine::api::Request;
use std::cell::Cell;
use std::ffi::c_int;

pub use crate::fast_path::{ElementCount, PlainType};

/// What fast paths need of an ABI.
pub trait FastAbi: HandleConversion<<Self as Abi>::Handle> {
    /// Returns what the fast paths need of a datatype.
    fn plain_type(datatype: Self::Handle) -> PlainType;
    /// Returns a word for a communicator that no other handle of this ABI has. Its lower 31 bits
    /// are the word of the standard ABI unless the communicator is predefined.
    fn comm_word(comm: Self::Handle) -> u32;
    /// Returns the standard ABI's tag for a receive. A tag that means nothing becomes one that
    /// means nothing.
    fn recv_tag(tag: c_int) -> c_int;
}

#[inline(always)]
fn key<A: FastAbi>(comm: A::Handle) -> CommKey {
    foreign_key(A::comm_word(comm))
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
    let data = (count, A::plain_type(datatype));
    fast_path::send_plain((CallId(call), site), buf, data, envelope, key::<A>(comm))
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
    let data = (count, A::plain_type(datatype));
    let envelope = (source, A::recv_tag(tag));
    let place = (key::<A>(comm), status);
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
    let data = (count, A::plain_type(datatype));
    let envelope = (source, A::recv_tag(tag));
    let (call, key) = (CallId(call), key::<A>(comm));
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

/// Lets the fast paths of an ABI find a pair that the general path has found. `native` is the
/// communicator's handle in the standard ABI, `rank` a rank as the program passed it.
#[inline]
pub fn learn<A: FastAbi>(comm: A::Handle, native: MPI_Comm, rank: c_int) {
    if rank >= 0 {
        fast_path::learn_foreign(native, rank, key::<A>(comm));
    }
}
