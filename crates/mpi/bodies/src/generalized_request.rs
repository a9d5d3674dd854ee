//! Generalised requests: operations that the program itself completes.

use crate::abi::Abi;
use crate::c_args::{Buf, Callback, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::callback::GeneralizedCallbacks;
use crate::handle::*;
use crate::init_state;
use crate::light_request::is_light;
use crate::request::{remove_entry, request_entry, return_generalized};
use garonne_mpi::error::Class;
use garonne_mpi::request::Completion;
use garonne_mpi::request::generalized;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) fn grequest_start<A: Abi>(
    _: CallId,
    query: Callback<A>,
    free: Callback<A>,
    cancel: Callback<A>,
    extra: Buf,
    out: Ptr<MPI_Request>,
) -> Result<()> {
    let operations = GeneralizedCallbacks {
        query,
        free,
        cancel,
        extra,
        is_fortran: AtomicBool::new(false),
    };
    let (general, request) = generalized::start(&init_state::process()?, Box::new(operations));
    return_generalized(request, general, out)
}

pub(crate) fn grequest_complete(_: CallId, handle: MPI_Request) -> Result<()> {
    let general = if is_light(handle) {
        None
    } else {
        request_entry(handle)?.general.clone()
    };
    let general = general
        .ok_or_else(|| CallError::new(Class::Request, "this request is not a generalized one"))?;
    let completed = general.complete();
    remove_if_over(handle, &general);
    Ok(completed?)
}

/// `MPI_Request_free`. Until the operation is completed, too, the program's copies of the handle
/// are good for `MPI_Grequest_complete` (MPI 5.0, section 13.2).
pub(crate) fn free(
    handle: MPI_Request,
    operation: &Arc<generalized::GeneralizedRequest>,
) -> Result<()> {
    let operation = operation.clone();
    let freed = operation.free();
    remove_if_over(handle, &operation);
    Ok(freed?)
}

fn remove_if_over(handle: MPI_Request, operation: &generalized::GeneralizedRequest) {
    if operation.is_over() {
        remove_entry(handle);
    }
}
