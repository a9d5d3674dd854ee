//! `garonne_strategy.h` in Rust, version 1, and what this module exports.

use crate::{Next, Way, may_wait, piece};
use std::ffi::{c_char, c_int};

const VERSION: u32 = 1;
const DECIDED: c_int = 0;
const WAIT: c_int = 1;

/// `struct garonne_message`.
#[repr(C)]
pub struct Message {
    pub peer: u32,
    pub context: u32,
    pub tag: i32,
    pub since_look: u32,
    pub last_series: u32,
    pub alike: u32,
    pub backoff: u32,
    pub reserved: u32,
    pub bytes: u64,
    pub waiting: u64,
}

/// `struct garonne_way`.
#[repr(C)]
pub struct RawWay {
    pub rate: f64,
    pub latency: f64,
    pub backlog: u64,
    pub most: u64,
    pub asked: u32,
    pub room: u32,
}

/// `struct garonne_flow`.
#[repr(C)]
pub struct Flow {
    pub ways: *const RawWay,
    pub count: u32,
    pub peer: u32,
    pub left: u64,
    pub least: u64,
}

/// `struct garonne_piece`.
#[repr(C)]
pub struct Piece {
    pub way: u32,
    pub reserved: u32,
    pub bytes: u64,
}

/// `struct garonne_strategy`. A function that is not there is `None`; this module has none for
/// orders.
#[repr(C)]
pub struct Table {
    version: u32,
    size: u32,
    name: *const c_char,
    may_wait: Option<unsafe extern "C" fn(*const Message) -> c_int>,
    order: Option<unsafe extern "C" fn(*const std::ffi::c_void, *mut u32) -> c_int>,
    piece: Option<unsafe extern "C" fn(*const Flow, *mut Piece) -> c_int>,
}

// SAFETY: its name is a constant, its functions are pure.
unsafe impl Sync for Table {}

/// What Garonne looks for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is Garonne's")]
pub static garonne_strategy_v1: Table = Table {
    version: VERSION,
    size: size_of::<Table>() as u32,
    name: c"earliest finish".as_ptr(),
    may_wait: Some(asked_may_wait),
    order: None,
    piece: Some(asked_piece),
};

unsafe extern "C" fn asked_may_wait(message: *const Message) -> c_int {
    // SAFETY: Garonne's word: it is valid until this returns.
    let message = unsafe { &*message };
    match may_wait(message.tag, message.since_look) {
        true => WAIT,
        false => DECIDED,
    }
}

unsafe extern "C" fn asked_piece(flow: *const Flow, answer: *mut Piece) -> c_int {
    // SAFETY: likewise, and there are as many ways as it says.
    let (flow, ways) = unsafe {
        (
            &*flow,
            std::slice::from_raw_parts((*flow).ways, (*flow).count as usize),
        )
    };
    let ways: Vec<Way> = ways
        .iter()
        .map(|way| Way {
            rate: way.rate,
            latency: way.latency,
            backlog: way.backlog,
            most: way.most,
            has_room: way.room > 0,
        })
        .collect();
    match piece(&ways, flow.left, flow.least) {
        Next::Wait => WAIT,
        Next::Piece(way, bytes) => {
            // SAFETY: likewise; it may be written to.
            unsafe {
                (*answer).way = way as u32;
                (*answer).bytes = bytes;
            }
            DECIDED
        }
    }
}
