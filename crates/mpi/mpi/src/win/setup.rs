//! How the members of a window make the memory that they share.
//!
//! Each tells the others what it brings. The first member of a host makes one memory file, with
//! the control blocks of the host's members and their parts of what the library allocates. The
//! others open it. For members on other hosts each registers its control block and its memory with
//! the engine. At the end all agree on whether that worked, so that a window exists at all members
//! or at none.

use super::attached::{AttachedPiece, Attachments};
use super::epochs::Epochs;
use super::hints;
use super::open_to_all::OpenToAll;
use super::served::ServedWindow;
use super::target::{Member, MemberControl, MemberMemory, OtherHostRegion, RemotePieces};
use super::{Flavor, PredefinedValues, UNIFIED, Window, WindowInner};
use crate::attr::Attrs;
use crate::coll::{Allgather, Barrier, Elements};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use garonne_engine::api::CallOrigin;
use garonne_engine::one_sided::{AccessRights, RegionKey, RegionMemory};
use garonne_sync::memory_file::{self, MemoryFile};
use garonne_sync::peer_memory;
use garonne_sync::shm::Segment;
use garonne_sync::user::{Scratch, UserMem};
use garonne_sync::window_control::{LIST_KEY_WORDS, WindowControl};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Bytes of a page: each part of allocated memory begins on one.
const PAGE: u64 = 4096;
/// `MPI_BYTE`.
const BYTE: u16 = 0x247;

/// What one member asks for when a window is made.
#[derive(Clone, Debug)]
pub struct WindowRequest {
    /// Kind of window, the same at all members.
    pub flavor: Flavor,
    /// Memory of the program, for [`Flavor::Create`].
    pub memory: UserMem,
    /// Bytes of this member's memory.
    pub size: i64,
    /// Bytes of a unit of displacements.
    pub disp_unit: i64,
    /// Hints.
    pub info: Info,
}

/// What a member tells the others, in this order, as words.
#[derive(Clone, Copy)]
struct Contribution {
    size: u64,
    disp_unit: u64,
    address: u64,
    process: u64,
    host: u64,
    /// 0, or the class of the error that the member's arguments are.
    fault: u64,
    /// 1 + flavor, to find members that call different functions.
    flavor: u64,
    noncontiguous: u64,
    /// Alignment that the member asks for.
    align: u64,
}

const WORDS: usize = 9;

impl Contribution {
    fn to_words(self) -> [u64; WORDS] {
        [
            self.size,
            self.disp_unit,
            self.address,
            self.process,
            self.host,
            self.fault,
            self.flavor,
            self.noncontiguous,
            self.align,
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [
            size,
            disp_unit,
            address,
            process,
            host,
            fault,
            flavor,
            noncontiguous,
            align,
        ] = words;
        Self {
            size,
            disp_unit,
            address,
            process,
            host,
            fault,
            flavor,
            noncontiguous,
            align,
        }
    }
}

/// Tells all members `words`, and returns those of all, by rank.
fn exchange<const N: usize>(
    comm: &Comm,
    words: [u64; N],
    origin: CallOrigin,
) -> Result<Vec<[u64; N]>> {
    let (members, len) = (comm.size() as usize, 8 * N);
    let room = Scratch::new(len * (members + 1)).ok_or_else(no_memory)?;
    let datatype = Datatype::predefined_ref(BYTE)
        .ok_or_else(|| Error::new(Class::Intern, "MPI_BYTE is not predefined"))?;
    for (index, word) in words.into_iter().enumerate() {
        room.mem()
            .write_array(8 * index as isize, word.to_ne_bytes());
    }
    let elements = |mem| Elements {
        mem,
        count: len as u64,
        datatype,
    };
    let all = room.mem().offset(len as isize);
    let call = Allgather {
        send: Some(elements(room.mem())),
        recv: elements(all),
    };
    comm.collective(&call, origin)?;
    let word = |index: usize| u64::from_ne_bytes(all.read_array(8 * index as isize));
    Ok((0..members)
        .map(|member| std::array::from_fn(|index| word(member * N + index)))
        .collect())
}

#[cold]
fn no_memory() -> Error {
    Error::new(Class::NoMem, "no memory is left for a window")
}

/// Refuses arguments of this member that are wrong.
fn check(request: &WindowRequest) -> Result<()> {
    if request.size < 0 {
        let text = format!(
            "the window's size is {}; it must not be negative",
            request.size
        );
        return Err(Error::new(Class::Size, text));
    }
    if request.disp_unit <= 0 || request.disp_unit > i64::from(i32::MAX) {
        let text = format!(
            "the unit of displacements is {}; it must be positive, and fit into an int",
            request.disp_unit
        );
        return Err(Error::new(Class::Disp, text));
    }
    if request.flavor == Flavor::Create && request.size > 0 && request.memory.addr(0) == 0 {
        let text = format!("the window's {} bytes are at a null pointer", request.size);
        return Err(Error::new(Class::Base, text));
    }
    Ok(())
}

/// Makes a window. Collective.
pub(super) fn create(comm: &Comm, request: WindowRequest, origin: CallOrigin) -> Result<Window> {
    if comm.is_inter() {
        return Err(comm.error(
            Class::Comm,
            "is an intercommunicator; windows are made on intracommunicators",
        ));
    }
    // The members have the same errors: one that only one of them sees would leave the others
    // waiting.
    let checked = check(&request);
    let own = comm
        .create(comm.group(), origin)?
        .ok_or_else(|| Error::new(Class::Intern, "the communicator of a window has no members"))?;
    own.set_name("window");
    let process = own.process();
    let host_of = |peer| (process.config.node_of)(peer);
    let contribution = Contribution {
        size: request.size.max(0) as u64,
        disp_unit: request.disp_unit.max(0) as u64,
        address: request.memory.addr(0) as u64,
        process: std::process::id().into(),
        host: host_of(process.host.me()).into(),
        fault: checked.as_ref().err().map_or(0, |error| error.class as u64),
        flavor: 1 + request.flavor as u64,
        noncontiguous: hints::is_noncontiguous(&request.info).into(),
        align: hints::alignment(&request.info),
    };
    let told: Vec<_> = exchange(&own, contribution.to_words(), origin)?
        .into_iter()
        .map(Contribution::from_words)
        .collect();
    checked?;
    check_told(&own, &told, &contribution)?;
    let plan = FilePlan::new(&told, contribution.host, request.flavor)
        .ok_or_else(|| Error::new(Class::Size, "the window's memory exceeds 64 bits"))?;
    let memory = share(&own, &plan, origin)?;
    build(own, request, &told, (&plan, &memory), origin)
}

/// Refuses what members told, at all of them alike.
fn check_told(comm: &Comm, told: &[Contribution], mine: &Contribution) -> Result<()> {
    let find = |what: &dyn Fn(&Contribution) -> bool| told.iter().position(what);
    if let Some(rank) = find(&|one| one.fault != 0) {
        let class = Class::try_from(told[rank].fault as i32).unwrap_or(Class::Arg);
        let text = format!("makes no window: arguments of rank {rank} were refused");
        return Err(comm.error(class, text));
    }
    if let Some(rank) = find(&|one| one.flavor != mine.flavor) {
        let text = format!("makes no window: rank {rank} calls a function for another kind");
        return Err(comm.error(Class::Win, text));
    }
    if let Some(rank) = find(&|one| one.host != told[0].host) {
        let hosts = format!("ranks 0 and {rank} are on different hosts");
        if mine.flavor == 1 + Flavor::Shared as u64 {
            let text = format!("cannot share memory: {hosts}");
            return Err(comm.error(Class::RmaShared, text));
        }
    }
    if told.len() > garonne_sync::window_lock::MEMBERS_MAX {
        let text = format!("makes no window: it has {} members", told.len());
        return Err(comm.error(Class::UnsupportedOperation, text));
    }
    Ok(())
}

/// Where everything is in the memory file of a window on one host.
struct FilePlan {
    /// Bytes of a control block.
    control: usize,
    /// Parts follow each other without gaps.
    contiguous: bool,
    /// First member on the host: it makes the file.
    first: usize,
    /// All members are on the host.
    one_host: bool,
    /// Offsets of each member's control block and part; `None` for members on other hosts. Parts
    /// are empty where the library allocates nothing.
    places: Vec<Option<(usize, usize)>>,
    /// Bytes of the file.
    len: usize,
    /// Parts that follow each other with gaps begin at multiples of this, at all members.
    align: usize,
}

impl FilePlan {
    /// `None`: the sum exceeds 64 bits.
    fn new(told: &[Contribution], host: u64, flavor: Flavor) -> Option<Self> {
        let control = WindowControl::bytes(told.len());
        let is_here = |one: &&Contribution| one.host == host;
        let here = told.iter().filter(is_here).count();
        let mut end = u64::try_from(control.checked_mul(here)?).ok()?;
        let allocates = matches!(flavor, Flavor::Allocate | Flavor::Shared);
        let contiguous = flavor == Flavor::Shared && told.iter().all(|one| one.noncontiguous == 0);
        let asked = told.iter().filter(|_| allocates).map(|one| one.align);
        let align = asked.fold(PAGE, u64::max);
        let (mut places, mut controls) = (Vec::with_capacity(told.len()), 0);
        end = end.checked_next_multiple_of(align)?;
        for one in told {
            if !is_here(&one) {
                places.push(None);
                continue;
            }
            if !contiguous {
                end = end.checked_next_multiple_of(align)?;
            }
            places.push(Some((controls, usize::try_from(end).ok()?)));
            controls += control;
            if allocates {
                end = end.checked_add(one.size)?;
            }
        }
        let len = end.checked_next_multiple_of(PAGE)?;
        (len <= i64::MAX as u64).then_some(())?;
        Some(Self {
            control,
            contiguous,
            first: told.iter().position(|one| one.host == host)?,
            one_host: here == told.len(),
            places,
            len: usize::try_from(len).ok()?,
            align: usize::try_from(align).ok()?,
        })
    }
}

/// Makes the memory file of this host, or opens it, and agrees with all members on it.
fn share(comm: &Comm, plan: &FilePlan, origin: CallOrigin) -> Result<Segment> {
    let (me, len) = (comm.rank() as usize, plan.len);
    let maker = plan.first;
    let made = (me == maker).then(|| MemoryFile::create(len, plan.align));
    let number = match &made {
        Some(Ok((file, _))) => file.number() as u64 + 1,
        Some(Err(error)) => 1 << 32 | error.raw_os_error().unwrap_or(0) as u64,
        None => 0,
    };
    let holder = match &made {
        Some(Ok((file, _))) => file.holder().into(),
        _ => 0,
    };
    let numbers = exchange(comm, [number, holder], origin)?;
    if let Some(rank) = numbers.iter().position(|[number, _]| number >> 32 != 0) {
        let error = io::Error::from_raw_os_error(numbers[rank][0] as u32 as i32);
        let text = format!("makes no window: rank {rank} cannot make its shared memory: {error}");
        return Err(comm.error(Class::NoMem, text));
    }
    let (file, opened) = match made {
        Some(Ok((file, memory))) => (Some(file), Ok(memory)),
        _ => {
            let [number, holder] = numbers[maker];
            let size = (len, plan.align);
            let opened = memory_file::open(holder as u32, number as i32 - 1, size);
            (None, opened)
        }
    };
    let word = match &opened {
        Ok(_) => 0,
        Err(error) => 1 << 32 | error.raw_os_error().unwrap_or(0) as u64,
    };
    let words = exchange(comm, [word], origin)?;
    drop(file);
    if let Some(rank) = words.iter().position(|[word]| *word != 0) {
        let error = io::Error::from_raw_os_error(words[rank][0] as u32 as i32);
        let text = format!(
            "makes no window: rank {rank} cannot map the shared memory of its host: {error}"
        );
        return Err(comm.error(Class::NoMem, text));
    }
    opened.map_err(|_| no_memory())
}

/// Words of a key in messages: its length, and its bytes.
const KEY_WORDS: usize = LIST_KEY_WORDS;
const _: () = assert!(KEY_WORDS == 1 + RegionKey::BYTES_MAX.div_ceil(8));

/// Returns a key as words; all 0 for none.
pub(super) fn key_words(key: Option<&RegionKey>) -> [u64; KEY_WORDS] {
    let bytes = key.map(RegionKey::encode).unwrap_or_default();
    let mut words = [0; KEY_WORDS];
    words[0] = bytes.len() as u64;
    for (word, piece) in words[1..].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..piece.len()].copy_from_slice(piece);
        *word = u64::from_ne_bytes(whole);
    }
    words
}

/// Returns the key that these words are.
pub(super) fn key_of(words: &[u64]) -> Option<RegionKey> {
    let (len, rest) = words.split_first()?;
    let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_ne_bytes()).collect();
    RegionKey::decode(bytes.get(..usize::try_from(*len).ok()?)?)
}

/// Regions of a member: its control block and its memory, if it has any.
type RegionKeys = (Option<RegionKey>, Option<RegionKey>);

/// Registers this member's control block and memory for members on other hosts. Returns those of
/// all members.
fn open_regions(
    comm: &Comm,
    control: &WindowControl,
    (memory, len): (UserMem, u64),
    origin: CallOrigin,
) -> Result<(Vec<RegionKey>, Vec<RegionKeys>)> {
    let host = &comm.process().host;
    let register = |mem, len| {
        host.register_region(RegionMemory {
            mem,
            len,
            rights: AccessRights::ALL,
        })
    };
    let bytes = WindowControl::bytes(comm.size() as usize) as u64;
    let control = register(control.mem(), bytes).ok();
    let memory = (len > 0).then(|| register(memory, len).ok()).flatten();
    let own: Vec<RegionKey> = control.iter().chain(&memory).copied().collect();
    let told = exchange(comm, key_words(control.as_ref()), origin)?;
    let controls = told.iter().map(|words| key_of(words));
    let told = exchange(comm, key_words(memory.as_ref()), origin)?;
    let memories = told.iter().map(|words| key_of(words));
    Ok((own, controls.zip(memories).collect()))
}

/// Makes this member's side.
fn build(
    comm: Comm,
    request: WindowRequest,
    told: &[Contribution],
    (plan, file): (&FilePlan, &Segment),
    origin: CallOrigin,
) -> Result<Window> {
    let (flavor, me) = (request.flavor, comm.rank() as usize);
    let missing = || Error::new(Class::Intern, "the control block of a window");
    let control_at = |at| WindowControl::new(file.part(at, plan.control), told.len());
    let own = plan.places[me].ok_or_else(missing)?;
    let own_control = control_at(own.0).ok_or_else(missing)?;
    let allocated = |(_, at): (usize, usize), one: &Contribution| file.part(at, one.size as usize);
    let own_memory = match flavor {
        Flavor::Allocate | Flavor::Shared => {
            let part = allocated(own, &told[me]);
            part.mem(0, part.len())
        }
        Flavor::Create => request.memory,
        Flavor::Dynamic => UserMem::null(),
    };
    let (regions, keys) = match plan.one_host {
        true => (Vec::new(), vec![(None, None); told.len()]),
        false => open_regions(&comm, &own_control, (own_memory, told[me].size), origin)?,
    };
    if let Some(rank) = keys
        .iter()
        .position(|key| !plan.one_host && key.0.is_none())
    {
        let text = format!("makes no window: rank {rank} cannot register memory");
        return Err(comm.error(Class::NoMem, text));
    }
    let host = comm.process().host.clone();
    let members: Option<Vec<Member>> = told
        .iter()
        .zip(&keys)
        .enumerate()
        .map(|(rank, (one, keys))| {
            let peer = comm.group().peer(rank as u32)?;
            let region = |key: Option<RegionKey>| key.map(|key| OtherHostRegion { peer, key });
            let place = plan.places[rank];
            let process = host.process_of(peer);
            let is_same_process = process == Some(std::process::id());
            let beside = || is_same_process.then(|| peer_memory::of_this_process(one.address));
            let near = match (flavor, place) {
                (Flavor::Allocate | Flavor::Shared, Some(place)) => {
                    let part = allocated(place, one);
                    Some(part.mem(0, part.len()))
                }
                (Flavor::Create, _) if rank == me => Some(request.memory),
                (Flavor::Create, Some(_)) => beside(),
                _ => None,
            };
            Some(Member {
                near,
                size: one.size,
                disp_unit: one.disp_unit,
                process: process.unwrap_or(one.process as u32),
                is_same_process,
                control: match place {
                    Some((at, _)) => MemberControl::Mapped(control_at(at)?),
                    None => MemberControl::OtherHost(region(keys.0)?),
                },
                memory: match (flavor, place) {
                    (Flavor::Dynamic, _) => MemberMemory::Attached(Mutex::default()),
                    (_, None) => MemberMemory::OtherHost(RemotePieces {
                        peer,
                        pieces: Arc::new([AttachedPiece {
                            start: 0,
                            len: one.size,
                            key: keys.1,
                        }]),
                    }),
                    (Flavor::Allocate | Flavor::Shared, Some(place)) => {
                        MemberMemory::Mapped(allocated(place, one))
                    }
                    (Flavor::Create, _) if rank == me => MemberMemory::Own(request.memory),
                    (Flavor::Create, _) => beside().map_or(
                        MemberMemory::Process(one.address),
                        MemberMemory::SameProcess,
                    ),
                },
            })
        })
        .collect();
    let members = members.ok_or_else(missing)?;
    let doorbells = (0..told.len() as u32)
        .map(|rank| comm.group().peer(rank).and_then(|peer| host.doorbell(peer)))
        .collect();
    let window = Window(Arc::new(WindowInner {
        flavor,
        contiguous: plan.contiguous,
        one_host: plan.one_host,
        near_accesses: AtomicU32::new(0),
        _served: (!plan.one_host).then(|| ServedWindow::begin(&host)),
        regions,
        epochs: Mutex::new(Epochs::default()),
        open_to_all: OpenToAll::default(),
        attachments: Mutex::new(Attachments::default()),
        own_control,
        first_control: plan
            .places
            .iter()
            .flatten()
            .next()
            .and_then(|place| control_at(place.0)),
        attrs: Attrs::default(),
        name: Mutex::default(),
        errhandler: Mutex::new(comm.process().config.initial_errhandler.clone()),
        info: hints::of_new(flavor, &request.info),
        values: PredefinedValues {
            base: own_memory.addr(0),
            size: AtomicIsize::new(request.size as isize),
            disp_unit: AtomicI32::new(request.disp_unit as i32),
            flavor: AtomicI32::new(flavor as i32),
            model: AtomicI32::new(UNIFIED),
        },
        doorbells,
        handle: AtomicUsize::new(0),
        members,
        comm,
    }));
    // Nobody accesses a member before that member has the window.
    window.comm().collective(&Barrier, origin)?;
    Ok(window)
}
