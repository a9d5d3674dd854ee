//! Detection of buffers in GPU memory, which are refused with an error instead of a crash.
//!
//! A CPU cannot touch such memory, so a program that passes it would crash inside a copy. Only the
//! GPU's driver knows whether an address is one, and only a process that has loaded a driver can
//! have one. Every buffer is compared with the last special address anyway. That comparison uses
//! the word [`CHECKED_UP_TO`] instead, which is the largest address while a driver may be loaded.
//! Only then do buffers take the slow check that asks the driver.
//!
//! The word is raised at the start, at every new communicator, and in a forked child, whose calls
//! are refused in the same place. The first buffer lowers it again if no driver is loaded. The
//! dynamic linker's list says which drivers are loaded; nothing is ever loaded from here.

use crate::c_args::Buf;
use crate::call::{CallError, Result, forked_child_error};
use crate::init_state::is_forked_child;
use garonne_mpi::error::Class;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffers at this address or below take the slow check.
static CHECKED_UP_TO: AtomicUsize = AtomicUsize::new(ALL);

/// The largest address of a process. Those beyond, which mean something in other ABIs, are negative
/// as signed numbers.
const ALL: usize = isize::MAX as usize;

/// Returns [`CHECKED_UP_TO`]. A plain load.
#[inline(always)]
pub(crate) fn checked_up_to() -> usize {
    CHECKED_UP_TO.load(Ordering::Relaxed)
}

/// Makes the next buffer take the slow check, because a driver may have been loaded or this process
/// is a new child.
pub(crate) fn recheck() {
    CHECKED_UP_TO.store(ALL, Ordering::Relaxed);
}

/// `cuPointerGetAttribute` and `hipPointerGetAttribute`: writes an attribute of an address; 0 is
/// success. Both vendors number the attributes used here alike.
type GetAttributeFn = unsafe extern "C" fn(*mut c_void, c_int, usize) -> c_int;

/// Attribute: the address by which the device accesses the memory.
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

    /// Returns an attribute of `address`, if the driver knows the address.
    fn query(&self, attribute: c_int, address: usize) -> Option<usize> {
        let mut value = 0usize;
        // SAFETY: both attributes are addresses, which is what `value` has room for; the driver
        // accepts any address.
        let status = unsafe { (self.attribute)((&raw mut value).cast(), attribute, address) };
        (status == 0 && value != 0).then_some(value)
    }

    /// Returns whether the memory at `address` belongs to the device alone: not host memory, not
    /// registered with the driver, not managed.
    fn owns(&self, address: usize) -> bool {
        self.query(DEVICE_POINTER, address).is_some() && self.query(HOST_POINTER, address).is_none()
    }
}

/// The drivers found, and the linker's load count at that time.
struct LoadedDrivers {
    loads: u64,
    drivers: [Option<Driver>; DRIVERS.len()],
}

static LOADED_DRIVERS: Mutex<LoadedDrivers> = Mutex::new(LoadedDrivers {
    loads: 0,
    drivers: [None; DRIVERS.len()],
});

/// Returns the number of libraries that this process has loaded so far.
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
