//! Routines whose glue is written by hand: attribute keys, generalized requests, data
//! representations, and commands to start.

use crate::attributes;
use crate::calls::{self, Function, Site};
use crate::family::{Family, HandleKind, PredefinedFunction};
use crate::handles::{self, Handles, narrow, set_ierror, widen};
use crate::strings::StringIn;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};

type CreateKey = unsafe extern "C" fn(usize, usize, *mut c_int, *mut c_void, Site) -> c_int;

/// # Safety
/// The addresses are those of the routine's arguments.
unsafe fn create_key<F: Family, const TOOLS: bool>(
    (name, kind): (&CStr, HandleKind),
    (copy, delete): (*mut c_void, *mut c_void),
    keyval: *mut c_int,
    (extra_state, is_old): (isize, bool),
    ierror: *mut c_int,
    site: Site,
) {
    let (copy, delete, state) = attributes::for_c::<F>(kind, copy, delete, extra_state, is_old);
    // SAFETY: functions with this type.
    let call = unsafe { transmute::<Function, CreateKey>(calls::named::<F, TOOLS>(name)) };
    // SAFETY: as the caller says.
    unsafe { set_ierror(ierror, call(copy, delete, keyval, state, site)) }
}

macro_rules! keys {
    ($($function:ident $name:literal $kind:ident;)*) => {
        $(
            /// Creates an attribute key with functions of Fortran.
            pub unsafe extern "C" fn $function<F: Family, const TOOLS: bool>(
                copy: *mut c_void,
                delete: *mut c_void,
                keyval: *mut c_int,
                extra_state: *const isize,
                ierror: *mut c_int,
                site: Site,
            ) {
                // SAFETY: the arguments of the routine.
                unsafe {
                    let state = (*extra_state, false);
                    let key = ($name, HandleKind::$kind);
                    create_key::<F, TOOLS>(key, (copy, delete), keyval, state, ierror, site);
                }
            }
        )*
    };
}

keys! {
    mpi_comm_create_keyval c"MPI_Comm_create_keyval" Comm;
    mpi_type_create_keyval c"MPI_Type_create_keyval" Datatype;
    mpi_win_create_keyval c"MPI_Win_create_keyval" Win;
}

/// `MPI_KEYVAL_CREATE`.
pub unsafe extern "C" fn mpi_keyval_create<F: Family, const TOOLS: bool>(
    copy: *mut c_void,
    delete: *mut c_void,
    keyval: *mut c_int,
    extra_state: *const c_int,
    ierror: *mut c_int,
    site: Site,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let state = (*extra_state as isize, true);
        create_key::<F, TOOLS>(
            (c"MPI_Keyval_create", HandleKind::Comm),
            (copy, delete),
            keyval,
            state,
            ierror,
            site,
        );
    }
}

type Query = unsafe extern "C" fn(*const isize, *mut c_void, *mut c_int);
type Free = unsafe extern "C" fn(*const isize, *mut c_int);
type Cancel = unsafe extern "C" fn(*const isize, *const c_int, *mut c_int);

/// The Fortran functions of a generalized request: C's extra state. Freed with the request.
struct RequestFunctions {
    query: Query,
    free: Free,
    cancel: Cancel,
    /// The program's own variable, which its functions may change, as other MPIs let them.
    extra_state: *const isize,
}

unsafe extern "C" fn call_query(state: *mut c_void, status: *mut c_void) -> c_int {
    let mut code = 0;
    // SAFETY: the state that was given with this function.
    unsafe {
        let functions = &*state.cast::<RequestFunctions>();
        (functions.query)(functions.extra_state, status, &raw mut code);
    }
    code
}

unsafe extern "C" fn call_free(state: *mut c_void) -> c_int {
    let mut code = 0;
    // SAFETY: the state that was given with this function, which is called last and once.
    unsafe {
        let functions = Box::from_raw(state.cast::<RequestFunctions>());
        (functions.free)(functions.extra_state, &raw mut code);
    }
    code
}

unsafe extern "C" fn call_cancel(state: *mut c_void, complete: c_int) -> c_int {
    let mut code = 0;
    let complete = c_int::from(complete != 0);
    // SAFETY: the state that was given with this function.
    unsafe {
        let functions = &*state.cast::<RequestFunctions>();
        (functions.cancel)(functions.extra_state, &raw const complete, &raw mut code);
    }
    code
}

type CQuery = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type CFree = unsafe extern "C" fn(*mut c_void) -> c_int;
type CCancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Start = unsafe extern "C" fn(CQuery, CFree, CCancel, *mut c_void, *mut usize, Site) -> c_int;

/// `MPI_GREQUEST_START`.
pub unsafe extern "C" fn mpi_grequest_start<F: Family, const TOOLS: bool>(
    query: Query,
    free: Free,
    cancel: Cancel,
    extra_state: *const isize,
    request: *mut c_int,
    ierror: *mut c_int,
    site: Site,
) {
    let start = calls::named::<F, TOOLS>(c"MPI_Grequest_start");
    // SAFETY: the function has this type, and the arguments are those of the routine.
    unsafe {
        let start = transmute::<Function, Start>(start);
        let state = Box::into_raw(Box::new(RequestFunctions {
            query,
            free,
            cancel,
            extra_state,
        }));
        let mut handle = 0;
        let state_of_c = state.cast();
        let request_of_c = &raw mut handle;
        let code = start(
            call_query,
            call_free,
            call_cancel,
            state_of_c,
            request_of_c,
            site,
        );
        if code == 0 {
            narrow::<F>(HandleKind::Request, request, handle);
        } else {
            drop(Box::from_raw(state));
        }
        set_ierror(ierror, code);
    }
}

type Extent = unsafe extern "C" fn(*const c_int, *mut isize, *const isize, *mut c_int);
/// Conversion function of Fortran. Its count is an `INTEGER`, or a large one.
type Conversion = unsafe extern "C" fn(
    *mut c_void,
    *const c_int,
    *const c_void,
    *mut c_void,
    *const i64,
    *const isize,
    *mut c_int,
);

/// The Fortran functions of a data representation: C's extra state. Lives as long as the process,
/// as the representation does.
struct Representation {
    read: Option<Conversion>,
    write: Option<Conversion>,
    extent: Extent,
    extra_state: isize,
}

unsafe extern "C" fn call_extent<F: Family>(
    datatype: usize,
    extent: *mut isize,
    state: *mut c_void,
) -> c_int {
    let mut code = 0;
    let datatype = F::from_c(HandleKind::Datatype, datatype);
    // SAFETY: the state that was given with this function.
    unsafe {
        let functions = &*state.cast::<Representation>();
        let extra = &raw const functions.extra_state;
        (functions.extent)(&raw const datatype, extent, extra, &raw mut code);
    }
    code
}

/// A conversion as the C library calls it. A count of either width is passed on by its address.
macro_rules! conversion {
    ($name:ident, $field:ident, $count:ty) => {
        unsafe extern "C" fn $name<F: Family>(
            userbuf: *mut c_void,
            datatype: usize,
            count: $count,
            filebuf: *mut c_void,
            position: i64,
            state: *mut c_void,
        ) -> c_int {
            let mut code = 0;
            let datatype = F::from_c(HandleKind::Datatype, datatype);
            // SAFETY: the state that was given with this function.
            unsafe {
                let functions = &*state.cast::<Representation>();
                let Some(convert) = functions.$field else {
                    return 0;
                };
                let count = (&raw const count).cast();
                let extra = &raw const functions.extra_state;
                let position = &raw const position;
                let datatype = &raw const datatype;
                convert(
                    userbuf,
                    datatype,
                    count,
                    filebuf,
                    position,
                    extra,
                    &raw mut code,
                );
            }
            code
        }
    };
}

conversion!(call_read, read, c_int);
conversion!(call_write, write, c_int);
conversion!(call_read_c, read, i64);
conversion!(call_write_c, write, i64);

type Register = unsafe extern "C" fn(
    *const u8,
    *mut c_void,
    *mut c_void,
    unsafe extern "C" fn(usize, *mut isize, *mut c_void) -> c_int,
    *mut c_void,
    Site,
) -> c_int;

/// # Safety
/// The addresses are those of the routine's arguments.
unsafe fn register<F: Family, const TOOLS: bool>(
    name: &CStr,
    datarep: (*const u8, usize),
    functions: Representation,
    (read, write): (*mut c_void, *mut c_void),
    ierror: *mut c_int,
    site: Site,
) {
    // SAFETY: as the caller says.
    unsafe {
        let datarep = StringIn::read(datarep.0, datarep.1, false);
        let read = if functions.read.is_some() {
            read
        } else {
            null_mut()
        };
        let write = if functions.write.is_some() {
            write
        } else {
            null_mut()
        };
        let register = transmute::<Function, Register>(calls::named::<F, TOOLS>(name));
        let state = Box::into_raw(Box::new(functions));
        let code = register(
            datarep.as_ptr(),
            read,
            write,
            call_extent::<F>,
            state.cast(),
            site,
        );
        if code != 0 {
            drop(Box::from_raw(state));
        }
        set_ierror(ierror, code);
    }
}

/// Returns a conversion function, unless the program says that there is none.
fn conversion<F: Family>(function: *mut c_void) -> Option<Conversion> {
    let known = F::predefined_function(function as usize);
    let is_null = function.is_null() || known == Some(PredefinedFunction::NullConversion);
    // SAFETY: a conversion function of the program.
    (!is_null).then(|| unsafe { transmute::<*mut c_void, Conversion>(function) })
}

macro_rules! representations {
    ($($function:ident $name:literal $read:ident $write:ident;)*) => {
        $(
            /// Registers a data representation with functions of Fortran.
            pub unsafe extern "C" fn $function<F: Family, const TOOLS: bool>(
                datarep: *const u8,
                read: *mut c_void,
                write: *mut c_void,
                extent: Extent,
                extra_state: *const isize,
                ierror: *mut c_int,
                len: usize,
                site: Site,
            ) {
                // SAFETY: the arguments of the routine.
                unsafe {
                    let functions = Representation {
                        read: conversion::<F>(read),
                        write: conversion::<F>(write),
                        extent,
                        extra_state: *extra_state,
                    };
                    let converters = ($read::<F> as *mut c_void, $write::<F> as *mut c_void);
                    let datarep = (datarep, len);
                    register::<F, TOOLS>($name, datarep, functions, converters, ierror, site);
                }
            }
        )*
    };
}

representations! {
    mpi_register_datarep c"MPI_Register_datarep" call_read call_write;
    mpi_register_datarep_c c"MPI_Register_datarep_c" call_read_c call_write_c;
}

/// Arguments of a command, as C has them: strings, and a null address.
struct Argv {
    _texts: Vec<StringIn>,
    addresses: Vec<*const u8>,
}

impl Argv {
    /// Reads strings that lie so many bytes from each other, up to a blank one.
    ///
    /// # Safety
    /// The array ends with a blank string.
    unsafe fn read(first: *const u8, len: usize, step: usize) -> Self {
        let (mut texts, mut at) = (Vec::new(), first);
        loop {
            // SAFETY: as the caller says.
            let text = unsafe { StringIn::read(at, len, false) };
            if text.is_empty() {
                break;
            }
            texts.push(text);
            // SAFETY: a further string follows.
            at = unsafe { at.add(step) };
        }
        let mut addresses: Vec<_> = texts.iter().map(StringIn::as_ptr).collect();
        addresses.push(null());
        // Short strings move with the list, so their addresses are taken when it stands.
        Self {
            _texts: texts,
            addresses,
        }
    }
}

type Spawn = unsafe extern "C" fn(
    *const u8,
    *const *const u8,
    c_int,
    usize,
    c_int,
    usize,
    *mut usize,
    *mut c_void,
    Site,
) -> c_int;

/// `MPI_COMM_SPAWN`.
pub unsafe extern "C" fn mpi_comm_spawn<F: Family, const TOOLS: bool>(
    command: *const u8,
    argv: *const u8,
    maxprocs: *const c_int,
    info: *const c_int,
    root: *const c_int,
    comm: *const c_int,
    intercomm: *mut c_int,
    errcodes: *mut c_void,
    ierror: *mut c_int,
    command_len: usize,
    argv_len: usize,
    site: Site,
) {
    // SAFETY: the arguments of the routine.
    unsafe {
        let spawn = transmute::<Function, Spawn>(calls::named::<F, TOOLS>(c"MPI_Comm_spawn"));
        let command = StringIn::read(command, command_len, false);
        let arguments = match F::is_argv_null(argv) {
            true => None,
            false => Some(Argv::read(argv, argv_len, argv_len)),
        };
        let arguments = arguments
            .as_ref()
            .map_or(null(), |argv| argv.addresses.as_ptr());
        let mut handle = widen::<F>(HandleKind::Comm, intercomm);
        let code = spawn(
            command.as_ptr(),
            arguments,
            *maxprocs,
            widen::<F>(HandleKind::Info, info),
            *root,
            widen::<F>(HandleKind::Comm, comm),
            &raw mut handle,
            F::c_address(errcodes),
            site,
        );
        narrow::<F>(HandleKind::Comm, intercomm, handle);
        set_ierror(ierror, code);
    }
}

type SpawnMultiple = unsafe extern "C" fn(
    c_int,
    *const *const u8,
    *const *const *const u8,
    *const c_int,
    *mut usize,
    c_int,
    usize,
    *mut usize,
    *mut c_void,
    Site,
) -> c_int;

/// `MPI_COMM_SPAWN_MULTIPLE`.
pub unsafe extern "C" fn mpi_comm_spawn_multiple<F: Family, const TOOLS: bool>(
    count: *const c_int,
    commands: *const u8,
    argvs: *const u8,
    maxprocs: *const c_int,
    infos: *const c_int,
    root: *const c_int,
    comm: *const c_int,
    intercomm: *mut c_int,
    errcodes: *mut c_void,
    ierror: *mut c_int,
    command_len: usize,
    argv_len: usize,
    site: Site,
) {
    // SAFETY: the arguments of the routine. Commands lie one after the other; the arguments of one
    // command lie as many strings from each other as there are commands.
    unsafe {
        let spawn = calls::named::<F, TOOLS>(c"MPI_Comm_spawn_multiple");
        let spawn = transmute::<Function, SpawnMultiple>(spawn);
        let many = usize::try_from(*count).unwrap_or(0);
        let texts: Vec<_> = (0..many)
            .map(|at| StringIn::read(commands.add(at * command_len), command_len, false))
            .collect();
        let texts: Vec<_> = texts.iter().map(StringIn::as_ptr).collect::<Vec<_>>();
        let arguments: Vec<_> = match F::is_argv_null(argvs) {
            true => Vec::new(),
            false => (0..many)
                .map(|at| Argv::read(argvs.add(at * argv_len), argv_len, argv_len * many))
                .collect(),
        };
        let addresses: Vec<_> = arguments
            .iter()
            .map(|argv| argv.addresses.as_ptr())
            .collect();
        let argvs = if addresses.is_empty() {
            null()
        } else {
            addresses.as_ptr()
        };
        let mut room = handles::room();
        let mut infos = Handles::read::<F>(HandleKind::Info, infos, (*count).into(), &mut room);
        let mut handle = widen::<F>(HandleKind::Comm, intercomm);
        let code = spawn(
            *count,
            texts.as_ptr(),
            argvs,
            maxprocs,
            infos.as_mut_ptr(),
            *root,
            widen::<F>(HandleKind::Comm, comm),
            &raw mut handle,
            F::c_address(errcodes),
            site,
        );
        narrow::<F>(HandleKind::Comm, intercomm, handle);
        set_ierror(ierror, code);
    }
}
