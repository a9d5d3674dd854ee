//! Error handlers: raising a fault, classes and codes that the program adds, error strings.

use crate::abi::{Abi, HandleKind, MPICH_THROWS, OPENMPI_THROWS};
use crate::c_args::{Callback, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, ErrorObject, Result, unimplemented_string};
use crate::callback::ErrhandlerFunction;
use crate::comm_contexts::RevivedHandle;
use crate::constants::*;
use crate::file::{file, find_file};
use crate::handle::*;
use crate::objects::{self, comm, errhandler, errhandlers, find_comm, publish};
use crate::rank_context::RankContext;
use crate::session::{find_session, session};
use crate::win::{find_window, window};
use crate::{
    call_site, callback_conventions, cpp_exceptions, init_state, optional_checks, recent_errors,
    trace_calls,
};
use garonne_job::settings;
use garonne_mpi::errhandler::{Errhandler, ErrhandlerKind, UserHandler};
use garonne_mpi::error::{Class, Error};
use std::collections::BTreeMap;
use std::ffi::c_int;
// No code of the program's runs under these locks.
use garonne_sync::mutex::lock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Error handlers and error codes of a rank that belong to no object.
pub(crate) struct ErrorHandlers {
    /// The error handler of `MPI_FILE_NULL`. New files inherit it, and failures to open a file are
    /// raised on it.
    files: Mutex<Errhandler>,
    /// Held while a handle of an error handler is returned once more or freed.
    returned: Mutex<()>,
    /// Classes and codes that the program added.
    added: Mutex<AddedErrorCodes>,
}

impl ErrorHandlers {
    /// Initial state: no codes added, errors of files returned.
    pub const fn new() -> Self {
        Self {
            files: Mutex::new(Errhandler::Return),
            returned: Mutex::new(()),
            added: Mutex::new(AddedErrorCodes {
                codes: BTreeMap::new(),
                last: MPI_ERR_LASTCODE,
            }),
        }
    }
}

fn state() -> &'static ErrorHandlers {
    &RankContext::current().error_handlers
}

/// Raises `fault` on the error handler of `holder` and returns the error code of the call. Throws
/// instead if a callback of the program threw.
#[cold]
#[inline(never)]
pub(crate) fn raise(call: CallId, holder: ErrorObject, fault: CallError) -> c_int {
    let code = invoke_handler(call, holder, fault);
    if cpp_exceptions::is_pending() {
        trace_calls::record_exit_by_exception(call);
        cpp_exceptions::rethrow();
    }
    code
}

/// Invokes the error handler. All values that belong to the failure are dropped when this returns.
#[inline(never)]
fn invoke_handler(call: CallId, holder: ErrorObject, fault: CallError) -> c_int {
    if cpp_exceptions::is_pending() {
        return MPI_ERR_OTHER;
    }
    let site = crate::entry::call_site();
    let (handler, object) = handler_for(holder, &fault);
    match handler {
        Errhandler::Return => recent_errors::record(call, site, fault.error()),
        Errhandler::User(user) => {
            let code = recent_errors::record(call, site, fault.error());
            let _shown = fault.comm().map(RevivedHandle::new);
            user.callback.call(object, code);
            code
        }
        Errhandler::Cxx(word) => {
            let code = recent_errors::record(call, site, fault.error());
            let _shown = fault.comm().map(RevivedHandle::new);
            if word == OPENMPI_THROWS {
                let kind = match holder {
                    _ if fault.comm().is_some() => HandleKind::Comm,
                    ErrorObject::Win(_) => HandleKind::Win,
                    ErrorObject::File(_) => HandleKind::File,
                    _ => HandleKind::Comm,
                };
                callback_conventions::throw_openmpi(kind, object, code);
            }
            code
        }
        Errhandler::Fatal | Errhandler::Abort => fatal(call, site, fault.error()),
    }
}

/// Returns the error handler for an error, and the handle of its object.
fn handler_for(holder: ErrorObject, fault: &CallError) -> (Errhandler, usize) {
    if let Some(comm) = fault.comm() {
        return (comm.errhandler(), comm.handle());
    }
    let own = match holder {
        ErrorObject::Comm(handle) => find_comm(handle).map(|comm| (comm.errhandler(), handle.0)),
        ErrorObject::Session(handle) => {
            find_session(handle).map(|session| (session.errhandler(), handle.0))
        }
        ErrorObject::File(handle) => {
            let handler = find_file(handle).map_or_else(of_null_file, |file| file.errhandler());
            Some((handler, handle.0))
        }
        ErrorObject::New(handle, kind) => requested_handler(handle, kind),
        ErrorObject::Win(handle) => {
            find_window(handle).map(|window| (window.errhandler(), handle.0))
        }
        ErrorObject::None => None,
    };
    // Before MPI_Init, after MPI_Finalize and with sessions alone there is no MPI_COMM_SELF.
    own.or_else(default_handler)
        .unwrap_or_else(|| (initial_or_fatal(), MPI_COMM_NULL.0))
}

/// The error handler that the program was started with. What names none is refused when a rank
/// starts.
fn initial_or_fatal() -> Errhandler {
    initial_from_env().unwrap_or(Errhandler::Fatal)
}

/// The error handler that the predefined communicators have at first.
///
/// # Errors
/// The setting names none.
pub(crate) fn initial_from_env() -> Result<Errhandler, garonne_job::Error> {
    let said = std::env::var_os(settings::ENV_INITIAL_ERRHANDLER).unwrap_or_default();
    Ok(match settings::initial_errhandler(&said)? {
        1 => Errhandler::Abort,
        2 => Errhandler::Return,
        _ => Errhandler::Fatal,
    })
}

/// Returns the error handler that was passed to a call which failed to create its object.
fn requested_handler(handle: MPI_Errhandler, kind: ErrhandlerKind) -> Option<(Errhandler, usize)> {
    let handler = errhandler(handle)
        .ok()
        .filter(|handler| handler.fits(kind))?;
    let null = match kind {
        ErrhandlerKind::Session => MPI_SESSION_NULL.0,
        _ => MPI_COMM_NULL.0,
    };
    Some((handler, null))
}

/// Returns the error handler for a failure that belongs to no object: since MPI 4 that of
/// `MPI_COMM_SELF`. Older programs set a handler on `MPI_COMM_WORLD` alone. That handler is used if
/// `MPI_COMM_SELF` has no handler of its own, unless `errors` are checked.
fn default_handler() -> Option<(Errhandler, usize)> {
    let this = find_comm(MPI_COMM_SELF)?;
    let world = find_comm(MPI_COMM_WORLD).filter(|world| {
        world.has_own_errhandler()
            && !this.has_own_errhandler()
            && !optional_checks::errors_enabled()
    });
    let (comm, handle) = world.map_or((this, MPI_COMM_SELF), |world| (world, MPI_COMM_WORLD));
    Some((comm.errhandler(), handle.0))
}

/// A failure in words, in parts.
pub(crate) struct ErrorReport {
    /// Code for `garonne explain`.
    pub code: Option<String>,
    /// Description of the failure. For some failures the text names both sides and says what to do.
    pub what: String,
    /// The call and its line, on a line of its own; empty if `what` names them.
    pub place: String,
    /// Advice, on a line of its own; empty if `what` contains the advice.
    pub help: String,
}

/// All that can be said of a failure of `call`, which stands at `site`.
pub(crate) fn error_report(call: CallId, site: u64, error: &Error) -> ErrorReport {
    let rank = init_state::find_process().map_or(String::new(), |process| {
        format!("rank {}  ", process.host.me())
    });
    // What the layers below found out (both sides of a message whose buffer is gone) comes complete
    // with its code and help.
    let complete = error
        .detail
        .strip_prefix("error[")
        .and_then(|rest| rest.split_once("]: "));
    let (code, what, help) = match complete {
        Some((code, what)) => (Some(code.to_string()), what.to_string(), String::new()),
        None => (
            explain_code(error.class).map(String::from),
            error.detail.clone(),
            format!("\n  help: {}", help(error.class)),
        ),
    };
    let (name, place) = (call.name(), call_site::describe(site));
    // A blocking receive names its call and arguments itself. The wait for a nonblocking receive is
    // a separate place.
    let told = what.lines().any(|line| {
        line.trim_start().starts_with(&format!("{rank}{name}(")) && line.ends_with(&place)
    });
    let place = if told {
        String::new()
    } else {
        format!("\n  {rank}{name}   at {place}")
    };
    ErrorReport {
        code,
        what,
        place,
        help,
    }
}

/// Ends the job with the error report as its last message (`MPI_ERRORS_ARE_FATAL`).
fn fatal(call: CallId, site: u64, error: &Error) -> ! {
    let ErrorReport {
        code,
        what,
        place,
        help,
    } = error_report(call, site, error);
    let code = code.map_or(String::new(), |code| format!("[{code}]"));
    let message = format!("error{code}: {what}{place}{help}");
    crate::env::end_job(
        init_state::find_process().as_deref(),
        error.class as i32,
        &message,
    )
}

/// Returns the `garonne explain` code for an error class, if there is one.
fn explain_code(class: Class) -> Option<&'static str> {
    if init_state::find_process().is_none()
        && init_state::not_running_reason().is_some()
        && class != Class::UnsupportedOperation
    {
        return Some("G0108");
    }
    Some(match class {
        Class::Rank | Class::Root => "G0102",
        Class::Tag => "G0103",
        Class::Comm
        | Class::Group
        | Class::Request
        | Class::Info
        | Class::Errhandler
        | Class::Session => "G0104",
        Class::Type => "G0105",
        Class::UnsupportedOperation => "G0106",
        Class::Truncate => "G0107",
        Class::Op => "G0111",
        Class::NoMem => "G0304",
        Class::Revoked => "G0116",
        Class::ProcFailed | Class::ProcFailedPending => "G0117",
        Class::Other | Class::Intern | Class::ProcAborted | Class::Unknown | Class::InStatus => {
            return None;
        }
        _ => "G0101",
    })
}

fn help(class: Class) -> String {
    match class {
        Class::Truncate => "the receive is smaller than the message; make it as large, or ask for the size first with MPI_Mprobe".into(),
        Class::UnsupportedOperation => "use another function, or set MPI_ERRORS_RETURN to find out in the program".into(),
        class => format!(
            "{} ends the job by default; set MPI_ERRORS_RETURN to handle it in the program",
            class.name()
        ),
    }
}

pub(crate) fn comm_create_errhandler<A: Abi>(
    _: CallId,
    function: Callback<A>,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    create(ErrhandlerKind::Comm, function, out)
}

pub(crate) fn file_create_errhandler<A: Abi>(
    _: CallId,
    function: Callback<A>,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    create(ErrhandlerKind::File, function, out)
}

pub(crate) fn session_create_errhandler<A: Abi>(
    _: CallId,
    function: Callback<A>,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    create(ErrhandlerKind::Session, function, out)
}

pub(crate) fn win_create_errhandler<A: Abi>(
    _: CallId,
    function: Callback<A>,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    create(ErrhandlerKind::Window, function, out)
}

fn create<A: Abi>(
    kind: ErrhandlerKind,
    function: Callback<A>,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    if function.is_null() {
        return Err(CallError::new(
            Class::Arg,
            "the error handler function is a null pointer",
        ));
    }
    let object = match kind {
        ErrhandlerKind::Comm => HandleKind::Comm,
        ErrhandlerKind::File => HandleKind::File,
        ErrhandlerKind::Session => HandleKind::Session,
        ErrhandlerKind::Window => HandleKind::Win,
    };
    let callback = Box::new(ErrhandlerFunction::new(object, function));
    return_errhandler(Errhandler::user(kind, callback), out)
}

pub(crate) fn comm_set_errhandler(_: CallId, on: MPI_Comm, handler: MPI_Errhandler) -> Result<()> {
    Ok(comm(on)?.set_errhandler(errhandler(handler)?)?)
}

pub(crate) fn comm_get_errhandler(_: CallId, on: MPI_Comm, out: Ptr<MPI_Errhandler>) -> Result<()> {
    return_errhandler(comm(on)?.errhandler(), out)
}

pub(crate) fn session_set_errhandler(
    _: CallId,
    on: MPI_Session,
    handler: MPI_Errhandler,
) -> Result<()> {
    Ok(session(on)?.set_errhandler(errhandler(handler)?)?)
}

pub(crate) fn session_get_errhandler(
    _: CallId,
    on: MPI_Session,
    out: Ptr<MPI_Errhandler>,
) -> Result<()> {
    return_errhandler(session(on)?.errhandler(), out)
}

/// The error handler of `MPI_FILE_NULL`, which new files inherit.
pub(crate) fn of_null_file() -> Errhandler {
    lock(&state().files).clone()
}

pub(crate) fn file_set_errhandler(_: CallId, on: MPI_File, handler: MPI_Errhandler) -> Result<()> {
    let handler = errhandler(handler)?;
    if on != MPI_FILE_NULL {
        return Ok(file(on)?.set_errhandler(handler)?);
    }
    if !handler.fits(ErrhandlerKind::File) {
        return Err(CallError::new(
            Class::Arg,
            "the error handler was not made for files",
        ));
    }
    *lock(&state().files) = handler;
    Ok(())
}

pub(crate) fn file_get_errhandler(_: CallId, on: MPI_File, out: Ptr<MPI_Errhandler>) -> Result<()> {
    let handler = match on == MPI_FILE_NULL {
        true => of_null_file(),
        false => file(on)?.errhandler(),
    };
    return_errhandler(handler, out)
}

/// Returns a handle for `handler`. The program must free each handle it receives.
fn return_errhandler(handler: Errhandler, out: Ptr<MPI_Errhandler>) -> Result<()> {
    out.set(match handler {
        Errhandler::Fatal => MPI_ERRORS_ARE_FATAL,
        Errhandler::Abort => MPI_ERRORS_ABORT,
        Errhandler::Return => MPI_ERRORS_RETURN,
        Errhandler::Cxx(word) => MPI_Errhandler(word),
        Errhandler::User(user) => {
            let _shared = lock(&state().returned);
            handle_of_user(user)?
        }
    })
}

/// The handle of a program's error handler: the one it has, or a new one. Called with
/// [`ErrorHandlers::returned`] held.
fn handle_of_user(user: Arc<UserHandler>) -> Result<MPI_Errhandler> {
    // Relaxed: the lock orders these.
    if user.given.fetch_add(1, Ordering::Relaxed) > 0 {
        return Ok(MPI_Errhandler(user.handle.load(Ordering::Relaxed)));
    }
    let handle: MPI_Errhandler = publish(errhandlers(), Errhandler::User(user.clone()))
        .inspect_err(|_| {
            user.given.store(0, Ordering::Relaxed);
        })?;
    user.handle.store(handle.0, Ordering::Relaxed);
    Ok(handle)
}

/// Frees a handle once; the last time it is gone. `false` if there is no such handle.
fn free_user(handle: MPI_Errhandler) -> bool {
    let _shared = lock(&state().returned);
    match errhandlers().get(handle) {
        Some(Errhandler::User(user)) if user.given.fetch_sub(1, Ordering::Relaxed) > 1 => true,
        _ => errhandlers().remove(handle).is_some(),
    }
}

pub(crate) fn errhandler_free(_: CallId, handle: Ptr<MPI_Errhandler>) -> Result<()> {
    let old = handle.get()?;
    let predefined = matches!(
        old,
        MPI_ERRORS_ARE_FATAL
            | MPI_ERRORS_ABORT
            | MPI_ERRORS_RETURN
            | MPI_Errhandler(MPICH_THROWS | OPENMPI_THROWS)
    );
    if !predefined && !free_user(old) {
        return Err(objects::unknown_handle(
            Class::Errhandler,
            "error handler",
            old.0,
            MPI_ERRHANDLER_NULL.0,
        ));
    }
    handle.set(MPI_ERRHANDLER_NULL)
}

/// The call itself succeeds if the handler comes back.
fn call_errhandler(call: CallId, holder: ErrorObject, code: c_int) -> Result<()> {
    let class = Class::try_from(class_of(code)?).unwrap_or(Class::Other);
    let detail = text_of(code).unwrap_or_default();
    let mut error = Error::new(class, format!("the program raised error {code}: {detail}"));
    error.code = Some(code);
    raise(call, holder, CallError::from(error));
    Ok(())
}

pub(crate) fn comm_call_errhandler(call: CallId, on: MPI_Comm, code: c_int) -> Result<()> {
    comm(on)?;
    call_errhandler(call, ErrorObject::Comm(on), code)
}

pub(crate) fn session_call_errhandler(call: CallId, on: MPI_Session, code: c_int) -> Result<()> {
    session(on)?;
    call_errhandler(call, ErrorObject::Session(on), code)
}

pub(crate) fn win_set_errhandler(_: CallId, on: MPI_Win, handler: MPI_Errhandler) -> Result<()> {
    Ok(window(on)?.set_errhandler(errhandler(handler)?)?)
}

pub(crate) fn win_get_errhandler(_: CallId, on: MPI_Win, out: Ptr<MPI_Errhandler>) -> Result<()> {
    return_errhandler(window(on)?.errhandler(), out)
}

pub(crate) fn win_call_errhandler(call: CallId, on: MPI_Win, code: c_int) -> Result<()> {
    window(on)?;
    call_errhandler(call, ErrorObject::Win(on), code)
}

pub(crate) fn file_call_errhandler(call: CallId, on: MPI_File, code: c_int) -> Result<()> {
    if on != MPI_FILE_NULL {
        file(on)?;
    }
    call_errhandler(call, ErrorObject::File(on), code)
}

/// A class or code that the program added.
struct AddedCode {
    /// Itself, if it is a class.
    class: c_int,
    text: String,
    /// Codes of this class that the program added and did not remove.
    codes: usize,
}

/// Classes and codes that the program added: the class of each, and its text.
struct AddedErrorCodes {
    codes: BTreeMap<c_int, AddedCode>,
    /// `MPI_LASTUSEDCODE`.
    last: c_int,
}

impl AddedErrorCodes {
    fn add(&mut self, class: Option<c_int>) -> Result<c_int> {
        let code = self
            .last
            .checked_add(1)
            .ok_or_else(|| CallError::new(Class::Other, "no error codes are left"))?;
        self.last = code;
        if let Some(class) = class.and_then(|class| self.codes.get_mut(&class)) {
            class.codes += 1;
        }
        self.codes.insert(
            code,
            AddedCode {
                class: class.unwrap_or(code),
                text: String::new(),
                codes: 0,
            },
        );
        Ok(code)
    }
}

/// `MPI_LASTUSEDCODE`.
pub(crate) fn last_used_code() -> c_int {
    lock(&state().added).last
}

pub(crate) fn add_error_class(_: CallId, out: Ptr<c_int>) -> Result<()> {
    out.set(lock(&state().added).add(None)?)
}

pub(crate) fn add_error_code(_: CallId, class: c_int, out: Ptr<c_int>) -> Result<()> {
    if class_of(class)? != class {
        return Err(not_a(class, "error class"));
    }
    out.set(lock(&state().added).add(Some(class))?)
}

pub(crate) fn add_error_string(_: CallId, code: c_int, text: StrIn) -> Result<()> {
    let text = text.text()?;
    match lock(&state().added).codes.get_mut(&code) {
        Some(entry) => entry.text = text,
        None => return Err(not_a(code, "error class or code that the program added")),
    }
    Ok(())
}

pub(crate) fn remove_error_class(_: CallId, class: c_int) -> Result<()> {
    let mut added = lock(&state().added);
    let unused = added
        .codes
        .get(&class)
        .is_some_and(|entry| entry.class == class && entry.text.is_empty() && entry.codes == 0);
    if !unused {
        return Err(not_a(
            class,
            "error class that the program added and that has neither codes nor a string left",
        ));
    }
    added.codes.remove(&class);
    Ok(())
}

pub(crate) fn remove_error_code(_: CallId, code: c_int) -> Result<()> {
    let mut added = lock(&state().added);
    let unused = added
        .codes
        .get(&code)
        .filter(|entry| entry.class != code && entry.text.is_empty());
    let Some(class) = unused.map(|entry| entry.class) else {
        return Err(not_a(
            code,
            "error code that the program added and whose string it removed",
        ));
    };
    added.codes.remove(&code);
    if let Some(class) = added.codes.get_mut(&class) {
        class.codes -= 1;
    }
    Ok(())
}

pub(crate) fn remove_error_string(_: CallId, code: c_int) -> Result<()> {
    match lock(&state().added).codes.get_mut(&code) {
        Some(entry) if !entry.text.is_empty() => entry.text.clear(),
        _ => {
            return Err(not_a(
                code,
                "error class or code with a string that the program added",
            ));
        }
    }
    Ok(())
}

fn not_a(code: c_int, what: &str) -> CallError {
    CallError::new(Class::Arg, format!("{code} is no {what}"))
}

fn class_of(code: c_int) -> Result<c_int> {
    if Class::try_from(code).is_ok() || mpi_t_error_text(code).is_some() {
        return Ok(code);
    }
    if unimplemented_string(code).is_some() {
        return Ok(Class::UnsupportedOperation as c_int);
    }
    if let Some(class) = recent_errors::class_of(code) {
        return Ok(class as c_int);
    }
    lock(&state().added)
        .codes
        .get(&code)
        .map(|entry| entry.class)
        .ok_or_else(|| not_a(code, "error code"))
}

pub(crate) fn error_class(_: CallId, code: c_int, class: Ptr<c_int>) -> Result<()> {
    class.set(class_of(code)?)
}

fn text_of(code: c_int) -> Option<String> {
    if let Ok(class) = Class::try_from(code) {
        let latest = recent_errors::text_of_class(class);
        return latest.or_else(|| Some(format!("{}: {}", class.name(), class.text())));
    }
    mpi_t_error_text(code)
        .map(String::from)
        .or_else(|| unimplemented_string(code))
        .or_else(|| recent_errors::text_of(code))
        .or_else(|| {
            lock(&state().added)
                .codes
                .get(&code)
                .map(|entry| entry.text.clone())
        })
}

pub(crate) fn error_string(_: CallId, code: c_int, text: StrOut, len: Ptr<c_int>) -> Result<()> {
    let string = text_of(code).ok_or_else(|| not_a(code, "error code"))?;
    let written = text.write(&string, MPI_MAX_ERROR_STRING as usize)?;
    len.set(written as c_int)
}

/// The sentence of a code of the tool interface.
fn mpi_t_error_text(code: c_int) -> Option<&'static str> {
    Some(match code {
        MPI_T_ERR_CANNOT_INIT => "MPI_T_ERR_CANNOT_INIT: the tool interface cannot be initialised",
        MPI_T_ERR_NOT_ACCESSIBLE => "MPI_T_ERR_NOT_ACCESSIBLE: not accessible",
        MPI_T_ERR_NOT_INITIALIZED => {
            "MPI_T_ERR_NOT_INITIALIZED: the tool interface is not initialised"
        }
        MPI_T_ERR_NOT_SUPPORTED => "MPI_T_ERR_NOT_SUPPORTED: not supported",
        MPI_T_ERR_MEMORY => "MPI_T_ERR_MEMORY: out of memory",
        MPI_T_ERR_INVALID => "MPI_T_ERR_INVALID: invalid argument",
        MPI_T_ERR_INVALID_INDEX => "MPI_T_ERR_INVALID_INDEX: no such index",
        MPI_T_ERR_INVALID_ITEM => "MPI_T_ERR_INVALID_ITEM: no such item",
        MPI_T_ERR_INVALID_SESSION => "MPI_T_ERR_INVALID_SESSION: invalid session",
        MPI_T_ERR_INVALID_HANDLE => "MPI_T_ERR_INVALID_HANDLE: invalid handle",
        MPI_T_ERR_INVALID_NAME => "MPI_T_ERR_INVALID_NAME: no such name",
        MPI_T_ERR_OUT_OF_HANDLES => "MPI_T_ERR_OUT_OF_HANDLES: no more handles",
        MPI_T_ERR_OUT_OF_SESSIONS => "MPI_T_ERR_OUT_OF_SESSIONS: no more sessions",
        MPI_T_ERR_CVAR_SET_NOT_NOW => "MPI_T_ERR_CVAR_SET_NOT_NOW: the variable cannot be set now",
        MPI_T_ERR_CVAR_SET_NEVER => "MPI_T_ERR_CVAR_SET_NEVER: the variable cannot be set any more",
        MPI_T_ERR_PVAR_NO_WRITE => "MPI_T_ERR_PVAR_NO_WRITE: the variable cannot be written",
        MPI_T_ERR_PVAR_NO_STARTSTOP => {
            "MPI_T_ERR_PVAR_NO_STARTSTOP: the variable cannot be started or stopped"
        }
        MPI_T_ERR_PVAR_NO_ATOMIC => {
            "MPI_T_ERR_PVAR_NO_ATOMIC: the variable cannot be read atomically"
        }
        _ => return None,
    })
}
