//! Bytes in and out of virtual sockets.
//!
//! Who waits sleeps in the kernel, in a call on the program's own descriptor: so `O_NONBLOCK`, time
//! limits, signals and cancellation act as they do on TCP.

use crate::connection::{Connection, SpinHistory, Turn};
use crate::limits::{
    BELL_MS, COPY_STEP, FILLER_WAIT, FILLERS, LOOK_EVERY, SPIN, SPIN_MIN_NS, SPIN_PAUSE,
};
use crate::real;
use garonne_socket_records::layout::CAPACITY;
use garonne_sync::stream_words::StreamWords;
use libc::{c_int, c_void, iovec, ssize_t};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sets `errno` and says that a call failed.
pub(crate) fn fail(error: c_int) -> ssize_t {
    // SAFETY: the thread's own place.
    unsafe { *libc::__errno_location() = error };
    -1
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own place.
    unsafe { *libc::__errno_location() }
}

/// Memory of the program in parts, and how far a transfer came.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    parts: &'a [iovec],
    /// Bytes of the first part that are done.
    offset: usize,
    /// Bytes that are left.
    left: usize,
    total: usize,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(parts: &'a [iovec]) -> Option<Self> {
        let total = parts
            .iter()
            .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
        Some(Self {
            parts,
            offset: 0,
            left: total,
            total,
        })
    }

    fn done(&self) -> usize {
        self.total - self.left
    }

    /// Copies between so many next bytes and a ring, from a position on. `step` copies one piece:
    /// ring, program's memory, bytes.
    fn copy(
        &mut self,
        ring: *mut u8,
        position: u64,
        bytes: usize,
        step: impl Fn(*mut u8, *mut u8, usize),
    ) {
        let mut position = position;
        let mut bytes = bytes.min(self.left);
        while bytes > 0 {
            let part = &self.parts[0];
            let here = part.iov_len - self.offset;
            if here == 0 {
                self.parts = &self.parts[1..];
                self.offset = 0;
                continue;
            }
            let at = (position % CAPACITY as u64) as usize;
            let piece = bytes.min(here).min(CAPACITY - at);
            let memory = part.iov_base.cast::<u8>().wrapping_add(self.offset);
            step(ring.wrapping_add(at), memory, piece);
            self.offset += piece;
            self.left -= piece;
            position += piece as u64;
            bytes -= piece;
        }
    }
}

fn copy_out(ring: *mut u8, memory: *mut u8, bytes: usize) {
    // SAFETY: the piece lies within the ring; the memory is the program's, for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(ring, memory, bytes) };
}

fn copy_in(ring: *mut u8, memory: *mut u8, bytes: usize) {
    // SAFETY: as above, the other way.
    unsafe { std::ptr::copy_nonoverlapping(memory, ring, bytes) };
}

fn discard(_ring: *mut u8, _memory: *mut u8, _bytes: usize) {}

fn is_blocking(file: c_int, flags: c_int) -> bool {
    // SAFETY: a plain call on a descriptor.
    flags & libc::MSG_DONTWAIT == 0
        && unsafe { real::fcntl(file, libc::F_GETFL, 0) } & libc::O_NONBLOCK == 0
}

/// Consumes up to so many bytes of the program's descriptor without waiting.
fn consume(file: c_int, count: usize) -> ssize_t {
    let mut bytes = [0_u8; FILLERS as usize];
    let count = count.min(bytes.len());
    // SAFETY: a place to write to.
    unsafe { real::recv(file, bytes.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT) }
}

fn send_bell(file: c_int, flags: c_int) -> ssize_t {
    let byte = 0_u8;
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: one byte that lives.
    unsafe { real::send(file, (&raw const byte).cast::<c_void>(), 1, flags) }
}

fn poll(file: c_int, events: libc::c_short, milliseconds: c_int) -> libc::c_short {
    let mut wanted = libc::pollfd {
        fd: file,
        events,
        revents: 0,
    };
    // SAFETY: one description.
    unsafe { libc::poll(&raw mut wanted, 1, milliseconds) };
    wanted.revents
}

impl SpinHistory {
    /// Spins until a condition holds, as long as earlier spins were worth it.
    fn spin(&self, holds: impl Fn() -> bool) -> bool {
        let limit = self.nanoseconds.load(Ordering::Relaxed);
        if limit < SPIN_MIN_NS {
            if self.sleeps.fetch_add(1, Ordering::Relaxed) < SPIN_PAUSE {
                return false;
            }
            self.sleeps.store(0, Ordering::Relaxed);
        }
        let limit = Duration::from_nanos(u64::from(limit.max(SPIN_MIN_NS)));
        let begun = Instant::now();
        loop {
            for _ in 0..32 {
                if holds() {
                    self.nanoseconds
                        .store(SPIN.as_nanos() as u32, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            if begun.elapsed() >= limit {
                self.nanoseconds
                    .store(limit.as_nanos() as u32 / 2, Ordering::Relaxed);
                return false;
            }
        }
    }
}

impl Connection {
    fn incoming(&self) -> (&'static StreamWords, *mut u8) {
        let from = 1 - self.end();
        (self.memory().words(from), self.memory().ring(from))
    }

    fn outgoing(&self) -> (&'static StreamWords, *mut u8) {
        (
            self.memory().words(self.end()),
            self.memory().ring(self.end()),
        )
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        self.incoming().0.available(CAPACITY)
    }

    /// Bytes that the other side has not read.
    pub(crate) fn unread(&self) -> usize {
        self.outgoing().0.available(CAPACITY)
    }

    fn note_reset(&self, outcome: ssize_t) {
        if outcome < 0 && errno() == libc::ECONNRESET {
            self.marks().was_reset.store(1, Ordering::Relaxed);
        }
    }

    /// Consumes one bell byte, which may still be on its way.
    fn consume_bell(&self, file: c_int) {
        let mut outcome = consume(file, 1);
        if outcome < 0 && errno() == libc::EAGAIN {
            poll(file, libc::POLLIN, BELL_MS);
            outcome = consume(file, 1);
        }
        self.note_reset(outcome);
    }

    fn consume_fillers(&self, file: c_int, words: &StreamWords) {
        let fillers = words.fillers();
        if fillers == 0 {
            return;
        }
        let outcome = consume(file, fillers as usize);
        self.note_reset(outcome);
        // Fewer than counted: a bell byte was counted as one of them. All are gone.
        let asked = fillers.min(FILLERS);
        let gone = u32::try_from(outcome).unwrap_or(0);
        words.consume_fillers(if gone < asked { fillers } else { gone });
    }

    /// Takes what is there, up to what is left. The caller has the receiver's turn.
    fn take(&self, file: c_int, parts: &mut Parts<'_>, step: fn(*mut u8, *mut u8, usize)) -> usize {
        let (words, ring) = self.incoming();
        let plan = words.plan(parts.left, CAPACITY);
        if plan.consumes_bell {
            self.consume_bell(file);
        }
        let mut left = plan.bytes;
        while left > 0 {
            let piece = left.min(COPY_STEP);
            parts.copy(ring, words.head(), piece, step);
            words.release(piece);
            left -= piece;
        }
        if words.leaves_bell(CAPACITY) {
            self.consume_bell(file);
        }
        if words.wakes_writer(self.limit(1 - self.end())) || words.available(CAPACITY) == 0 {
            self.consume_fillers(file, words);
        }
        plan.bytes
    }

    /// Puts the bell right when the descriptor is readable and the ring is empty.
    fn settle(&self, file: c_int) {
        let (words, _) = self.incoming();
        let mut nothing = Parts {
            parts: &[],
            offset: 0,
            left: 0,
            total: 0,
        };
        self.take(file, &mut nothing, discard);
        // A byte that nobody counted yet.
        if words.available(CAPACITY) == 0 && !words.is_rung() && poll(file, libc::POLLIN, 0) != 0 {
            let outcome = consume(file, 1);
            self.note_reset(outcome);
        }
    }

    /// Receives as `recv` does.
    pub(crate) fn receive(&self, file: c_int, mut parts: Parts<'_>, flags: c_int) -> ssize_t {
        if flags & libc::MSG_OOB != 0 {
            return fail(libc::EINVAL);
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return fail(libc::EAGAIN);
        }
        let peeks = flags & libc::MSG_PEEK != 0;
        let takes_all = flags & libc::MSG_WAITALL != 0 && !peeks;
        let step = match flags & libc::MSG_TRUNC {
            0 => copy_out,
            _ => discard,
        };
        if parts.left == 0 {
            return 0;
        }
        let (words, ring) = self.incoming();
        let marks = self.marks();
        loop {
            let turn = Turn::take(&marks.receiver.0);
            if peeks {
                let bytes = words.available(CAPACITY).min(parts.left);
                if bytes > 0 {
                    parts.copy(ring, words.head(), bytes, step);
                    return bytes as ssize_t;
                }
            } else {
                let taken = self.take(file, &mut parts, step);
                if parts.left == 0 || (taken > 0 && !takes_all) {
                    return parts.done() as ssize_t;
                }
                if taken > 0 {
                    continue;
                }
            }
            if marks.is_receive_shut.load(Ordering::Relaxed) != 0 && words.available(CAPACITY) == 0
            {
                return parts.done() as ssize_t;
            }
            if !peeks && self.spin_for_bytes(file, parts.left, flags) {
                continue;
            }
            drop(turn);
            match self.sleep_for_bytes(file, flags) {
                Ok(true) => {}
                Ok(false) if words.available(CAPACITY) > 0 => {}
                Ok(false) => {
                    let peer_resets = self.peer_marks().resets.load(Ordering::Relaxed) != 0;
                    let was_reset = marks.was_reset.swap(0, Ordering::Relaxed) != 0;
                    if parts.done() == 0 && (was_reset || peer_resets) {
                        return fail(libc::ECONNRESET);
                    }
                    return parts.done() as ssize_t;
                }
                Err(libc::ECONNRESET) if words.available(CAPACITY) > 0 => {
                    marks.was_reset.store(1, Ordering::Relaxed);
                }
                Err(_) if parts.done() > 0 => return parts.done() as ssize_t,
                Err(error) => return fail(error),
            }
        }
    }

    fn spin_for_bytes(&self, file: c_int, most: usize, flags: c_int) -> bool {
        let (words, _) = self.incoming();
        if !is_blocking(file, flags) || !words.begin_spin(most) {
            return false;
        }
        let found = self
            .receive_spin
            .spin(|| words.available(CAPACITY) > 0 || words.is_rung());
        if !found {
            words.end_spin();
        }
        found || words.available(CAPACITY) > 0
    }

    /// Sleeps until the descriptor is readable. `false`: the other side sends no more.
    fn sleep_for_bytes(&self, file: c_int, flags: c_int) -> Result<bool, c_int> {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | (flags & libc::MSG_DONTWAIT);
        // SAFETY: a place of one byte.
        let outcome = unsafe { real::recv(file, (&raw mut byte).cast(), 1, flags) };
        let error = errno();
        if outcome >= 0 && self.is_closed() {
            return Err(libc::EBADF);
        }
        match outcome {
            0 => Ok(false),
            1.. => {
                if self.readable() == 0 {
                    let turn = Turn::take(&self.marks().receiver.0);
                    self.settle(file);
                    drop(turn);
                    if !is_blocking(file, flags) {
                        self.await_writer();
                    }
                }
                Ok(true)
            }
            _ => Err(error),
        }
    }

    /// A program that was told of bytes gets some: a filler alone means that the writer is inside a
    /// call and saw that there is room again, so that its next bytes are on their way.
    fn await_writer(&self) {
        let begun = Instant::now();
        while self.readable() == 0 && begun.elapsed() < FILLER_WAIT {
            // SAFETY: has no precondition.
            unsafe { libc::sched_yield() };
        }
    }

    fn break_up(&self) {
        self.marks().is_broken.store(1, Ordering::Relaxed);
    }

    /// What a write gets once the other side is gone.
    fn broken(flags: c_int) -> ssize_t {
        if flags & libc::MSG_NOSIGNAL == 0 {
            // SAFETY: has no precondition; the program says what the signal does.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        fail(libc::EPIPE)
    }

    /// Sends a bell byte to the other side. Without room for one, a filler is there that serves.
    fn ring(&self, file: c_int, words: &StreamWords) {
        if send_bell(file, libc::MSG_DONTWAIT) == 1 {
            return;
        }
        match errno() {
            libc::EAGAIN => words.filler_is_bell(),
            _ => self.break_up(),
        }
    }

    /// Makes the descriptor unwritable. `false`: the other side is gone.
    fn fill(&self, file: c_int, words: &StreamWords) -> bool {
        for _ in 0..FILLERS {
            if send_bell(file, libc::MSG_DONTWAIT) != 1 {
                return errno() == libc::EAGAIN;
            }
            words.count_filler();
        }
        true
    }

    /// Looks whether the other side lives, now and then.
    fn look_at_peer(&self, file: c_int, bytes: usize) {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed);
        if (writes.is_multiple_of(LOOK_EVERY) || bytes >= COPY_STEP)
            && poll(file, 0, 0) & libc::POLLHUP != 0
        {
            self.break_up();
        }
    }

    /// Sends as `send` does.
    pub(crate) fn send(&self, file: c_int, mut parts: Parts<'_>, flags: c_int) -> ssize_t {
        if flags & libc::MSG_OOB != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        let (words, ring) = self.outgoing();
        let marks = self.marks();
        let mut turn = Turn::take(&marks.sender);
        let is_over = marks.is_send_shut.load(Ordering::Relaxed) != 0
            || marks.is_broken.load(Ordering::Relaxed) != 0;
        if is_over {
            drop(turn);
            return Self::broken(flags);
        }
        loop {
            let limit = self.limit(self.end());
            let room = words.room(limit);
            if room > 0 && parts.left > 0 {
                let bytes = room.min(parts.left).min(COPY_STEP);
                parts.copy(ring, words.tail(), bytes, copy_in);
                if words.publish(bytes) {
                    self.ring(file, words);
                } else if parts.left == 0 {
                    self.look_at_peer(file, bytes);
                }
                continue;
            }
            if parts.left > 0 && parts.done() == 0 && marks.is_broken.load(Ordering::Relaxed) != 0 {
                drop(turn);
                return Self::broken(flags);
            }
            if parts.left == 0 || marks.is_broken.load(Ordering::Relaxed) != 0 {
                return parts.done() as ssize_t;
            }
            let blocks = is_blocking(file, flags);
            let half = || words.room(limit) >= limit / 2;
            if blocks && self.send_spin.spin(half) {
                continue;
            }
            words.wish_room();
            if words.room(limit) > 0 {
                continue;
            }
            if !self.fill(file, words) {
                self.break_up();
                continue;
            }
            // The other side may have made room before the fillers came.
            if half() {
                continue;
            }
            if !blocks {
                return match parts.done() {
                    0 => fail(libc::EAGAIN),
                    done => done as ssize_t,
                };
            }
            drop(turn);
            let outcome = send_bell(file, 0);
            let error = errno();
            if self.is_closed() {
                return fail(libc::EBADF);
            }
            turn = Turn::take(&marks.sender);
            match (outcome, error) {
                (1, _) => words.count_filler(),
                (_, libc::EPIPE | libc::ECONNRESET) => self.break_up(),
                _ if parts.done() > 0 => return parts.done() as ssize_t,
                _ => return fail(error),
            }
        }
    }
}
