//! Attributes cached on communicators and datatypes, and the predefined ones.

use crate::abi::{Abi, HandleKind, OtherAbi};
use crate::c_args::{Buf, Callback, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::callback::AttributeCallbacks;
use crate::constants::*;
use crate::errhandler::last_used_code;
use crate::handle::*;
use crate::init_state;
use crate::objects::{comm, datatype};
use crate::rank_context::RankContext;
use crate::win::window;
use garonne_mpi::attr::{AttrKind, AttrTarget, Attrs};
use garonne_mpi::datatype::Datatype;
use garonne_mpi::error::Class;
use garonne_mpi::process::PredefinedKey;
use garonne_mpi::win::WindowKey;
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
            convention: OnceLock::new(),
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
            convention: OnceLock::new(),
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
            convention: OnceLock::new(),
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

fn changeable_of_window(keyval: c_int) -> Result<()> {
    if WindowKey::from_number(keyval).is_none() {
        return Ok(());
    }
    Err(unchangeable(keyval))
}

pub(crate) fn win_set_attr(_: CallId, on: MPI_Win, keyval: c_int, value: Buf) -> Result<()> {
    let window = window(on)?;
    changeable_of_window(keyval)?;
    Ok(window.set_attr(keyval, value.addr())?)
}

pub(crate) fn win_get_attr(
    _: CallId,
    on: MPI_Win,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
) -> Result<()> {
    let window = window(on)?;
    let found = match WindowKey::from_number(keyval) {
        Some(key) => Some(window.predefined_attr(key)),
        None => window.get_attr(keyval)?,
    };
    answer(found, value, flag)
}

pub(crate) fn win_delete_attr(_: CallId, on: MPI_Win, keyval: c_int) -> Result<()> {
    let window = window(on)?;
    changeable_of_window(keyval)?;
    Ok(window.delete_attr(keyval)?)
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
            convention: OnceLock::new(),
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

/// One value for each predefined attribute of communicators.
type Values = [AtomicI32; 7];

/// Memory of a rank for the values of predefined attributes, which programs get as addresses.
pub(crate) struct PredefinedValues {
    standard: Values,
    /// Values in the numbers of other ABIs.
    converted: [Values; OtherAbi::COUNT],
}

impl PredefinedValues {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            standard: [const { AtomicI32::new(0) }; 7],
            converted: [const { [const { AtomicI32::new(0) }; 7] }; OtherAbi::COUNT],
        }
    }
}

/// Returns the address of a predefined attribute's value in the numbers of another ABI. `native` is
/// the address that the standard ABI gives for `keyval`, or anything for another key.
pub(crate) fn converted_value(
    abi: OtherAbi,
    keyval: c_int,
    native: usize,
    convert: fn(c_int) -> c_int,
) -> usize {
    let values = &RankContext::current().predefined_attrs;
    let place = usize::try_from(keyval - MPI_TAG_UB).ok();
    let Some(place) = place.filter(|place| *place < values.standard.len()) else {
        return native;
    };
    let value = values.standard[place].load(Ordering::Relaxed);
    let converted = &values.converted[abi as usize][place];
    converted.store(convert(value), Ordering::Relaxed);
    converted.as_ptr().expose_provenance()
}

/// The predefined attributes of communicators, as C has them: the address of an `int`. `None` for
/// other keys.
fn predefined(keyval: c_int) -> Option<Option<usize>> {
    let key = PredefinedKey::from_number(keyval)?;
    let place = &RankContext::current().predefined_attrs.standard[(keyval - MPI_TAG_UB) as usize];
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
    Err(unchangeable(keyval))
}

#[cold]
fn unchangeable(keyval: c_int) -> CallError {
    CallError::new(
        Class::Keyval,
        format!("attribute {keyval} is predefined and cannot be changed"),
    )
}

/// Attributes and names that a rank's program attached to predefined datatypes. The datatypes
/// themselves are constants, which all ranks of a process share.
pub(crate) struct PredefinedTypes(Mutex<BTreeMap<u16, Attached>>);

/// Attributes and name that the program attached to one datatype.
#[derive(Default)]
struct Attached {
    attrs: Arc<Attrs>,
    name: Option<Arc<str>>,
}

impl PredefinedTypes {
    /// Nothing attached.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, Attached>> {
        // No code of the program's runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_attached(&self, code: u16) -> bool {
        self.lock().contains_key(&code)
    }

    fn attached<T>(&self, code: u16, f: impl FnOnce(&mut Attached) -> T) -> T {
        let mut all = self.lock();
        f(all.entry(code).or_default())
    }
}

/// The attributes of a datatype.
pub(crate) fn attrs(of: &Datatype) -> Result<Arc<Attrs>> {
    if let Some(code) = of.code() {
        let types = &RankContext::current().predefined_types;
        return Ok(types.attached(code, |of| of.attrs.clone()));
    }
    let slot = of
        .slot()
        .get_or_init(|| Arc::new(Attrs::default()) as Arc<dyn Any + Send + Sync>);
    slot.clone()
        .downcast()
        .map_err(|_| CallError::new(Class::Intern, "the slot of a datatype holds no attributes"))
}

/// The attributes of a datatype; `None` if nothing was ever attached to it.
pub(crate) fn find_attrs(of: &Datatype) -> Result<Option<Arc<Attrs>>> {
    let had_some = match of.code() {
        Some(code) => RankContext::current().predefined_types.is_attached(code),
        None => of.slot().get().is_some(),
    };
    had_some.then(|| attrs(of)).transpose()
}

/// The name of a datatype.
pub(crate) fn type_name(of: &Datatype) -> Arc<str> {
    let types = &RankContext::current().predefined_types;
    let given = of
        .code()
        .and_then(|code| types.attached(code, |of| of.name.clone()));
    given.unwrap_or_else(|| of.name())
}

/// Gives a datatype a name.
pub(crate) fn set_type_name(of: &Datatype, name: &str) {
    let types = &RankContext::current().predefined_types;
    match of.code() {
        Some(code) => types.attached(code, |of| of.name = Some(Arc::from(name))),
        None => of.set_name(name),
    }
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
