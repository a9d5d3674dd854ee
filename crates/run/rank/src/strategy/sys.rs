//! Modules of strategies as `garonne_strategy.h` describes them: loading one, and calling its
//! functions.
//!
//! Nothing that a module answers is believed beyond its type: lengths, places and ways are checked
//! by who asked. What it is given to write to ends with words that it must leave alone.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use garonne_engine::schedule::plugin::{
    CoalesceQuery, PluginAnswer, PluginDecisions, StripePiece, StripeQuery, WindowView,
};
use garonne_plugin::{SharedObject, why_alone};

/// The version that this library knows.
pub const VERSION: u32 = 1;
/// Symbol that a module exports.
pub const SYMBOL: &CStr = c"garonne_strategy_v1";

const YOURS: c_int = -1;
const DECIDED: c_int = 0;
const WAIT: c_int = 1;

/// Words behind the places of an order, which stay as they are.
const GUARD: usize = 4;
/// Their value; no place.
const UNTOUCHED: u32 = u32::MAX;
/// Letters of a module's name that are shown.
const NAME_MAX: usize = 60;

/// `struct garonne_message`.
#[repr(C)]
struct RawMessage {
    peer: u32,
    context: u32,
    tag: i32,
    since_look: u32,
    last_series: u32,
    alike: u32,
    backoff: u32,
    reserved: u32,
    bytes: u64,
    waiting: u64,
}

/// `struct garonne_chunk`.
#[repr(C)]
struct RawChunk {
    bytes: u64,
    context: u32,
    tag: i32,
}

/// `struct garonne_window`.
#[repr(C)]
struct RawWindow {
    chunks: *const RawChunk,
    count: u32,
    peer: u32,
    envelopes: u32,
    reserved: u32,
    payload: u64,
}

/// `struct garonne_way`.
#[repr(C)]
struct RawWay {
    rate: f64,
    latency: f64,
    backlog: u64,
    most: u64,
    asked: u32,
    room: u32,
}

/// `struct garonne_flow`.
#[repr(C)]
struct RawFlow {
    ways: *const RawWay,
    count: u32,
    peer: u32,
    left: u64,
    least: u64,
}

/// `struct garonne_piece`.
#[repr(C)]
struct RawPiece {
    way: u32,
    reserved: u32,
    bytes: u64,
}

type MayWait = unsafe extern "C" fn(*const RawMessage) -> c_int;
type Order = unsafe extern "C" fn(*const RawWindow, *mut u32) -> c_int;
type NextPiece = unsafe extern "C" fn(*const RawFlow, *mut RawPiece) -> c_int;

/// `struct garonne_strategy`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FunctionTable {
    version: u32,
    size: u32,
    name: *const c_char,
    may_wait: Option<MayWait>,
    order: Option<Order>,
    piece: Option<NextPiece>,
}

/// A module's functions, loaded for as long as the process lives.
#[derive(Debug)]
pub struct ModuleFunctions {
    may_wait: Option<MayWait>,
    order: Option<Order>,
    piece: Option<NextPiece>,
}

/// Loads a module: its functions, and its name if it says one.
///
/// # Errors
/// Why it is none, without its path.
pub fn load(path: &Path) -> Result<(ModuleFunctions, Option<String>), String> {
    let library = SharedObject::open(path).map_err(|why| why_alone(&why, path).to_owned())?;
    let found = library.symbol(SYMBOL);
    let table = read(found)?;
    let name = (!table.name.is_null()).then(|| {
        // SAFETY: a text of the module, which ends with a zero and stays as long as it is loaded.
        let name = unsafe { CStr::from_ptr(table.name) }.to_string_lossy();
        name.chars()
            .filter(|letter| !letter.is_control())
            .take(NAME_MAX)
            .collect()
    });
    let functions = ModuleFunctions {
        may_wait: table.may_wait,
        order: table.order,
        piece: table.piece,
    };
    Ok((functions, name))
}

/// The table at an address in a module, if it is of our version.
fn read(found: *const c_void) -> Result<FunctionTable, String> {
    if found.is_null() {
        return Err(format!(
            "it is no strategy of version {VERSION}: it does not export {}",
            SYMBOL.to_string_lossy()
        ));
    }
    let table = found.cast::<FunctionTable>();
    if !table.is_aligned() {
        return Err(format!("its {} is no table", SYMBOL.to_string_lossy()));
    }
    // SAFETY: the module exports something at least as long as the two words that every version
    // begins with.
    let (version, size) = unsafe {
        (
            (&raw const (*table).version).read(),
            (&raw const (*table).size).read(),
        )
    };
    if version != VERSION {
        return Err(format!(
            "it is a strategy of version {version}; this library knows version {VERSION}"
        ));
    }
    if (size as usize) < size_of::<FunctionTable>() {
        return Err(format!(
            "its table has {size} bytes; one of version {VERSION} has {} at least",
            size_of::<FunctionTable>()
        ));
    }
    // SAFETY: it is as long as it says, and any bytes are such a table; whether they are functions
    // only their author knows.
    let table = unsafe { table.read() };
    if table.may_wait.is_none() && table.order.is_none() && table.piece.is_none() {
        return Err(String::from(
            "it decides nothing: all of its functions are NULL",
        ));
    }
    Ok(table)
}

impl ModuleFunctions {
    /// Returns the decisions for which the module has functions.
    pub fn decides(&self) -> PluginDecisions {
        PluginDecisions {
            waiting: self.may_wait.is_some(),
            order: self.order.is_some(),
            pieces: self.piece.is_some(),
        }
    }

    pub fn may_wait(&self, message: &CoalesceQuery) -> PluginAnswer<bool> {
        let Some(function) = self.may_wait else {
            return PluginAnswer::Yours;
        };
        let message = RawMessage {
            peer: message.peer,
            context: message.context,
            tag: message.tag,
            since_look: message.since_look,
            last_series: message.series.0,
            alike: message.series.1,
            backoff: message.backoff,
            reserved: 0,
            bytes: message.len,
            waiting: message.kept,
        };
        // SAFETY: the function is of this type by the module's word; the message lives for the
        // call.
        match unsafe { function(&message) } {
            DECIDED => PluginAnswer::Decided(false),
            WAIT => PluginAnswer::Decided(true),
            YOURS => PluginAnswer::Yours,
            _ => PluginAnswer::Rubbish,
        }
    }

    pub fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        let Some(function) = self.order else {
            return PluginAnswer::Yours;
        };
        let chunk = |chunk: &garonne_engine::schedule::order::WindowEntry| RawChunk {
            bytes: chunk.len,
            context: chunk.context,
            tag: chunk.tag,
        };
        let chunks: Vec<RawChunk> = window.chunks.iter().map(chunk).collect();
        let count = chunks.len();
        let asked = RawWindow {
            chunks: chunks.as_ptr(),
            count: count as u32,
            peer: window.peer,
            envelopes: window.envelopes,
            reserved: 0,
            payload: window.payload,
        };
        let mut places = vec![UNTOUCHED; count + GUARD];
        // SAFETY: likewise; there is room for all places, and for some more.
        let answer = unsafe { function(&asked, places.as_mut_ptr()) };
        let guard = places.split_off(count);
        match answer {
            _ if guard.iter().any(|word| *word != UNTOUCHED) => PluginAnswer::Rubbish,
            DECIDED => {
                PluginAnswer::Decided(places.into_iter().map(|place| place as usize).collect())
            }
            YOURS => PluginAnswer::Yours,
            _ => PluginAnswer::Rubbish,
        }
    }

    pub fn piece(&self, flow: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
        let Some(function) = self.piece else {
            return PluginAnswer::Yours;
        };
        let way = |lane: &garonne_engine::schedule::plugin::RailView| RawWay {
            rate: lane.way.rate,
            latency: lane.way.latency,
            backlog: lane.way.backlog,
            most: lane.most,
            asked: lane.asked,
            room: lane.room,
        };
        let ways: Vec<RawWay> = flow.ways.iter().map(way).collect();
        let asked = RawFlow {
            ways: ways.as_ptr(),
            count: ways.len() as u32,
            peer: flow.peer,
            left: flow.left,
            least: flow.least,
        };
        let mut piece = RawPiece {
            way: UNTOUCHED,
            reserved: 0,
            bytes: 0,
        };
        // SAFETY: likewise.
        match unsafe { function(&asked, &mut piece) } {
            DECIDED => PluginAnswer::Decided(Some(StripePiece {
                way: piece.way as usize,
                len: piece.bytes,
            })),
            WAIT => PluginAnswer::Decided(None),
            YOURS => PluginAnswer::Yours,
            _ => PluginAnswer::Rubbish,
        }
    }
}
