//! Attributes cached on communicators and datatypes, and the predefined ones.

use crate::abi::{Abi, HandleKind};
use crate::c_args::{Buf, Callback, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::callback::AttributeCallbacks;
use crate::constants::*;
use crate::errhandler::last_used_code;
use crate::handle::*;
use crate::init_state;
use crate::objects::{comm, datatype};
use crate::rank_context::RankContext;
use garonne_mpi::attr::{AttrKind, AttrTarget, Attrs};
use garonne_mpi::datatype::Datatype;
use garonne_mpi::error::Class;
use garonne_mpi::process::PredefinedKey;
use std::any::Any;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

fn create<A: Abi>(
    kind: AttrKind,
    functions: AttributeCallbacks<A>,
    keyval: Ptr<c_int>,
) -> Result<()> {
    keyval.set(
        init_state::process()?
            .keyvals
            .create(kind, Arc::new(functions))?,
    )
}

fn free(kind: AttrKind, keyval: Ptr<c_int>) -> Result<()> {
    init_state::process()?.keyvals.free(kind, keyval.get()?)?;
    keyval.set(MPI_KEYVAL_INVALID)
}

pub(crate) fn comm_create_keyval<A: Abi>(
    _: CallId,
    copy: Callback<A>,
    delete: Callback<A>,
    keyval: Ptr<c_int>,
    extra: Buf,
) -> Result<()> {
    create(
        AttrKind::Comm,
        AttributeCallbacks {
            kind: HandleKind::Comm,
            copy,
            delete,
            extra,
        },
        keyval,
    )
}

pub(crate) fn type_create_keyval<A: Abi>(
    _: CallId,
    copy: Callback<A>,
    delete: Callback<A>,
    keyval: Ptr<c_int>,
    extra: Buf,
) -> Result<()> {
    create(
        AttrKind::Datatype,
        AttributeCallbacks {
            kind: HandleKind::Datatype,
            copy,
            delete,
            extra,
        },
        keyval,
    )
}

pub(crate) fn win_create_keyval<A: Abi>(
    _: CallId,
    copy: Callback<A>,
    delete: Callback<A>,
    keyval: Ptr<c_int>,
    extra: Buf,
) -> Result<()> {
    create(
        AttrKind::Window,
        AttributeCallbacks {
            kind: HandleKind::Win,
            copy,
            delete,
            extra,
        },
        keyval,
    )
}

pub(crate) fn comm_free_keyval(_: CallId, keyval: Ptr<c_int>) -> Result<()> {
    free(AttrKind::Comm, keyval)
}

pub(crate) fn type_free_keyval(_: CallId, keyval: Ptr<c_int>) -> Result<()> {
    free(AttrKind::Datatype, keyval)
}

pub(crate) fn win_free_keyval(_: CallId, keyval: Ptr<c_int>) -> Result<()> {
    free(AttrKind::Window, keyval)
}

pub(crate) fn comm_set_attr(_: CallId, on: MPI_Comm, keyval: c_int, value: Buf) -> Result<()> {
    let comm = comm(on)?;
    changeable(keyval)?;
    Ok(comm.set_attr(keyval, value.addr())?)
}

pub(crate) fn comm_get_attr(
    _: CallId,
    on: MPI_Comm,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let found = match predefined(keyval) {
        Some(found) => found,
        None => comm.get_attr(keyval)?,
    };
    answer(found, value, flag)
}

pub(crate) fn comm_delete_attr(_: CallId, on: MPI_Comm, keyval: c_int) -> Result<()> {
    let comm = comm(on)?;
    changeable(keyval)?;
    Ok(comm.delete_attr(keyval)?)
}

pub(crate) fn keyval_create<A: Abi>(
    _: CallId,
    copy: Callback<A>,
    delete: Callback<A>,
    keyval: Ptr<c_int>,
    extra: Buf,
) -> Result<()> {
    create(
        AttrKind::Comm,
        AttributeCallbacks {
            kind: HandleKind::Comm,
            copy,
            delete,
            extra,
        },
        keyval,
    )
}

pub(crate) fn keyval_free(_: CallId, keyval: Ptr<c_int>) -> Result<()> {
    free(AttrKind::Comm, keyval)
}

pub(crate) fn attr_put(call: CallId, on: MPI_Comm, keyval: c_int, value: Buf) -> Result<()> {
    comm_set_attr(call, on, keyval, value)
}

pub(crate) fn attr_get(
    call: CallId,
    on: MPI_Comm,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
) -> Result<()> {
    comm_get_attr(call, on, keyval, value, flag)
}

pub(crate) fn attr_delete(call: CallId, on: MPI_Comm, keyval: c_int) -> Result<()> {
    comm_delete_attr(call, on, keyval)
}

fn answer(found: Option<usize>, value: Buf, flag: Ptr<c_int>) -> Result<()> {
    if let Some(found) = found {
        value.store(found)?;
    }
    flag.set(found.is_some().into())
}

/// Memory of a rank for the values of predefined attributes, which programs get as addresses.
pub(crate) struct PredefinedValues([AtomicI32; 7]);

impl PredefinedValues {
    /// All zero.
    pub const fn new() -> Self {
        Self([const { AtomicI32::new(0) }; 7])
    }
}

/// The predefined attributes of communicators, as C has them: the address of an `int`. `None` for
/// other keys.
fn predefined(keyval: c_int) -> Option<Option<usize>> {
    let key = PredefinedKey::from_number(keyval)?;
    let place = &RankContext::current().predefined_attrs.0[(keyval - MPI_TAG_UB) as usize];
    let value = match key {
        PredefinedKey::LastUsedCode => Some(last_used_code()),
        _ => init_state::find_process().and_then(|process| process.predefined_attr(key)),
    };
    let Some(value) = value else {
        return Some(None);
    };
    place.store(value, Ordering::Relaxed);
    Some(Some(place.as_ptr().expose_provenance()))
}

fn changeable(keyval: c_int) -> Result<()> {
    if predefined(keyval).is_none() {
        return Ok(());
    }
    Err(CallError::new(
        Class::Keyval,
        format!("attribute {keyval} is predefined and cannot be changed"),
    ))
}

/// The attributes of a datatype.
pub(crate) fn attrs(of: &Datatype) -> Result<&Attrs> {
    let slot = of
        .slot()
        .get_or_init(|| Arc::new(Attrs::default()) as Arc<dyn Any + Send + Sync>);
    slot.downcast_ref()
        .ok_or_else(|| CallError::new(Class::Intern, "the slot of a datatype holds no attributes"))
}

fn target(on: MPI_Datatype, keyval: c_int) -> AttrTarget {
    AttrTarget {
        kind: AttrKind::Datatype,
        owner: on.0,
        keyval,
    }
}

pub(crate) fn type_set_attr(_: CallId, on: MPI_Datatype, keyval: c_int, value: Buf) -> Result<()> {
    Ok(attrs(datatype(on)?)?.set(
        &init_state::process()?.keyvals,
        target(on, keyval),
        value.addr(),
    )?)
}

pub(crate) fn type_get_attr(
    _: CallId,
    on: MPI_Datatype,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
) -> Result<()> {
    let found =
        attrs(datatype(on)?)?.get(&init_state::process()?.keyvals, AttrKind::Datatype, keyval)?;
    answer(found, value, flag)
}

pub(crate) fn type_delete_attr(_: CallId, on: MPI_Datatype, keyval: c_int) -> Result<()> {
    Ok(attrs(datatype(on)?)?.delete(&init_state::process()?.keyvals, target(on, keyval))?)
}
