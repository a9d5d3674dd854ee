//! Events as C programs see them, with the memory that they lend.

use crate::errors::{number_of, words};
use garonne::{CloseCause, Delivery, Error, Event};
use std::ffi::{CString, c_char, c_int, c_void};

/// Kinds of events, as in `garonne.h`.
const CONNECT_REQUEST: c_int = 1;
const CONNECTED: c_int = 2;
const CONNECT_FAILED: c_int = 3;
const MESSAGE: c_int = 4;
const SENT: c_int = 5;
const CLOSED: c_int = 6;
const ACCESS_DONE: c_int = 7;
const NOTIFIED: c_int = 8;
const WITHDRAWN: c_int = 9;

/// Causes of an end, as in `garonne.h`.
const CLOSED_HERE: c_int = 1;
const PEER_LEFT: c_int = 2;
const PEER_LOST: c_int = 3;

/// `struct garonne_event`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CEvent {
    kind: c_int,
    connection: u64,
    tag: u32,
    context: u64,
    status: c_int,
    delivery: c_int,
    cause: c_int,
    number: u64,
    data: *const c_void,
    size: usize,
    text: *const c_char,
}

/// An event and all it points to. The C event comes first: its address is that of the whole.
#[repr(C)]
#[derive(Debug)]
struct LentEvent {
    event: CEvent,
    data: Vec<u8>,
    /// `None`: nothing went wrong.
    text: Option<CString>,
}

/// Number of a promise, as in `garonne.h`.
fn number_of_delivery(delivery: Delivery) -> c_int {
    match delivery {
        Delivery::ReliableOrdered => 0,
        Delivery::Reliable => 1,
        // Datagram, and whatever comes later.
        _ => 2,
    }
}

/// Hands an event to the program.
pub(crate) fn lend(event: Event) -> *const CEvent {
    let mut lent = Box::new(LentEvent {
        event: CEvent {
            kind: 0,
            connection: 0,
            tag: 0,
            context: 0,
            status: 0,
            delivery: 0,
            cause: 0,
            number: 0,
            data: std::ptr::null(),
            size: 0,
            text: std::ptr::null(),
        },
        data: Vec::new(),
        text: None,
    });
    let mut failed = None;
    let to = &mut lent.event;
    match event {
        Event::ConnectRequest {
            connection,
            delivery,
            data,
        } => {
            (to.kind, to.connection) = (CONNECT_REQUEST, connection.number());
            to.delivery = number_of_delivery(delivery);
            lent.data = data;
        }
        Event::Connected { connection, data } => {
            (to.kind, to.connection) = (CONNECTED, connection.number());
            lent.data = data;
        }
        Event::ConnectFailed { connection, error } => {
            (to.kind, to.connection) = (CONNECT_FAILED, connection.number());
            failed = Some(error);
        }
        Event::Message {
            connection,
            tag,
            message,
        } => {
            (to.kind, to.connection, to.tag) = (MESSAGE, connection.number(), tag);
            lent.data = message.into_vec();
        }
        Event::Sent {
            connection,
            context,
            result,
            ..
        } => {
            (to.kind, to.connection, to.context) = (SENT, connection.number(), context);
            failed = result.err();
        }
        Event::AccessDone {
            connection,
            context,
            bytes,
            result,
        } => {
            (to.kind, to.connection, to.context) = (ACCESS_DONE, connection.number(), context);
            failed = result.err();
            lent.data = bytes;
        }
        Event::Notified { connection, number } => {
            (to.kind, to.connection, to.number) = (NOTIFIED, connection.number(), number);
        }
        Event::Withdrawn { connection, region } => {
            (to.kind, to.connection) = (WITHDRAWN, connection.number());
            to.number = region.number();
        }
        Event::Closed { connection, cause } => {
            (to.kind, to.connection) = (CLOSED, connection.number());
            to.cause = match cause {
                CloseCause::Closed => CLOSED_HERE,
                CloseCause::PeerLeft => PEER_LEFT,
                CloseCause::PeerLost(error) => {
                    failed = Some(error);
                    PEER_LOST
                }
                // Whatever comes later is no good end.
                _ => PEER_LOST,
            };
        }
        // A kind that this library does not know yet has no number.
        _ => {}
    }
    tell(&mut lent, failed);
    Box::into_raw(lent).cast()
}

/// Fills in what the event points to.
fn tell(lent: &mut LentEvent, failed: Option<Error>) {
    if let Some(error) = failed {
        lent.event.status = number_of(&error);
        lent.text = Some(words(&error));
    }
    lent.event.data = lent.data.as_ptr().cast();
    lent.event.size = lent.data.len();
    lent.event.text = lent.text.as_deref().unwrap_or_default().as_ptr();
}

/// Takes an event back.
#[unsafe(no_mangle)]
unsafe extern "C" fn garonne_event_release(event: *const CEvent) {
    if !event.is_null() {
        // SAFETY: the program gives back what `lend` made, once; the C event is its first part.
        drop(unsafe { Box::from_raw(event.cast_mut().cast::<LentEvent>()) });
    }
}
