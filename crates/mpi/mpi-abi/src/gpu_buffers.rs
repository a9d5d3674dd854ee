//! Buffers in the memory of graphics devices: refused by name instead of a crash.
//!
//! Such memory cannot be touched by a CPU, so a program that passes it would end inside a copy.
//! Whether an address is one only its driver knows, and only a process that has loaded a driver can
//! have one. So the check that every buffer takes anyway (is the address above the special ones)
//! compares with a word: normally the last special address, and the largest address while a driver
//! may be in the process. Then, and only then, buffers go the way of the suspicious ones, where the
//! driver is asked. The word is raised in a forked child, which is refused in the same place, at
//! the start and at every new communicator, and lowered by the first buffer that comes by if no
//! driver was loaded. What is loaded is looked up in the dynamic linker's list; nothing is ever
//! loaded from here.

use crate::c_args::Buf;
use crate::call::{CallError, Result, forked_child_error};
use crate::init_state::is_forked_child;
use garonne_mpi::error::Class;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffers at this address or below are looked at closely.
static CHECKED_UP_TO: AtomicUsize = AtomicUsize::new(usize::MAX);

/// See [`CHECKED_UP_TO`]. A plain load.
#[inline(always)]
pub(crate) fn checked_up_to() -> usize {
    CHECKED_UP_TO.load(Ordering::Relaxed)
}

/// Has the next buffer looked at: a driver may have been loaded since, or this process is a new
/// child.
pub(crate) fn recheck() {
    CHECKED_UP_TO.store(usize::MAX, Ordering::Relaxed);
}

/// `cuPointerGetAttribute` and `hipPointerGetAttribute`: writes an attribute of an address; 0 is
/// success. Both vendors number the attributes used here alike.
type GetAttributeFn = unsafe extern "C" fn(*mut c_void, c_int, usize) -> c_int;

/// The address by which the device knows the memory.
const DEVICE_POINTER: c_int = 3;
/// The address by which the host reaches it; an error where it does not.
const HOST_POINTER: c_int = 4;

/// Libraries of drivers with the function to ask.
const DRIVERS: [(&CStr, &CStr); 5] = [
    (c"libcuda.so.1", c"cuPointerGetAttribute"),
    (c"libamdhip64.so.7", c"hipPointerGetAttribute"),
    (c"libamdhip64.so.6", c"hipPointerGetAttribute"),
    (c"libamdhip64.so.5", c"hipPointerGetAttribute"),
    (c"libamdhip64.so", c"hipPointerGetAttribute"),
];

#[derive(Clone, Copy)]
struct Driver {
    library: &'static CStr,
    attribute: GetAttributeFn,
}

impl Driver {
    fn loaded((library, function): (&'static CStr, &'static CStr)) -> Option<Self> {
        // SAFETY: both are strings; with RTLD_NOLOAD nothing is loaded and no initialiser runs. The
        // reference that a hit counts is kept, so the function stays. Its type is that of the
        // vendors' documentation.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if handle.is_null() {
                return None;
            }
            let found = libc::dlsym(handle, function.as_ptr());
            (!found.is_null()).then(|| Self {
                library,
                attribute: std::mem::transmute::<*mut c_void, GetAttributeFn>(found),
            })
        }
    }

    /// The value of an attribute of `address`, if the driver knows it.
    fn query(&self, attribute: c_int, address: usize) -> Option<usize> {
        let mut value = 0usize;
        // SAFETY: both attributes are addresses, which is what `value` has room for; the driver
        // accepts any address.
        let status = unsafe { (self.attribute)((&raw mut value).cast(), attribute, address) };
        (status == 0 && value != 0).then_some(value)
    }

    /// Whether the memory at `address` is the device's alone: not the host's, not registered with
    /// the driver, not managed.
    fn owns(&self, address: usize) -> bool {
        self.query(DEVICE_POINTER, address).is_some() && self.query(HOST_POINTER, address).is_none()
    }
}

/// The drivers found, and what the process had loaded when they were looked for.
struct LoadedDrivers {
    loads: u64,
    drivers: [Option<Driver>; DRIVERS.len()],
}

static LOADED_DRIVERS: Mutex<LoadedDrivers> = Mutex::new(LoadedDrivers {
    loads: 0,
    drivers: [None; DRIVERS.len()],
});

/// How many libraries this process has loaded so far.
fn load_count() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        loads: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a valid structure, and `load_count` is the word below.
        unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0u64;
    // SAFETY: the callback writes to `load_count` only, and is not kept.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}

fn drivers() -> [Option<Driver>; DRIVERS.len()] {
    let mut found = LOADED_DRIVERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let loads = load_count();
    if found.loads != loads {
        found.loads = loads;
        found.drivers = DRIVERS.map(Driver::loaded);
    }
    found.drivers
}

/// Refuses a buffer that lies on a device, where nothing else is wrong with any address.
#[inline]
pub(crate) fn refuse_gpu_memory(buf: Buf) -> Result<()> {
    if buf.addr() <= checked_up_to() {
        check_gpu_memory(buf, 1)
    } else {
        Ok(())
    }
}

/// Refuses a buffer of `count` elements if it lies on a device. Called for buffers at or below
/// [`checked_up_to`].
#[cold]
#[inline(never)]
pub(crate) fn check_gpu_memory(buf: Buf, count: i64) -> Result<()> {
    if is_forked_child() {
        return Err(forked_child_error());
    }
    let drivers = drivers();
    if drivers.iter().all(Option::is_none) {
        CHECKED_UP_TO.store(Buf::AUTOMATIC, Ordering::Relaxed);
        return Ok(());
    }
    let address = buf.addr();
    let owner = drivers
        .iter()
        .flatten()
        .find(|driver| count > 0 && address > Buf::AUTOMATIC && driver.owns(address));
    match owner {
        None => Ok(()),
        Some(driver) => Err(CallError::new(
            Class::Buffer,
            format!(
                "error[G0110]: the buffer at {address:#x} (count {count}) lies in the memory of a device, as {} says; copy it to host memory first",
                driver.library.to_string_lossy()
            ),
        )),
    }
}
