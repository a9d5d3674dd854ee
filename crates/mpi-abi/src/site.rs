//! Call sites for people: a return address as the place in the program that it belongs to.

use std::ffi::{CStr, c_void};

/// Where the call before this return address stands: object file, nearest symbol, offset.
pub(crate) fn describe(address: u64) -> String {
    if address == 0 {
        return "an unknown place".into();
    }
    // One byte back is within the call instruction, hence on its source line.
    let inside = address - 1;
    // SAFETY: `Dl_info` is plain data, and `dladdr` only reads the loader's tables.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above; any address may be asked for.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance::<c_void>(inside as usize), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return format!("{inside:#x}");
    }
    // SAFETY: the loader's strings end in zero and live as long as the object is loaded, which contains our caller.
    let object = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    let object = object.rsplit('/').next().unwrap_or_default().to_string();
    if info.dli_sname.is_null() {
        return format!("{object}+{:#x}", inside - info.dli_fbase as u64);
    }
    // SAFETY: as for the object's name.
    let symbol = unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy();
    format!("{object}: {symbol}+{:#x}", inside - info.dli_saddr as u64)
}
