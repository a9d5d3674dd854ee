//! The functions of `garonne.h` on remote memory.

use crate::calls::{bytes, give, seen};
use crate::errors::{Failure, Outcome, number};
use garonne::{ConnectionId, EventEndpoint, RegionId, RegionKey, RegionRights};
use std::ffi::{c_int, c_void};

/// GARONNE_REGION_KEY_MAX.
const KEY_MAX: usize = 128;
const _: () = assert!(KEY_MAX >= RegionKey::BYTES_MAX);

/// `garonne_region_key`.
#[repr(C)]
pub(crate) struct CRegionKey {
    size: usize,
    bytes: [u8; KEY_MAX],
}

/// `garonne_notice`.
#[repr(C)]
pub(crate) struct Notice {
    number: u64,
}

const NO_RIGHTS: Failure = Failure::Plain(libc::EINVAL, "G0401: no such rights");
const NO_KEY: Failure = Failure::Plain(libc::EINVAL, "G0401: this is no key of a region");

/// What each access names.
struct Access<'a> {
    endpoint: &'a EventEndpoint,
    connection: ConnectionId,
    key: RegionKey,
    notify: Option<u64>,
}

/// Reads what each access names.
///
/// # Safety
/// The pointers are null, or valid for as long as the result is used.
unsafe fn access<'a>(
    endpoint: *const EventEndpoint,
    connection: u64,
    key: *const CRegionKey,
    notify: *const Notice,
) -> Result<Access<'a>, Failure> {
    // SAFETY: the caller's promise.
    let (endpoint, key, notify) = unsafe { (seen(endpoint)?, seen(key)?, notify.as_ref()) };
    let key = key.bytes.get(..key.size).ok_or(NO_KEY)?;
    Ok(Access {
        endpoint,
        connection: ConnectionId::from_number(connection),
        key: RegionKey::from_bytes(key)?,
        notify: notify.map(|notice| notice.number),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_region_create(
    endpoint: *const EventEndpoint,
    size: usize,
    region: *mut u64,
    memory: *mut *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        // SAFETY: the header's promise. First: a region without a name is lost.
        unsafe {
            give(region, 0)?;
            give(memory, std::ptr::null_mut())?;
        }
        let name = endpoint.create_region(size)?;
        let address = endpoint.region_address(name)?;
        // SAFETY: the header's promise.
        unsafe {
            give(memory, address.cast())?;
            give(region, name.number())
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_region_remove(endpoint: *const EventEndpoint, region: u64) -> c_int {
    // SAFETY: the header's promise.
    number(|| Ok(unsafe { seen(endpoint) }?.remove_region(RegionId::from_number(region))?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_expose(
    endpoint: *const EventEndpoint,
    connection: u64,
    region: u64,
    rights: c_int,
    key: *mut CRegionKey,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        let rights = match rights {
            1 => RegionRights::Read,
            2 => RegionRights::Write,
            3 => RegionRights::All,
            _ => return Err(NO_RIGHTS),
        };
        let mut written = CRegionKey {
            size: 0,
            bytes: [0; KEY_MAX],
        };
        // SAFETY: the header's promise. First: a key that nobody gets cannot be withdrawn.
        let outcome: Outcome = unsafe { give(key, CRegionKey { ..written }) };
        outcome?;
        let connection = ConnectionId::from_number(connection);
        let made = endpoint.expose(connection, RegionId::from_number(region), rights)?;
        let made = made.to_bytes();
        written.size = made.len();
        written.bytes[..made.len()].copy_from_slice(&made);
        // SAFETY: the header's promise.
        unsafe { give(key, written) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_withdraw(
    endpoint: *const EventEndpoint,
    connection: u64,
    region: u64,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        let connection = ConnectionId::from_number(connection);
        Ok(endpoint.withdraw(connection, RegionId::from_number(region))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_put(
    endpoint: *const EventEndpoint,
    connection: u64,
    key: *const CRegionKey,
    offset: u64,
    data: *const c_void,
    size: usize,
    context: u64,
    notify: *const Notice,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let (to, data) = unsafe {
            (
                access(endpoint, connection, key, notify)?,
                bytes(data, size)?,
            )
        };
        let place = (&to.key, offset);
        Ok(to
            .endpoint
            .put(to.connection, place, data, context, to.notify)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_get(
    endpoint: *const EventEndpoint,
    connection: u64,
    key: *const CRegionKey,
    offset: u64,
    size: usize,
    context: u64,
    notify: *const Notice,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let from = unsafe { access(endpoint, connection, key, notify) }?;
        let place = (&from.key, offset);
        Ok(from
            .endpoint
            .get(from.connection, place, size, context, from.notify)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_fetch_add(
    endpoint: *const EventEndpoint,
    connection: u64,
    key: *const CRegionKey,
    offset: u64,
    value: u64,
    context: u64,
    notify: *const Notice,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let to = unsafe { access(endpoint, connection, key, notify) }?;
        let place = (&to.key, offset);
        Ok(to
            .endpoint
            .fetch_add(to.connection, place, value, context, to.notify)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_fence(
    endpoint: *const EventEndpoint,
    connection: u64,
    context: u64,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        Ok(endpoint.fence(ConnectionId::from_number(connection), context)?)
    })
}
