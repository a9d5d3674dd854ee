//! One reliable endpoint of one provider: messages of bounded size through its own buffers, and
//! reads of peers' registered memory.
//!
//! Owned by one rank; whoever shares it locks it. Sends copy into buffers that were registered
//! once, so memory is bounded by [`SENDS`] and [`RECEIVES`] buffers of [`MESSAGE_MAX`] bytes, and a
//! caller who finds none free comes again. Nothing blocks. Large memory is registered for each
//! transfer and never kept: a registration that outlives the program's mapping would let peers read
//! what is not theirs. Operations are known to the library by the address of a slot of `contexts`;
//! what it gives back is turned into an index and checked, never followed.

use crate::abi::{self, Addr};
use crate::library::{Error, Library, Provider, Providers};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

/// Bytes of a message at most.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// Buffers that wait for messages.
pub const RECEIVES: usize = 64;
/// Messages on their way out at most.
pub const SENDS: usize = 64;
/// Reads under way at most.
pub const READS: usize = 64;
/// Bytes of an address at most.
const ADDRESS_MAX: usize = 256;
/// Completions taken at a time.
const COMPLETIONS: usize = 16;

/// Words that the library may write to while an operation is under way: `struct fi_context2`.
type Context = [u64; 8];

/// Event that a poll tells.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message came. Who sent it is for its bytes to prove.
    Message(&'a [u8]),
    /// A message to this peer did not arrive, as far as is known.
    Unsent(Peer, String),
    /// The read of this token is over; its memory is the caller's again.
    Read(u64, Result<(), String>),
}

/// A peer whose address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(Addr);

/// Memory that peers may read, or that reads go to, until it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// With which a peer reads it.
    pub key: u64,
    /// Address of the first byte, as a peer names it.
    pub at: u64,
    number: u64,
}

/// Owner and purpose of the memory that an operation moves.
#[derive(Clone, Copy, Debug)]
enum CompletionUse {
    Free,
    Receive,
    Send(Peer),
    Read(u64),
}

/// An endpoint of libfabric: messages to peers, and reads of their memory. Owned by one thread;
/// polled for its events.
#[derive(Debug)]
pub struct Endpoint {
    library: Library,
    offer: Provider,
    mr_mode: c_int,
    fabric: *mut abi::Fabric,
    domain: *mut abi::Domain,
    av: *mut abi::Av,
    cq: *mut abi::Cq,
    ep: *mut abi::Ep,
    wait: Option<RawFd>,
    address: Vec<u8>,
    /// `receives` and then `sends` buffers. Raw: the library writes to them at any time.
    buffers: *mut [u8],
    buffers_region: Option<Region>,
    contexts: *mut [Context],
    uses: Vec<CompletionUse>,
    regions: HashMap<u64, *mut abi::Mr>,
    next_number: u64,
    /// Buffers that wait for messages, and for messages on their way out: none where only memory is
    /// read.
    receives: usize,
    sends: usize,
    /// Bytes that one read moves at most.
    read_max: usize,
    /// Buffers whose receive could not be posted again at once.
    unposted: Vec<usize>,
}

// SAFETY: everything is owned by the endpoint; objects of the library may be used by any one thread
// at a time.
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens the first offer that can be opened.
    ///
    /// # Errors
    /// Why the last could not.
    pub fn open(offers: &Providers) -> Result<Self, Error> {
        Self::open_for(offers, RECEIVES, SENDS)
    }

    /// Opens, as [`open`](Self::open) does, for reads of memory alone: it takes no messages, and
    /// has no buffers for any.
    ///
    /// # Errors
    /// Why the last offer could not be opened.
    pub fn open_for_reads(offers: &Providers) -> Result<Self, Error> {
        Self::open_for(offers, 0, 0)
    }

    fn open_for(offers: &Providers, receives: usize, sends: usize) -> Result<Self, Error> {
        let mut last = Error::Call("fi_getinfo", String::from("nothing is offered"));
        for (info, offer) in offers.infos().zip(offers.list()) {
            // SAFETY: the list fills in this part of what it offers.
            let (mr_mode, read_max) = unsafe {
                (
                    (*(*info).domain_attr).mr_mode,
                    (*(*info).ep_attr).max_msg_size,
                )
            };
            let mut opened = Self {
                library: offers.library,
                offer,
                mr_mode,
                fabric: ptr::null_mut(),
                domain: ptr::null_mut(),
                av: ptr::null_mut(),
                cq: ptr::null_mut(),
                ep: ptr::null_mut(),
                wait: None,
                address: Vec::new(),
                buffers: Box::into_raw(
                    vec![0; (receives + sends) * MESSAGE_MAX].into_boxed_slice(),
                ),
                buffers_region: None,
                contexts: Box::into_raw(vec![[0; 8]; receives + sends + READS].into_boxed_slice()),
                uses: vec![CompletionUse::Free; receives + sends + READS],
                regions: HashMap::new(),
                next_number: 1,
                receives,
                sends,
                read_max,
                unposted: (0..receives).collect(),
            };
            match opened.bring_up(info) {
                Ok(()) => return Ok(opened),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn call(&self, what: &'static str, status: c_int) -> Result<(), Error> {
        match status {
            0 => Ok(()),
            status => Err(self.library.error(what, status as isize)),
        }
    }

    fn bring_up(&mut self, info: *mut abi::Info) -> Result<(), Error> {
        let none = ptr::null_mut();
        // SAFETY: objects are made in the order that the library asks for, each from those before,
        // and tables are its own. Attributes live during the calls.
        unsafe {
            let opened = (self.library.open_fabric)((*info).fabric_attr, &mut self.fabric, none);
            self.call("fi_fabric", opened)?;
            let opened = ((*(*self.fabric).ops).domain)(self.fabric, info, &mut self.domain, none);
            self.call("fi_domain", opened)?;
            let domain = &*(*self.domain).ops;
            let mut attr = abi::AvAttr {
                kind: 0,
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: ptr::null(),
                map_addr: none,
                flags: 0,
            };
            let opened = (domain.av_open)(self.domain, &mut attr, &mut self.av, none);
            self.call("fi_av_open", opened)?;
            let mut attr = abi::CqAttr {
                size: self.uses.len(),
                flags: 0,
                format: abi::CQ_FORMAT_MSG,
                wait_obj: abi::WAIT_FD,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: none,
            };
            if (domain.cq_open)(self.domain, &mut attr, &mut self.cq, none) == 0 {
                let (mut fd, control) = (-1, (*(*self.cq).fid.ops).control);
                let told = control(&mut (*self.cq).fid, abi::GETWAIT, (&raw mut fd).cast());
                self.wait = (told == 0 && fd >= 0).then_some(fd);
            } else {
                (self.cq, attr.wait_obj) = (ptr::null_mut(), abi::WAIT_NONE);
                let opened = (domain.cq_open)(self.domain, &mut attr, &mut self.cq, none);
                self.call("fi_cq_open", opened)?;
            }
            let opened = (domain.endpoint)(self.domain, info, &mut self.ep, none);
            self.call("fi_endpoint", opened)?;
            let (ep, ops) = (&raw mut (*self.ep).fid, &*(*self.ep).fid.ops);
            let bound = (ops.bind)(ep, &mut (*self.av).fid, 0);
            self.call("fi_ep_bind", bound)?;
            let bound = (ops.bind)(ep, &mut (*self.cq).fid, abi::SEND | abi::RECV);
            self.call("fi_ep_bind", bound)?;
            let enabled = (ops.control)(ep, abi::ENABLE, none);
            self.call("fi_enable", enabled)?;
            let mut address = [0; ADDRESS_MAX];
            let mut len = ADDRESS_MAX;
            let named = ((*(*self.ep).cm).getname)(ep, address.as_mut_ptr().cast(), &mut len);
            self.call("fi_getname", named)?;
            self.address = address[..len.min(ADDRESS_MAX)].to_vec();
            if self.mr_mode & abi::MR_LOCAL != 0 && self.buffers.len() > 0 {
                self.buffers_region = Some(self.register(
                    self.buffers.cast(),
                    self.buffers.len(),
                    abi::SEND | abi::RECV,
                )?);
            }
        }
        self.post()
    }

    /// Returns the provider that it was opened by.
    pub fn offer(&self) -> &Provider {
        &self.offer
    }

    /// Bytes that one [`read`](Self::read) moves at most.
    pub fn read_max(&self) -> usize {
        self.read_max
    }

    /// Returns the address, for peers to [`insert`](Self::insert).
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// A descriptor that becomes readable when there is something to poll for, if
    /// [`may_sleep`](Self::may_sleep) allowed to wait for it. `None`: this provider has none, and
    /// is to be polled.
    pub fn wait(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open as long as the queue is.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns whether nothing lies ready, and the descriptor will tell.
    pub fn may_sleep(&mut self) -> bool {
        // SAFETY: both objects are open, and the list has one entry.
        self.wait.is_some()
            && unsafe {
                let mut fid = &raw mut (*self.cq).fid;
                ((*(*self.fabric).ops).trywait)(self.fabric, &mut fid, 1) == 0
            }
    }

    /// Learns a peer's address.
    ///
    /// # Errors
    /// No endpoint of this provider has such an address.
    pub fn insert(&mut self, address: &[u8]) -> Result<Peer, Error> {
        let wrong = Err(Error::Call(
            "fi_av_insert",
            String::from("not an address of this provider"),
        ));
        // The library reads as many bytes as its own addresses have.
        if address.len() != self.address.len() {
            return wrong;
        }
        let mut peer = abi::ADDR_UNSPEC;
        // SAFETY: one address of the right length.
        let inserted = unsafe {
            ((*(*self.av).ops).insert)(
                self.av,
                address.as_ptr().cast(),
                1,
                &mut peer,
                0,
                ptr::null_mut(),
            )
        };
        if inserted == 1 { Ok(Peer(peer)) } else { wrong }
    }

    fn context(&self, index: usize) -> *mut c_void {
        debug_assert!(index < self.contexts.len());
        // SAFETY: within the slots.
        unsafe { self.contexts.cast::<Context>().add(index).cast() }
    }

    fn buffer(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.receives + self.sends);
        // SAFETY: within the buffers.
        unsafe { self.buffers.cast::<u8>().add(index * MESSAGE_MAX) }
    }

    fn descriptor(&self, region: Option<Region>) -> *mut c_void {
        let mr = region.and_then(|region| self.regions.get(&region.number));
        // SAFETY: open as long as it is listed.
        mr.map_or(ptr::null_mut(), |mr| unsafe { (**mr).mem_desc })
    }

    /// Has all buffers for messages wait for some.
    fn post(&mut self) -> Result<(), Error> {
        while let Some(index) = self.unposted.pop() {
            let (buffer, context) = (self.buffer(index).cast(), self.context(index));
            let descriptor = self.descriptor(self.buffers_region);
            // SAFETY: a buffer of ours that nothing else uses until its completion comes.
            let posted = unsafe {
                ((*(*self.ep).msg).recv)(
                    self.ep,
                    buffer,
                    MESSAGE_MAX,
                    descriptor,
                    abi::ADDR_UNSPEC,
                    context,
                )
            };
            match posted {
                0 => self.uses[index] = CompletionUse::Receive,
                abi::EAGAIN => {
                    self.unposted.push(index);
                    return Ok(());
                }
                status => {
                    self.unposted.push(index);
                    return Err(self.library.error("fi_recv", status));
                }
            }
        }
        Ok(())
    }

    fn free(&self, from: usize, slots: usize) -> Option<usize> {
        (from..from + slots).find(|index| matches!(self.uses[*index], CompletionUse::Free))
    }

    /// Sends a message of at most [`MESSAGE_MAX`] bytes, which are copied. `false`: not now.
    ///
    /// # Errors
    /// It cannot be sent to this peer.
    pub fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<bool, Error> {
        if bytes.len() > MESSAGE_MAX {
            return Err(Error::Call(
                "fi_send",
                String::from("the message is too long"),
            ));
        }
        let Some(index) = self.free(self.receives, self.sends) else {
            return Ok(false);
        };
        let (buffer, context) = (self.buffer(index), self.context(index));
        let descriptor = self.descriptor(self.buffers_region);
        // SAFETY: a buffer of ours that is free, and is not used again until its completion comes.
        let sent = unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len());
            ((*(*self.ep).msg).send)(
                self.ep,
                buffer.cast(),
                bytes.len(),
                descriptor,
                to.0,
                context,
            )
        };
        match sent {
            0 => {
                self.uses[index] = CompletionUse::Send(to);
                Ok(true)
            }
            abi::EAGAIN => Ok(false),
            status => Err(self.library.error("fi_send", status)),
        }
    }

    /// Lets peers read memory, until it is withdrawn.
    ///
    /// # Safety
    /// The memory is valid until [`withdraw`](Self::withdraw) returned, or the endpoint is dropped.
    ///
    /// # Errors
    /// The library's: no such memory, or no more of it may be registered.
    pub unsafe fn expose(&mut self, at: *const u8, len: usize) -> Result<Region, Error> {
        // SAFETY: by the caller's word.
        unsafe { self.register(at, len, abi::REMOTE_READ) }
    }

    /// # Safety
    /// As [`expose`](Self::expose).
    unsafe fn register(&mut self, at: *const u8, len: usize, access: u64) -> Result<Region, Error> {
        let number = self.next_number;
        self.next_number += 1;
        let mut mr = ptr::null_mut();
        // SAFETY: the domain is open, and the memory valid by the caller's word; a region of an
        // endpoint is bound to it before it is used.
        unsafe {
            let reg = (*(*self.domain).mr).reg;
            let (domain, none) = (&raw mut (*self.domain).fid, ptr::null_mut());
            let registered = reg(domain, at.cast(), len, access, 0, number, 0, &mut mr, none);
            self.call("fi_mr_reg", registered)?;
            self.regions.insert(number, mr);
            if self.mr_mode & abi::MR_ENDPOINT != 0 {
                let (fid, ops) = (&raw mut (*mr).fid, &*(*mr).fid.ops);
                let bound = match (ops.bind)(fid, &mut (*self.ep).fid, 0) {
                    0 => (ops.control)(fid, abi::ENABLE, none),
                    status => status,
                };
                if let Err(error) = self.call("fi_mr_enable", bound) {
                    self.close_region(number);
                    return Err(error);
                }
            }
            let by_address = self.mr_mode & abi::MR_VIRT_ADDR != 0;
            Ok(Region {
                key: (*mr).key,
                at: if by_address { at as u64 } else { 0 },
                number,
            })
        }
    }

    /// Ends the use of registered memory: no peer reads it from now on.
    pub fn withdraw(&mut self, region: Region) {
        self.close_region(region.number);
    }

    fn close_region(&mut self, number: u64) {
        if let Some(mr) = self.regions.remove(&number) {
            // SAFETY: open as long as it is listed.
            unsafe { close(&raw mut (*mr).fid) };
        }
    }

    /// Memory that reads may go to: registered where the provider asks for it.
    ///
    /// # Safety
    /// As [`expose`](Self::expose).
    ///
    /// # Errors
    /// The library's.
    pub unsafe fn prepare(&mut self, at: *mut u8, len: usize) -> Result<Option<Region>, Error> {
        if self.mr_mode & abi::MR_LOCAL == 0 {
            return Ok(None);
        }
        // SAFETY: by the caller's word.
        unsafe { self.register(at, len, abi::READ) }.map(Some)
    }

    /// Begins to read `len` bytes from a peer's region, from its byte `offset` on, to `local`,
    /// which is part of `prepared`. [`Event::Read`] ends it. `false`: not now.
    ///
    /// # Safety
    /// The local memory is valid, and nobody else uses it, until the event came or the endpoint is
    /// dropped.
    ///
    /// # Errors
    /// It cannot be begun.
    pub unsafe fn read(
        &mut self,
        token: u64,
        (from, at, key): (Peer, u64, u64),
        (local, len, prepared): (*mut u8, usize, Option<Region>),
    ) -> Result<bool, Error> {
        let Some(index) = self.free(self.receives + self.sends, READS) else {
            return Ok(false);
        };
        let (descriptor, context) = (self.descriptor(prepared), self.context(index));
        // SAFETY: by the caller's word; the slot is free.
        let begun = unsafe {
            ((*(*self.ep).rma).read)(
                self.ep,
                local.cast(),
                len,
                descriptor,
                from.0,
                at,
                key,
                context,
            )
        };
        match begun {
            0 => {
                self.uses[index] = CompletionUse::Read(token);
                Ok(true)
            }
            abi::EAGAIN => Ok(false),
            status => Err(self.library.error("fi_read", status)),
        }
    }

    /// The slot of an operation that the library names, and what it was for; it is free now.
    fn ended(&mut self, context: *mut c_void) -> Option<(usize, CompletionUse)> {
        let offset = (context as usize).checked_sub(self.contexts.cast::<u8>() as usize)?;
        let index = offset / size_of::<Context>();
        let used = self.uses.get_mut(index)?;
        Some((index, std::mem::replace(used, CompletionUse::Free)))
    }

    /// Tells what has come and what has ended, a few things at a time. How many.
    ///
    /// # Errors
    /// The endpoint cannot be used any more.
    pub fn poll(&mut self, told: &mut impl FnMut(Event<'_>)) -> Result<usize, Error> {
        if !self.unposted.is_empty() {
            self.post()?;
        }
        let mut entries = [abi::CqEntry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
        }; COMPLETIONS];
        // SAFETY: room for as many entries as are asked for, of the format that the queue was
        // opened with.
        let got =
            unsafe { ((*(*self.cq).ops).read)(self.cq, entries.as_mut_ptr().cast(), COMPLETIONS) };
        match got {
            abi::EAGAIN => return Ok(0),
            abi::EAVAIL => return self.failed(told),
            got if got < 0 => return Err(self.library.error("fi_cq_read", got)),
            _ => {}
        }
        let got = (got as usize).min(COMPLETIONS);
        for entry in &entries[..got] {
            match self.ended(entry.op_context) {
                Some((index, CompletionUse::Receive)) => {
                    let len = entry.len.min(MESSAGE_MAX);
                    // SAFETY: the receive is over, so the buffer is ours until it is posted again.
                    told(Event::Message(unsafe {
                        std::slice::from_raw_parts(self.buffer(index), len)
                    }));
                    self.unposted.push(index);
                }
                Some((_, CompletionUse::Read(token))) => told(Event::Read(token, Ok(()))),
                _ => {}
            }
        }
        self.post()?;
        Ok(got)
    }

    /// Tells of an operation that failed.
    fn failed(&mut self, told: &mut impl FnMut(Event<'_>)) -> Result<usize, Error> {
        // SAFETY: all zeros are such an entry.
        let mut entry: abi::CqError = unsafe { std::mem::zeroed() };
        // SAFETY: room for one entry.
        let got = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &mut entry, 0) };
        match got {
            abi::EAGAIN => return Ok(0),
            got if got < 0 => return Err(self.library.error("fi_cq_readerr", got)),
            _ => {}
        }
        let why = match self.library.error("", entry.err as isize) {
            Error::Call(_, why) | Error::Absent(why) => why,
        };
        match self.ended(entry.op_context) {
            Some((index, CompletionUse::Receive)) => self.unposted.push(index),
            Some((_, CompletionUse::Send(peer))) => told(Event::Unsent(peer, why)),
            Some((_, CompletionUse::Read(token))) => told(Event::Read(token, Err(why))),
            _ => {}
        }
        self.post()?;
        Ok(1)
    }
}

/// # Safety
/// The object is open, and is not used any more.
unsafe fn close(fid: *mut abi::Fid) {
    // SAFETY: by the caller's word.
    unsafe { ((*(*fid).ops).close)(fid) };
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: in the reverse order of making; once the endpoint is closed nothing writes to
        // buffers, slots and regions. If it does not close, they are left to the library.
        unsafe {
            if !self.ep.is_null() && ((*(*self.ep).fid.ops).close)(&mut (*self.ep).fid) != 0 {
                return;
            }
            for mr in std::mem::take(&mut self.regions).into_values() {
                close(&raw mut (*mr).fid);
            }
            for fid in [
                self.cq.cast::<abi::Fid>(),
                self.av.cast(),
                self.domain.cast(),
                self.fabric.cast(),
            ] {
                if !fid.is_null() {
                    close(fid);
                }
            }
            drop(Box::from_raw(self.buffers));
            drop(Box::from_raw(self.contexts));
        }
    }
}
