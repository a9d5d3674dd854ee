//! The tool interface (MPI_T) of a library that offers no control variables, performance variables,
//! events or categories: the counts are zero, so every index, name and handle is refused with the
//! code the standard names. None of these functions raises an error handler.

#![allow(unused_variables, reason = "most arguments are refused unread")]
#![allow(clippy::too_many_arguments, reason = "the standard has that many")]

use crate::c_args::{Buf, Callback, Ptr, StrIn, StrOut};
use crate::call::CallId;
use crate::constants::*;
use crate::handle::*;
use crate::rank_context::RankContext;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// State of a rank's tool interface.
pub(crate) struct ToolInterface {
    /// Calls of `MPI_T_init_thread` not yet matched by `MPI_T_finalize`.
    users: AtomicU32,
    /// Performance-variable sessions.
    sessions: HandleTable<()>,
}

impl ToolInterface {
    /// Not initialised. For the argument see [`HandleTable::new`].
    pub const fn new(first_generation: u32) -> Self {
        Self {
            users: AtomicU32::new(0),
            sessions: HandleTable::new(first_generation),
        }
    }
}

fn interface() -> &'static ToolInterface {
    &RankContext::current().tool_interface
}

/// `code` between init and finalize of the interface.
fn if_initialized(code: c_int) -> c_int {
    if interface().users.load(Ordering::Relaxed) == 0 {
        MPI_T_ERR_NOT_INITIALIZED
    } else {
        code
    }
}

/// Stores zero: the number of things this library offers.
fn write_zero(count: Ptr<c_int>) -> c_int {
    if if_initialized(MPI_SUCCESS) != MPI_SUCCESS {
        return MPI_T_ERR_NOT_INITIALIZED;
    }
    count.set(0).map_or(MPI_T_ERR_INVALID, |()| MPI_SUCCESS)
}

/// `code` for a known session, else the complaint about the session.
fn in_session(session: MPI_T_pvar_session, code: c_int) -> c_int {
    if_initialized(if interface().sessions.get(session).is_some() {
        code
    } else {
        MPI_T_ERR_INVALID_SESSION
    })
}

pub(crate) fn t_init_thread(call: CallId, required: c_int, provided: Ptr<c_int>) -> c_int {
    if provided.set(MPI_THREAD_MULTIPLE).is_err() {
        return MPI_T_ERR_INVALID;
    }
    interface().users.fetch_add(1, Ordering::Relaxed);
    MPI_SUCCESS
}

pub(crate) fn t_finalize(call: CallId) -> c_int {
    let left = interface()
        .users
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| {
            users.checked_sub(1)
        });
    if left.is_ok() {
        MPI_SUCCESS
    } else {
        MPI_T_ERR_NOT_INITIALIZED
    }
}

pub(crate) fn t_pvar_session_create(call: CallId, session: Ptr<MPI_T_pvar_session>) -> c_int {
    if if_initialized(MPI_SUCCESS) != MPI_SUCCESS {
        return MPI_T_ERR_NOT_INITIALIZED;
    }
    match interface().sessions.insert(()) {
        Some(handle) => session
            .set(handle)
            .map_or(MPI_T_ERR_INVALID, |()| MPI_SUCCESS),
        None => MPI_T_ERR_OUT_OF_SESSIONS,
    }
}

pub(crate) fn t_pvar_session_free(call: CallId, session: Ptr<MPI_T_pvar_session>) -> c_int {
    let freed = session
        .get()
        .ok()
        .and_then(|handle| interface().sessions.remove(handle));
    if freed.is_none() {
        return if_initialized(MPI_T_ERR_INVALID_SESSION);
    }
    session
        .set(MPI_T_pvar_session(0))
        .map_or(MPI_T_ERR_INVALID, |()| if_initialized(MPI_SUCCESS))
}

/// `MPI_T_PVAR_ALL_HANDLES` is right even when there are none.
fn all_or_none(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
    in_session(
        session,
        if handle.0 == 1 {
            MPI_SUCCESS
        } else {
            MPI_T_ERR_INVALID_HANDLE
        },
    )
}

pub(crate) fn t_pvar_start(
    call: CallId,
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
) -> c_int {
    all_or_none(session, handle)
}

pub(crate) fn t_pvar_stop(
    call: CallId,
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
) -> c_int {
    all_or_none(session, handle)
}

pub(crate) fn t_pvar_reset(
    call: CallId,
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
) -> c_int {
    all_or_none(session, handle)
}

pub(crate) fn t_pvar_handle_alloc(
    call: CallId,
    session: MPI_T_pvar_session,
    pvar_index: c_int,
    obj_handle: Buf,
    handle: Ptr<MPI_T_pvar_handle>,
    count: Ptr<c_int>,
) -> c_int {
    in_session(session, MPI_T_ERR_INVALID_INDEX)
}

/// Functions that only count.
macro_rules! counting {
    ($($name:ident;)*) => {$(
        pub(crate) fn $name(call: CallId, count: Ptr<c_int>) -> c_int {
            write_zero(count)
        }
    )*};
}

/// Defines functions that refuse their arguments.
macro_rules! refusing {
    ($code:ident: $($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        pub(crate) fn $name(call: CallId, $($arg: $ty),*) -> c_int {
            if_initialized($code)
        }
    )*};
}

counting! {
    t_category_changed;
    t_category_get_num;
    t_cvar_get_num;
    t_event_get_num;
    t_pvar_get_num;
    t_source_get_num;
}

refusing! { MPI_T_ERR_INVALID_INDEX:
    t_category_get_categories(cat_index: c_int, len: c_int, indices: Ptr<c_int>);
    t_category_get_cvars(cat_index: c_int, len: c_int, indices: Ptr<c_int>);
    t_category_get_events(cat_index: c_int, len: c_int, indices: Ptr<c_int>);
    t_category_get_info(cat_index: c_int, name: StrOut, name_len: Ptr<c_int>, desc: StrOut, desc_len: Ptr<c_int>, num_cvars: Ptr<c_int>, num_pvars: Ptr<c_int>, num_categories: Ptr<c_int>);
    t_category_get_num_events(cat_index: c_int, num_events: Ptr<c_int>);
    t_category_get_pvars(cat_index: c_int, len: c_int, indices: Ptr<c_int>);
    t_cvar_get_info(cvar_index: c_int, name: StrOut, name_len: Ptr<c_int>, verbosity: Ptr<c_int>, datatype: Ptr<MPI_Datatype>, enumtype: Ptr<MPI_T_enum>, desc: StrOut, desc_len: Ptr<c_int>, bind: Ptr<c_int>, scope: Ptr<c_int>);
    t_cvar_handle_alloc(cvar_index: c_int, obj_handle: Buf, handle: Ptr<MPI_T_cvar_handle>, count: Ptr<c_int>);
    t_event_get_info(event_index: c_int, name: StrOut, name_len: Ptr<c_int>, verbosity: Ptr<c_int>, array_of_datatypes: Ptr<MPI_Datatype>, array_of_displacements: Ptr<MPI_Aint>, num_elements: Ptr<c_int>, enumtype: Ptr<MPI_T_enum>, info: Ptr<MPI_Info>, desc: StrOut, desc_len: Ptr<c_int>, bind: Ptr<c_int>);
    t_event_handle_alloc(event_index: c_int, obj_handle: Buf, info: MPI_Info, event_registration: Ptr<MPI_T_event_registration>);
    t_pvar_get_info(pvar_index: c_int, name: StrOut, name_len: Ptr<c_int>, verbosity: Ptr<c_int>, var_class: Ptr<c_int>, datatype: Ptr<MPI_Datatype>, enumtype: Ptr<MPI_T_enum>, desc: StrOut, desc_len: Ptr<c_int>, bind: Ptr<c_int>, readonly: Ptr<c_int>, continuous: Ptr<c_int>, atomic: Ptr<c_int>);
    t_source_get_info(source_index: c_int, name: StrOut, name_len: Ptr<c_int>, desc: StrOut, desc_len: Ptr<c_int>, ordering: Ptr<c_int>, ticks_per_second: Ptr<MPI_Count>, max_ticks: Ptr<MPI_Count>, info: Ptr<MPI_Info>);
    t_source_get_timestamp(source_index: c_int, timestamp: Ptr<MPI_Count>);
}

refusing! { MPI_T_ERR_INVALID_NAME:
    t_category_get_index(name: StrIn, cat_index: Ptr<c_int>);
    t_cvar_get_index(name: StrIn, cvar_index: Ptr<c_int>);
    t_event_get_index(name: StrIn, event_index: Ptr<c_int>);
    t_pvar_get_index(name: StrIn, var_class: c_int, pvar_index: Ptr<c_int>);
}

refusing! { MPI_T_ERR_INVALID_HANDLE:
    t_cvar_handle_free(handle: Ptr<MPI_T_cvar_handle>);
    t_cvar_read(handle: MPI_T_cvar_handle, buf: Buf);
    t_cvar_write(handle: MPI_T_cvar_handle, buf: Buf);
    t_enum_get_info(enumtype: MPI_T_enum, num: Ptr<c_int>, name: StrOut, name_len: Ptr<c_int>);
    t_enum_get_item(enumtype: MPI_T_enum, indx: c_int, value: Ptr<c_int>, name: StrOut, name_len: Ptr<c_int>);
    t_event_callback_get_info(event_registration: MPI_T_event_registration, cb_safety: c_int, info_used: Ptr<MPI_Info>);
    t_event_callback_set_info(event_registration: MPI_T_event_registration, cb_safety: c_int, info: MPI_Info);
    t_event_copy(event_instance: MPI_T_event_instance, buffer: Buf);
    t_event_get_source(event_instance: MPI_T_event_instance, source_index: Ptr<c_int>);
    t_event_get_timestamp(event_instance: MPI_T_event_instance, event_timestamp: Ptr<MPI_Count>);
    t_event_handle_free(event_registration: MPI_T_event_registration, user_data: Buf, free_cb_function: Callback);
    t_event_handle_get_info(event_registration: MPI_T_event_registration, info_used: Ptr<MPI_Info>);
    t_event_handle_set_info(event_registration: MPI_T_event_registration, info: MPI_Info);
    t_event_read(event_instance: MPI_T_event_instance, element_index: c_int, buffer: Buf);
    t_event_register_callback(event_registration: MPI_T_event_registration, cb_safety: c_int, info: MPI_Info, user_data: Buf, event_cb_function: Callback);
    t_event_set_dropped_handler(event_registration: MPI_T_event_registration, dropped_cb_function: Callback);
    t_pvar_handle_free(session: MPI_T_pvar_session, handle: Ptr<MPI_T_pvar_handle>);
    t_pvar_read(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: Buf);
    t_pvar_readreset(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: Buf);
    t_pvar_write(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, buf: Buf);
}
