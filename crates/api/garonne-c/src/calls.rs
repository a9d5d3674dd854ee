//! The functions of `garonne.h`.

use crate::errors::{Failure, Outcome, number};
use crate::events::{CEvent, lend};
use garonne::{Attributes, ConnectionId, Delivery, EventEndpoint, Key};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// `garonne_session_key`.
#[repr(C)]
pub(crate) struct SessionKey {
    bytes: [u8; Key::BYTES],
}

/// `garonne_attributes`.
#[repr(C)]
pub(crate) struct CAttributes {
    delivery: c_int,
    message_max: u64,
}

pub(crate) const NULL: Failure =
    Failure::Plain(libc::EINVAL, "G0401: a pointer that is needed is null");
const NO_TEXT: Failure = Failure::Plain(libc::EINVAL, "G0401: a text is not UTF-8");
const NO_DELIVERY: Failure = Failure::Plain(libc::EINVAL, "G0401: no such attribute of delivery");
const NO_ROOM: Failure = Failure::Plain(libc::ERANGE, "G0401: the URI does not fit the buffer");

/// The value behind a pointer of the program.
///
/// # Safety
/// The pointer is null, or valid for as long as the result is used.
pub(crate) unsafe fn seen<'a, T>(at: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or(NULL)
}

/// Writes a result where the program wants it.
///
/// # Safety
/// The pointer is null or valid for a write.
pub(crate) unsafe fn give<T>(at: *mut T, value: T) -> Outcome {
    match at.is_null() {
        true => Err(NULL),
        false => {
            // SAFETY: the caller's promise.
            unsafe { at.write(value) };
            Ok(())
        }
    }
}

/// Text of the program.
///
/// # Safety
/// The pointer is null, or to text with a zero at its end that stays as long as the result is used.
unsafe fn text<'a>(at: *const c_char) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_str().map_err(|_| NO_TEXT)
}

/// Bytes of the program.
///
/// # Safety
/// The pointer is null, or to so many bytes that stay as long as the result is used.
pub(crate) unsafe fn bytes<'a>(at: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    match (at.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(NULL),
        (false, size) if size > isize::MAX as usize => Err(Failure::Plain(
            libc::EINVAL,
            "G0401: more bytes than memory has",
        )),
        // SAFETY: the caller's promise.
        (false, size) => Ok(unsafe { std::slice::from_raw_parts(at.cast(), size) }),
    }
}

/// The attributes that the program wants.
///
/// # Safety
/// The pointer is null or valid.
unsafe fn attributes(at: *const CAttributes) -> Result<Attributes, Failure> {
    let mut attributes = Attributes::default();
    // SAFETY: the caller's promise.
    let Some(said) = (unsafe { at.as_ref() }) else {
        return Ok(attributes);
    };
    attributes.delivery = match said.delivery {
        0 => Delivery::ReliableOrdered,
        1 => Delivery::Reliable,
        2 => Delivery::Datagram,
        _ => return Err(NO_DELIVERY),
    };
    if said.message_max > 0 {
        attributes.message_max = said.message_max;
    }
    Ok(attributes)
}

/// A time to wait; `None`: without end.
fn time(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_endpoint_create(endpoint: *mut *mut EventEndpoint) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        unsafe { give(endpoint, std::ptr::null_mut()) }?;
        let made = Box::new(EventEndpoint::new()?);
        // SAFETY: the header's promise.
        unsafe { give(endpoint, Box::into_raw(made)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_endpoint_join(endpoint: *mut *mut EventEndpoint) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        unsafe { give(endpoint, std::ptr::null_mut()) }?;
        let made = Box::new(EventEndpoint::join()?);
        // SAFETY: the header's promise.
        unsafe { give(endpoint, Box::into_raw(made)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_rank(
    endpoint: *const EventEndpoint,
    rank: *mut u32,
    size: *mut u32,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let (own, all) = unsafe { seen(endpoint) }?.rank()?;
        // SAFETY: the header's promise.
        unsafe {
            give(rank, own)?;
            give(size, all)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_connect_rank(
    endpoint: *const EventEndpoint,
    rank: u32,
    connection: *mut u64,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let name = unsafe { seen(endpoint) }?.connect_rank(rank)?;
        // SAFETY: the header's promise.
        unsafe { give(connection, name.number()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_endpoint_close(
    endpoint: *mut EventEndpoint,
    milliseconds: c_int,
) -> c_int {
    number(|| {
        if endpoint.is_null() {
            return Err(NULL);
        }
        // SAFETY: the program gives back what `garonne_endpoint_create` made, once, and nobody uses
        // it any more.
        let endpoint = unsafe { Box::from_raw(endpoint) };
        let limit = time(milliseconds).unwrap_or(Duration::from_secs(u32::MAX.into()));
        Ok(endpoint.close(limit)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_endpoint_descriptor(
    endpoint: *const EventEndpoint,
    descriptor: *mut c_int,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        // SAFETY: the header's promise.
        unsafe { give(descriptor, endpoint.descriptor().as_raw_fd()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_session_key_generate(key: *mut SessionKey) -> c_int {
    number(|| {
        let bytes = *Key::generate()?.as_bytes();
        // SAFETY: the header's promise.
        unsafe { give(key, SessionKey { bytes }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_session_key_from_text(
    from: *const c_char,
    key: *mut SessionKey,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let read = Key::from_text(unsafe { text(from) }?)?;
        let bytes = *read.as_bytes();
        // SAFETY: the header's promise.
        unsafe { give(key, SessionKey { bytes }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_session_key_to_text(
    key: *const SessionKey,
    to: *mut [u8; 2 * Key::BYTES + 1],
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let key = unsafe { seen(key) }?;
        let mut written = [0; 2 * Key::BYTES + 1];
        let digits = Key::from_bytes(key.bytes).to_text();
        written[..digits.len()].copy_from_slice(digits.as_bytes());
        // SAFETY: the header's promise: room for GARONNE_KEY_TEXT bytes.
        unsafe { give(to, written) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_listen(
    endpoint: *const EventEndpoint,
    uri: *const c_char,
    key: *const SessionKey,
    actual: *mut c_char,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let (endpoint, uri, key) = unsafe { (seen(endpoint)?, text(uri)?, seen(key)?) };
        if !actual.is_null() && size < garonne::URI_MAX {
            return Err(NO_ROOM);
        }
        let at = endpoint.listen(uri, &Key::from_bytes(key.bytes))?;
        if !actual.is_null() {
            let mut at = at.into_bytes();
            at.truncate(size - 1);
            at.push(0);
            // SAFETY: the header's promise: room for `size` bytes, of which these are no more.
            unsafe { std::ptr::copy_nonoverlapping(at.as_ptr().cast(), actual, at.len()) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_connect(
    endpoint: *const EventEndpoint,
    uri: *const c_char,
    key: *const SessionKey,
    wanted: *const CAttributes,
    data: *const c_void,
    size: usize,
    connection: *mut u64,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let (endpoint, uri, key) = unsafe { (seen(endpoint)?, text(uri)?, seen(key)?) };
        // SAFETY: the header's promise.
        let (wanted, data) = unsafe { (attributes(wanted)?, bytes(data, size)?) };
        // SAFETY: the header's promise. Before the call: a connection without a name is lost.
        unsafe { give(connection, 0) }?;
        let name = endpoint.connect(uri, &Key::from_bytes(key.bytes), wanted, data)?;
        // SAFETY: the header's promise.
        unsafe { give(connection, name.number()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_accept(
    endpoint: *const EventEndpoint,
    connection: u64,
    wanted: *const CAttributes,
    data: *const c_void,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        // SAFETY: the header's promise.
        let (wanted, data) = unsafe { (attributes(wanted)?, bytes(data, size)?) };
        Ok(endpoint.accept(ConnectionId::from_number(connection), wanted, data)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_reject(endpoint: *const EventEndpoint, connection: u64) -> c_int {
    // SAFETY: the header's promise.
    number(|| Ok(unsafe { seen(endpoint) }?.reject(ConnectionId::from_number(connection))?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_send(
    endpoint: *const EventEndpoint,
    connection: u64,
    tag: u32,
    data: *const c_void,
    size: usize,
    context: u64,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let (endpoint, data) = unsafe { (seen(endpoint)?, bytes(data, size)?) };
        Ok(endpoint.send(ConnectionId::from_number(connection), tag, data, context)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_disconnect(endpoint: *const EventEndpoint, connection: u64) -> c_int {
    // SAFETY: the header's promise.
    number(|| Ok(unsafe { seen(endpoint) }?.disconnect(ConnectionId::from_number(connection))?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_next_event(
    endpoint: *const EventEndpoint,
    milliseconds: c_int,
    event: *mut *const CEvent,
) -> c_int {
    number(|| {
        // SAFETY: the header's promise.
        let endpoint = unsafe { seen(endpoint) }?;
        // SAFETY: the header's promise. Before the wait: an event that nobody gets is lost.
        unsafe { give(event, std::ptr::null()) }?;
        let Some(next) = endpoint.next_event(time(milliseconds))? else {
            return Ok(());
        };
        // SAFETY: the header's promise.
        unsafe { give(event, lend(next)) }
    })
}
