//! One rank as a value: its engine's host, its life cycle, and the tables of objects that belong to it.
//!
//! The edge makes one [`Process`] when the first of `MPI_Init` or `MPI_Session_init` is called and keeps it while
//! [`Process::users`] is above zero; then it may drop the engine. Everything here is callable from any thread.

use crate::attr::Keyvals;
use crate::comm::context::{self, Contexts};
use crate::comm::{Comm, Parts};
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use crate::limits::{ERR_LASTCODE, TAG_UB, USER_ERRORS_MAX};
use crate::p2p::buffer::Buffers;
use crate::request::Request;
use garonne_engine::api::{self, Origin};
use garonne_progress::host::Host;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// What a rank is told about itself and its surroundings when it starts.
pub struct Config {
    /// The engine of this rank.
    pub host: Arc<dyn Host>,
    /// The processes that share this rank's node, itself included.
    pub node: Group,
    /// Index of the program within a job of several programs (`MPI_APPNUM`).
    pub appnum: Option<i32>,
    /// Processes that the job could have (`MPI_UNIVERSE_SIZE`).
    pub universe_size: Option<i32>,
    /// `MPI_Get_processor_name`.
    pub processor_name: String,
    /// The pairs of `MPI_INFO_ENV` (`command`, `argv`, `maxprocs`, `host`, `arch`, `wdir` …).
    pub env: Vec<(String, String)>,
    /// Names of the edge's functions by [`Origin::call`].
    pub call_name: fn(u16) -> &'static str,
    /// A readable place for [`Origin::site`]; the empty string when there is none.
    pub site_name: fn(u64) -> String,
}

impl Config {
    /// The least a rank must know: used by simulated jobs and tests. All ranks share one node.
    pub fn plain(host: Arc<dyn Host>) -> Self {
        let node = Group::world(host.world_size());
        Self {
            host,
            node,
            appnum: None,
            universe_size: None,
            processor_name: "localhost".into(),
            env: Vec::new(),
            call_name: |_| "an MPI call",
            site_name: |_| String::new(),
        }
    }
}

/// Thread support levels with their numbers in the ABI, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum ThreadLevel {
    Single = 0,
    Funneled = 1024,
    Serialized = 2048,
    Multiple = 4096,
}

impl TryFrom<i32> for ThreadLevel {
    type Error = Error;

    fn try_from(level: i32) -> Result<Self> {
        [Self::Single, Self::Funneled, Self::Serialized, Self::Multiple]
            .into_iter()
            .find(|known| *known as i32 == level)
            .ok_or_else(|| Error::new(Class::Arg, format!("{level} is not a level of thread support")))
    }
}

/// One MPI process. Everything a communicator needs from its rank is reached through here.
pub struct Process {
    /// The engine of this rank.
    pub host: Arc<dyn Host>,
    /// What this rank was told at its start.
    pub config: Config,
    /// Attribute keys of all kinds.
    pub keyvals: Keyvals,
    /// Buffer of `MPI_Buffer_attach`.
    pub buffers: Buffers,
    pub(crate) contexts: Arc<Contexts>,
    life: Mutex<Life>,
    /// World model (at most once) and open sessions.
    users: AtomicU32,
    errors: Mutex<UserErrors>,
    /// Requests freed while active: kept so that their communicators and engine slots live until they are over.
    retired: Mutex<Vec<Request>>,
}

#[derive(Default)]
struct Life {
    world: Option<Comm>,
    this: Option<Comm>,
    stage: Stage,
    main_thread: Option<ThreadId>,
    level: Option<ThreadLevel>,
}

/// Where the world model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Before `MPI_Init`.
    #[default]
    Before,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Running,
    /// After `MPI_Finalize`.
    Finalized,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under these locks; each update leaves a consistent value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Predefined attribute keys of communicators, with their numbers in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum PredefinedKey {
    TagUb = 501,
    Io = 502,
    Host = 503,
    WtimeIsGlobal = 504,
    Appnum = 505,
    LastUsedCode = 506,
    UniverseSize = 507,
}

impl PredefinedKey {
    /// The key of this number, if it is one.
    pub fn from_number(keyval: i32) -> Option<Self> {
        use PredefinedKey::*;
        [TagUb, Io, Host, WtimeIsGlobal, Appnum, LastUsedCode, UniverseSize].into_iter().find(|key| *key as i32 == keyval)
    }
}

impl Process {
    /// A rank whose engine is up. Nothing is initialised in the sense of MPI yet.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            host: config.host.clone(),
            config,
            keyvals: Keyvals::default(),
            buffers: Buffers::default(),
            contexts: Contexts::new(),
            life: Mutex::default(),
            users: AtomicU32::new(0),
            errors: Mutex::default(),
            retired: Mutex::default(),
        })
    }

    /// `MPI_Init_thread`: gives the level provided. All levels are supported.
    pub fn init(self: &Arc<Self>, required: ThreadLevel) -> Result<ThreadLevel> {
        let mut life = lock(&self.life);
        match life.stage {
            Stage::Before => {}
            Stage::Running => return Err(Error::new(Class::Other, "MPI_Init was called twice")),
            Stage::Finalized => return Err(Error::new(Class::Other, "MPI_Init was called after MPI_Finalize")),
        }
        let world = self.predefined(context::WORLD, Group::world(self.host.world_size()), "MPI_COMM_WORLD")?;
        let this = self.predefined(context::SELF, Group::single(self.host.me()), "MPI_COMM_SELF")?;
        (life.world, life.this) = (Some(world), Some(this));
        life.stage = Stage::Running;
        life.main_thread = Some(std::thread::current().id());
        life.level = Some(required);
        self.enter();
        Ok(required)
    }

    fn predefined(self: &Arc<Self>, block: context::Block, local: Group, name: &str) -> Result<Comm> {
        let lease = self.contexts.reserve_exactly(block);
        let lease = lease.ok_or_else(|| Error::new(Class::Intern, format!("the context of {name} is in use")))?;
        let comm = Comm::build(Parts::intra(self.clone(), lease, local));
        comm.set_name(name);
        Ok(comm)
    }

    /// `MPI_Finalize`. Deletes the attributes of `MPI_COMM_SELF` first, while everything still works; completes what was
    /// buffered or freed; meets the other ranks; drops the predefined communicators. `MPI_Init` is over for good.
    pub fn finalize(self: &Arc<Self>) -> Result<()> {
        let (world, this) = match &*lock(&self.life) {
            Life { stage: Stage::Running, world: Some(world), this: Some(this), .. } => (world.clone(), this.clone()),
            Life { stage: Stage::Finalized, .. } => return Err(Error::new(Class::Other, "MPI_Finalize was called twice")),
            _ => return Err(Error::new(Class::Other, "MPI_Finalize was called before MPI_Init")),
        };
        this.0.attrs.delete_all(this.handle())?;
        self.buffers.flush(self);
        world.free()?;
        self.drain();
        world.meet()?;
        let mut life = lock(&self.life);
        (life.world, life.this, life.stage) = (None, None, Stage::Finalized);
        drop(life);
        self.leave();
        Ok(())
    }

    /// Where the world model is (`MPI_Initialized`, `MPI_Finalized`).
    pub fn stage(&self) -> Stage {
        lock(&self.life).stage
    }

    /// `MPI_Query_thread`: the level provided, once there is one.
    pub fn thread_level(&self) -> Option<ThreadLevel> {
        lock(&self.life).level
    }

    /// `MPI_Is_thread_main`.
    pub fn is_main_thread(&self) -> bool {
        lock(&self.life).main_thread == Some(std::thread::current().id())
    }

    /// `MPI_COMM_WORLD`, between init and finalize. The edge keeps the value while it lasts: this takes a lock.
    pub fn world(&self) -> Option<Comm> {
        lock(&self.life).world.clone()
    }

    /// `MPI_COMM_SELF`, between init and finalize; kept by the edge likewise.
    pub fn self_comm(&self) -> Option<Comm> {
        lock(&self.life).this.clone()
    }

    /// Counts a user of the engine: the world model or a session.
    pub(crate) fn enter(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Open sessions plus one while the world model runs. At zero the edge may shut the engine down.
    pub fn users(&self) -> u32 {
        self.users.load(Ordering::Relaxed)
    }

    /// The value of a predefined attribute; `None` where it is not set (`MPI_APPNUM` of a lone program …).
    pub fn predefined_attr(&self, key: PredefinedKey) -> Option<i32> {
        match key {
            PredefinedKey::TagUb => Some(TAG_UB),
            // Every process can do language-standard input and output.
            PredefinedKey::Io => Some(crate::ANY_SOURCE),
            PredefinedKey::Host => Some(crate::PROC_NULL),
            // Ranks of one node read one monotonic clock; between nodes it is not synchronised.
            PredefinedKey::WtimeIsGlobal => Some((self.config.node.size() == self.host.world_size()) as i32),
            PredefinedKey::Appnum => self.config.appnum,
            PredefinedKey::LastUsedCode => Some(lock(&self.errors).last),
            PredefinedKey::UniverseSize => self.config.universe_size,
        }
    }

    /// The object behind `MPI_INFO_ENV` (a fresh copy).
    pub fn env_info(&self) -> Info {
        Info::from_pairs(self.config.env.iter().cloned())
    }

    /// `MPI_Abort`: ends the job with `code`.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.host.abort(code, message)
    }

    /// What the edge does with an `Err` of a call that belongs to no object: the handler of `MPI_COMM_SELF`, or
    /// before there is one, `MPI_ERRORS_ARE_FATAL`.
    pub fn raise(&self, error: Error) -> i32 {
        match self.self_comm() {
            Some(this) => this.raise(error),
            None => self.invoke(&Errhandler::Fatal, 0, error),
        }
    }

    /// Does what `handler` says about an error on the object whose edge handle is `object`.
    pub(crate) fn invoke(&self, handler: &Errhandler, object: usize, error: Error) -> i32 {
        let code = error.code;
        match handler {
            Errhandler::Fatal | Errhandler::Abort => {
                self.host.abort(code, &format!("{}: {}", error.class.name(), error.detail))
            }
            Errhandler::Return => lock(&self.errors).recent = Some(error),
            Errhandler::User(user) => {
                lock(&self.errors).recent = Some(error);
                (user.callback)(object, code);
            }
        }
        code
    }

    /// Where a call came from, for people.
    pub(crate) fn describe(&self, origin: Origin) -> (&'static str, String) {
        let site = (self.config.site_name)(origin.site);
        ((self.config.call_name)(origin.call), if site.is_empty() { site } else { format!("   at {site}") })
    }

    /// Turns an error of the engine into one of MPI.
    #[cold]
    pub(crate) fn convert(&self, error: api::Error) -> Error {
        match error {
            api::Error::Truncated(both) => {
                let (call, at) = self.describe(both.origin);
                let text = format!(
                    "error[G0107]: message truncated\n  process {} {call}(room for {} B){at}\n  process {} sent {} B\n  \
                     help: the receive is smaller than the message; recompute its count, or use MPI_Mprobe",
                    self.host.me(), both.room, both.peer, both.sent
                );
                Error::new(Class::Truncate, text)
            }
            api::Error::Misuse(what) => Error::new(Class::Other, what),
            api::Error::Peer { peer, what } => Error::new(Class::ProcAborted, format!("process {peer}: {what}")),
            api::Error::Resource(what) => Error::new(Class::NoMem, what),
            api::Error::System { what, errno } => Error::new(Class::Other, format!("{what} failed with errno {errno}")),
        }
    }

    /// Keeps a request that the program freed until it is over (`MPI_Request_free`).
    pub(crate) fn retire(&self, request: Request) {
        let mut retired = lock(&self.retired);
        retired.retain(|old| !old.over());
        if !request.over() {
            retired.push(request);
        }
    }

    /// Waits for freed sends. Freed receives may never match; they end with the engine.
    fn drain(&self) {
        let mut sends: Vec<Request> = std::mem::take(&mut *lock(&self.retired));
        sends.retain(Request::must_finish);
        self.host.wait_until(&mut || {
            sends.retain(|request| !request.over());
            sends.is_empty()
        });
    }
}

/// Error classes, codes and strings that the program added (MPI 5.0 section 9.5).
struct UserErrors {
    /// Class of each added code; a class is its own.
    class_of: BTreeMap<i32, i32>,
    text_of: BTreeMap<i32, String>,
    /// `MPI_LASTUSEDCODE`.
    last: i32,
    /// The latest error that was returned, whose detail `MPI_Error_string` appends.
    recent: Option<Error>,
}

impl Default for UserErrors {
    fn default() -> Self {
        Self { class_of: BTreeMap::new(), text_of: BTreeMap::new(), last: ERR_LASTCODE, recent: None }
    }
}

impl UserErrors {
    fn add(&mut self, class: Option<i32>) -> Result<i32> {
        if self.class_of.len() >= USER_ERRORS_MAX {
            return Err(Error::new(Class::Other, format!("{USER_ERRORS_MAX} error codes were added already")));
        }
        let code = (ERR_LASTCODE + 1..).find(|code| !self.class_of.contains_key(code)).expect("fewer codes than numbers");
        self.class_of.insert(code, class.unwrap_or(code));
        self.last = self.last.max(code);
        Ok(code)
    }

    fn remove(&mut self, code: i32, what: &str, is_class: bool) -> Result<()> {
        match self.class_of.get(&code) {
            Some(class) if (*class == code) == is_class => {}
            _ => return Err(Error::new(Class::Arg, format!("{code} is not {what} that was added"))),
        }
        if self.text_of.contains_key(&code) {
            return Err(Error::new(Class::Arg, format!("{what} {code} still has a string; remove that first")));
        }
        if is_class && self.class_of.iter().any(|(other, class)| *class == code && *other != code) {
            return Err(Error::new(Class::Arg, format!("error class {code} still has codes; remove them first")));
        }
        self.class_of.remove(&code);
        self.last = self.class_of.last_key_value().map_or(ERR_LASTCODE, |(code, _)| *code);
        Ok(())
    }
}

/// Errors of the program's own.
impl Process {
    /// `MPI_Add_error_class`.
    pub fn add_error_class(&self) -> Result<i32> {
        lock(&self.errors).add(None)
    }

    /// `MPI_Add_error_code`. `class` may be predefined or added.
    pub fn add_error_code(&self, class: i32) -> Result<i32> {
        let mut errors = lock(&self.errors);
        if Class::try_from(class).is_err() && errors.class_of.get(&class) != Some(&class) {
            return Err(Error::new(Class::Arg, format!("{class} is not an error class")));
        }
        errors.add(Some(class))
    }

    /// `MPI_Add_error_string`. The empty string removes the text.
    pub fn add_error_string(&self, code: i32, text: &str) -> Result<()> {
        let mut errors = lock(&self.errors);
        if !errors.class_of.contains_key(&code) {
            return Err(Error::new(Class::Arg, format!("{code} is not an error code or class that was added")));
        }
        errors.text_of.insert(code, text.to_string());
        Ok(())
    }

    /// `MPI_Remove_error_class`.
    pub fn remove_error_class(&self, class: i32) -> Result<()> {
        lock(&self.errors).remove(class, "an error class", true)
    }

    /// `MPI_Remove_error_code`.
    pub fn remove_error_code(&self, code: i32) -> Result<()> {
        lock(&self.errors).remove(code, "an error code", false)
    }

    /// `MPI_Remove_error_string`.
    pub fn remove_error_string(&self, code: i32) -> Result<()> {
        match lock(&self.errors).text_of.remove(&code) {
            Some(_) => Ok(()),
            None => Err(Error::new(Class::Arg, format!("no string was added for error code {code}"))),
        }
    }

    /// `MPI_Error_class`.
    pub fn error_class(&self, code: i32) -> Result<i32> {
        if Class::try_from(code).is_ok() {
            return Ok(code);
        }
        let known = lock(&self.errors).class_of.get(&code).copied();
        known.ok_or_else(|| Error::new(Class::Arg, format!("{code} is not an error code")))
    }

    /// `MPI_Error_string`: for a code of ours its name and meaning, and the story of the latest error if it had this code.
    pub fn error_string(&self, code: i32) -> Result<String> {
        let errors = lock(&self.errors);
        if let Ok(class) = Class::try_from(code) {
            let story = errors.recent.as_ref().filter(|recent| recent.code == code && !recent.detail.is_empty());
            let story = story.map(|recent| format!("; {}", recent.detail)).unwrap_or_default();
            return Ok(format!("{}: {}{story}", class.name(), class.text()));
        }
        if !errors.class_of.contains_key(&code) {
            return Err(Error::new(Class::Arg, format!("{code} is not an error code")));
        }
        Ok(errors.text_of.get(&code).cloned().unwrap_or_default())
    }
}
