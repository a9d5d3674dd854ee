//! System calls on packet sockets, and the ring that the kernel fills. The only unsafe code of this
//! crate.

#![allow(unsafe_code)]

use crate::driver::SendResult;
use crate::frame::{JOB_AT, KIND_AT, Mac, QUIET, TO_AT};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// `TPACKET_V2` of linux/if_packet.h.
const TPACKET_V2: libc::c_int = 1;
/// `PACKET_VERSION`, `PACKET_RX_RING`, `PACKET_STATISTICS` and `PACKET_QDISC_BYPASS` of the same.
const PACKET_VERSION: libc::c_int = 10;
const PACKET_RX_RING: libc::c_int = 5;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_QDISC_BYPASS: libc::c_int = 20;
/// Slot belongs to the kernel, or (this bit) to the process.
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
/// Bytes of a slot before the frame: header, address, and alignment.
const SLOT_HEAD: usize = 96;
/// Where `tp_snaplen` and `tp_mac` stand in a slot's header.
const SNAPLEN_AT: usize = 8;
const MAC_AT: usize = 12;

fn check(returned: libc::c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(
    socket: &OwnedFd,
    (level, option): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a value that outlives the call. All uses
    // give plain structures of the option's kind.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// Opens a packet socket that receives nothing yet.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a call without pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the kernel drop what is not for this rank of this job, or is not `quiet` or the contrary.
pub(crate) fn attach_filter(
    socket: &OwnedFd,
    (job, rank): (u32, u32),
    quiet: bool,
) -> io::Result<()> {
    // BPF_LD | BPF_W | BPF_ABS and the same of a byte, BPF_JMP | BPF_JEQ | BPF_K, the same with
    // BPF_JSET, and BPF_RET | BPF_K of linux/filter.h.
    let (load, load_byte, equal, any, give) = (0x20, 0x30, 0x15, 0x45, 0x06);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (if_quiet, if_waking) = if quiet { (0, 1) } else { (1, 0) };
    let mut program = [
        step(load, 0, 0, JOB_AT as u32),
        step(equal, 0, 5, job),
        step(load, 0, 0, TO_AT as u32),
        step(equal, 0, 3, rank),
        step(load_byte, 0, 0, KIND_AT as u32),
        step(any, if_quiet, if_waking, QUIET.into()),
        step(give, 0, 0, u32::MAX),
        step(give, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set(socket, (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER), &program)
}

/// Facts about what a socket is bound to.
pub(crate) struct Bound {
    pub index: u32,
    pub ethertype: u16,
    pub mac: Mac,
}

/// Binds a socket to frames of one ethertype on one interface.
pub(crate) fn bind(socket: &OwnedFd, index: u32, ethertype: u16) -> io::Result<()> {
    // SAFETY: all zeros are a `sockaddr_ll` without anything.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the kernel reads the address, which outlives the call.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
}

/// Returns what a socket is bound to.
pub(crate) fn bound_to(socket: &OwnedFd) -> io::Result<Bound> {
    // SAFETY: all zeros are a `sockaddr_ll` without anything.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to an address that outlives the call.
    check(unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len)
    })?;
    let mut mac = [0; 6];
    mac.copy_from_slice(&address.sll_addr[..6]);
    if address.sll_halen != 6 || mac == [0; 6] {
        return Err(io::Error::other("the interface has no Ethernet address"));
    }
    Ok(Bound {
        index: address.sll_ifindex as u32,
        ethertype: u16::from_be(address.sll_protocol),
        mac,
    })
}

/// Bytes behind an Ethernet header that an interface takes.
pub(crate) fn mtu(socket: &OwnedFd, name: &str) -> io::Result<usize> {
    // SAFETY: a structure of plain numbers and pointers, of which zeros are one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::other("the interface's name is too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the kernel reads the name, which ends, and writes one number of the structure.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    check(asked)?;
    // SAFETY: the answer to this request is this number.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Has frames leave without the queueing discipline; where the kernel refuses, they pass it.
pub(crate) fn bypass_queueing(socket: &OwnedFd) {
    let _ = set(socket, (libc::SOL_PACKET, PACKET_QDISC_BYPASS), &1i32);
}

/// Sends a frame without waiting.
pub(crate) fn send(socket: &OwnedFd, frame: &[u8]) -> SendResult {
    // SAFETY: the kernel reads the frame, which outlives the call.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            libc::MSG_DONTWAIT,
        )
    };
    match sent {
        _ if sent == frame.len() as isize => SendResult::Sent,
        -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EMSGSIZE) => {
            SendResult::TooLong
        }
        _ => SendResult::Full,
    }
}

/// Returns how many frames found no slot since this was asked last.
pub(crate) fn dropped(socket: &OwnedFd) -> u64 {
    // `struct tpacket_stats`: frames, and those dropped.
    let mut counts = [0u32; 2];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to an array that outlives the call.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_STATISTICS,
            counts.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if asked == 0 { counts[1].into() } else { 0 }
}

/// Slots that the kernel fills with frames, mapped into this process.
///
/// Owned by one driver. A slot belongs to the kernel or to the process, as its first word says.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: *mut u8,
    bytes: usize,
    slot: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, which is used through `&mut`.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring of about `bytes` for frames of this length.
    pub(crate) fn new(socket: &OwnedFd, frame: usize, bytes: usize) -> io::Result<Self> {
        set(socket, (libc::SOL_PACKET, PACKET_VERSION), &TPACKET_V2)?;
        let slot = (SLOT_HEAD + frame).next_power_of_two();
        // A multiple of every page size that there is.
        let block = slot.max(1 << 16);
        let blocks = (bytes / block).max(1);
        let slots = blocks * (block / slot);
        // `struct tpacket_req`: block size, blocks, slot size, slots.
        let request = [block as u32, blocks as u32, slot as u32, slots as u32];
        set(socket, (libc::SOL_PACKET, PACKET_RX_RING), &request)?;
        let bytes = block * blocks;
        // SAFETY: a new mapping, where the kernel chooses, of a ring of just this length.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                socket.as_fd(),
                0,
            )
        };
        let memory = memory
            .map_err(|errno: Errno| io::Error::from(errno))?
            .cast();
        Ok(Self {
            memory,
            bytes,
            slot,
            slots,
            next: 0,
        })
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Gives up to `budget` frames. Returns how many.
    pub(crate) fn take(&mut self, budget: u32, give: &mut dyn FnMut(&[u8])) -> u32 {
        let mut taken = 0;
        while taken < budget {
            // SAFETY: `next` is below `slots`, so the slot lies within the mapping; slots are
            // aligned far beyond a word, and all accesses to this word are atomic.
            let (slot, status) = unsafe {
                let slot = self.memory.add(self.next * self.slot);
                (slot, AtomicU32::from_ptr(slot.cast()))
            };
            if status.load(Ordering::Acquire) & STATUS_USER == 0 {
                break;
            }
            // SAFETY: the slot belongs to this process until its status says otherwise, so nobody
            // writes it. The frame's place is checked against the slot's length.
            unsafe {
                let len = slot.add(SNAPLEN_AT).cast::<u32>().read() as usize;
                let at = usize::from(slot.add(MAC_AT).cast::<u16>().read());
                if at.checked_add(len).is_some_and(|end| end <= self.slot) {
                    give(std::slice::from_raw_parts(slot.add(at), len));
                }
            }
            status.store(STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
            taken += 1;
        }
        taken
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.memory.cast(), self.bytes) };
    }
}
