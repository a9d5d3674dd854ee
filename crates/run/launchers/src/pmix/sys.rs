//! The functions of libpmix that a rank calls, found at run time. PMIx has no wire protocol of its
//! own that could be spoken instead.
//!
//! Layouts are those of `pmix_common.h`, versions 3 to 5. Values are only built with room for the
//! largest variant, and only read up to the one that was asked for, so their size, which differs
//! between versions, does not matter.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use garonne_plugin::SharedObject;

const NSPACE: usize = 256;
const KEY: usize = 512;

const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// `PMIX_PROC_RANK`, which is 32 bits as well.
const RANK: u16 = 40;
/// `PMIX_GLOBAL`: for processes of this node and of others.
const GLOBAL: u8 = 3;
/// `PMIX_RANK_WILDCARD`: the job as a whole.
pub const WILDCARD: u32 = u32::MAX - 1;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    space: [c_char; NSPACE],
    pub rank: u32,
}

impl Proc {
    /// Another of the same job.
    pub fn other(&self, rank: u32) -> Self {
        Self { rank, ..*self }
    }
}

/// `pmix_value_t`, with more room than any version's has.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 7],
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; KEY],
    flags: u32,
    value: Value,
}

impl Info {
    /// A flag that is set.
    fn set(key: &CStr) -> Self {
        let mut info = Self {
            key: [0; KEY],
            flags: 0,
            value: Value {
                kind: BOOL,
                data: [1, 0, 0, 0, 0, 0, 0],
            },
        };
        for (place, byte) in info.key.iter_mut().zip(key.to_bytes()) {
            *place = *byte as c_char;
        }
        info
    }
}

type Init = unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Proc, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;

/// The library, loaded for as long as the process lives.
pub struct Library {
    init: Init,
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
}

/// Status of a call that failed (`pmix_status_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

fn done(status: c_int) -> Result<(), Status> {
    match status {
        0 => Ok(()),
        status => Err(Status(status)),
    }
}

/// A function of the library.
///
/// # Safety
/// `F` is the type of the function of that name.
unsafe fn function<F: Copy>(library: SharedObject, name: &CStr) -> Option<F> {
    let found = library.symbol(name);
    assert_eq!(size_of::<F>(), size_of::<*const c_void>());
    // SAFETY: by the caller's word; both are one address.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

impl Library {
    /// Loads the library at a path, or by its name.
    ///
    /// # Errors
    /// What the loader says, or the function that is missing.
    pub fn open(path: &Path) -> Result<Self, String> {
        let library = SharedObject::open(path)?;
        // SAFETY: the types are those of pmix.h.
        let all = unsafe {
            (|| {
                Some(Self {
                    init: function(library, c"PMIx_Init")?,
                    finalize: function(library, c"PMIx_Finalize")?,
                    abort: function(library, c"PMIx_Abort")?,
                    put: function(library, c"PMIx_Put")?,
                    commit: function(library, c"PMIx_Commit")?,
                    fence: function(library, c"PMIx_Fence")?,
                    get: function(library, c"PMIx_Get")?,
                })
            })()
        };
        all.ok_or_else(|| format!("{} is not PMIx", path.display()))
    }

    /// Connects to the launcher's server; which process this is.
    pub fn init(&self) -> Result<Proc, Status> {
        let mut own = Proc {
            space: [0; NSPACE],
            rank: 0,
        };
        // SAFETY: writes to a valid place; no information is passed.
        done(unsafe { (self.init)(&mut own, std::ptr::null(), 0) })?;
        Ok(own)
    }

    /// Leaves the server.
    pub fn finalize(&self) {
        // SAFETY: no information is passed.
        let _ = unsafe { (self.finalize)(std::ptr::null(), 0) };
    }

    /// Asks for the end of the job.
    pub fn abort(&self, code: i32) {
        // SAFETY: an empty text, and no list of processes: all.
        let _ = unsafe { (self.abort)(code, c"".as_ptr(), std::ptr::null(), 0) };
    }

    /// Stores a text for all processes.
    pub fn put(&self, key: &CStr, text: &CStr) -> Result<(), Status> {
        let value = Value {
            kind: STRING,
            data: [text.as_ptr().expose_provenance() as u64, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: key and value live for the call, which copies them.
        done(unsafe { (self.put)(GLOBAL, key.as_ptr(), &value) })
    }

    /// Waits for all processes, and hands out what they have stored.
    pub fn fence(&self) -> Result<(), Status> {
        let collect = Info::set(c"pmix.collect");
        // SAFETY: no list of processes: all of the job; one flag that lives for the call.
        unsafe {
            done((self.commit)())?;
            done((self.fence)(std::ptr::null(), 0, &collect, 1))
        }
    }

    /// A value of the process; `only_here`: nobody else is asked for it.
    fn get(&self, of: &Proc, key: &CStr, only_here: bool) -> Result<*const Value, Status> {
        let optional = Info::set(c"pmix.optional");
        let mut value = std::ptr::null_mut();
        // SAFETY: process, key and flag live for the call, which writes one pointer to a value that
        // is ours.
        done(unsafe {
            (self.get)(
                of,
                key.as_ptr(),
                &optional,
                usize::from(only_here),
                &mut value,
            )
        })?;
        match value.is_null() {
            true => Err(Status(0)),
            false => Ok(value),
        }
    }

    /// A number that the launcher has told of a process.
    pub fn number(&self, of: &Proc, key: &CStr) -> Option<u32> {
        let value = self.get(of, key, true).ok()?;
        // SAFETY: the library gave the value; its kind says which variant its data are. It is never
        // freed: there are few.
        unsafe {
            match (&raw const (*value).kind).read() {
                UINT32 | RANK => Some((&raw const (*value).data).cast::<u32>().read()),
                _ => None,
            }
        }
    }

    /// A text of a process: what it has stored, or (`only_here`) what the launcher has told of it.
    pub fn text(&self, of: &Proc, key: &CStr, only_here: bool) -> Result<String, Status> {
        let value = self.get(of, key, only_here)?;
        // SAFETY: likewise; a text ends with a zero.
        unsafe {
            if (&raw const (*value).kind).read() != STRING {
                return Err(Status(0));
            }
            let text = (&raw const (*value).data).cast::<*const c_char>().read();
            match text.is_null() {
                true => Err(Status(0)),
                false => Ok(CStr::from_ptr(text).to_string_lossy().into_owned()),
            }
        }
    }
}
