//! The copy routine of everything that crosses between cores, chosen by measurement.
//!
//! A loop of vector moves fetches each line that it overwrites from the core that has it; the
//! processor's own string copy (`rep movsb`) need not, which on some halves the time between two
//! cores, while on others it is three times as slow as the loop; beyond the caches, stores that
//! bypass them can win. Which holds where is measured by the cost model, which then calls
//! [`choose`]. Until then: the string copy on processors that are known to have a quick one, else
//! vector moves where there are any, and nothing that bypasses caches. Safe code reaches it through
//! `Segment` and [`copy_mem`].

pub use crate::ring::StoreKind;
use crate::user::UserMem;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A way to copy more than a few dozen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Routine {
    /// The C library's `memcpy`.
    Library = 1,
    /// A loop of the widest vector moves that need no start-up: 32 bytes on x86-64 with AVX.
    Vector = 2,
    /// Vector moves whose stores bypass the caches.
    Streaming = 3,
    /// The processor's own string copy; vector moves for what is shorter than some kilobytes, since
    /// it starts slowly.
    String = 4,
}

impl Routine {
    /// The routines that exist on this machine.
    pub fn available() -> &'static [Routine] {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx") {
            return &[
                Routine::Library,
                Routine::Vector,
                Routine::Streaming,
                Routine::String,
            ];
        }
        &[Routine::Library]
    }

    /// The one that serves until something was measured.
    fn preferred() -> Self {
        #[cfg(target_arch = "x86_64")]
        if x86::has_quick_string_copy() {
            return Self::String;
        }
        Self::Vector
    }
}

/// 0: not looked yet. Relaxed everywhere: any routine is right, the choice is only about speed.
static CHOSEN: AtomicU8 = AtomicU8::new(0);
static STREAM_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// From now on copies use `routine`, and `Streaming` from `stream_from` bytes on. A routine that
/// this machine lacks is replaced by the library's.
pub fn choose(routine: Routine, stream_from: usize) {
    let there = Routine::available();
    let routine = if there.contains(&routine) {
        routine
    } else {
        Routine::Library
    };
    CHOSEN.store(routine as u8, Ordering::Relaxed);
    STREAM_FROM.store(
        if there.contains(&Routine::Streaming) {
            stream_from
        } else {
            usize::MAX
        },
        Ordering::Relaxed,
    );
}

/// Bytes from which on a whole message goes past the caches; 0: not asked yet. Relaxed: whoever
/// asks finds the same.
static PAST_CACHES_FROM: AtomicU64 = AtomicU64::new(0);

/// The stores for the copy of a part of a message of `total` bytes to where it will be used: such a
/// message does not stay in the caches anyway, and ordinary stores would first fetch from memory
/// what they overwrite.
#[inline]
pub fn stores_for_message(total: u64) -> StoreKind {
    if total >= past_caches_from() {
        StoreKind::Streamed
    } else {
        StoreKind::Cached
    }
}

/// Bytes of what is moved together from which on caches keep nothing of it: where it comes from and
/// where it goes do not fit.
#[inline]
pub fn past_caches_from() -> u64 {
    let mut from = PAST_CACHES_FROM.load(Ordering::Relaxed);
    if from == 0 {
        from = last_level_cache() / LAST_LEVEL_SHARE;
        PAST_CACHES_FROM.store(from, Ordering::Relaxed);
    }
    from
}

/// A message of this part of the last-level cache and more does not stay in it: its source is
/// there, too, and so are other cores' data.
const LAST_LEVEL_SHARE: u64 = 4;

/// Size taken where the system says none: most servers' processors have that, or more.
const LAST_LEVEL_USUAL: u64 = 32 << 20;

/// Bytes of the last-level cache, as the system says.
#[cold]
fn last_level_cache() -> u64 {
    let size = |level| {
        let text = std::fs::read_to_string(format!(
            "/sys/devices/system/cpu/cpu0/cache/index{level}/size"
        ))
        .ok()?;
        let kilobytes: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kilobytes << 10).filter(|bytes| *bytes > 0)
    };
    (2..=4).rev().find_map(size).unwrap_or(LAST_LEVEL_USUAL)
}

#[cold]
fn first_choice() -> u8 {
    choose(Routine::preferred(), usize::MAX);
    CHOSEN.load(Ordering::Relaxed)
}

/// The routine of copies that are not so long that they go past the caches.
#[inline(always)]
fn chosen() -> u8 {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => first_choice(),
        routine => routine,
    }
}

/// Returns whether copies between processes need not fetch what they overwrite, so that it makes no
/// difference whether the reader's cache still has it.
pub fn needs_no_old_lines() -> bool {
    chosen() == Routine::String as u8
}

/// Copies `len` bytes from `src` to `dst` by the chosen routine. The two must not overlap.
#[inline]
pub fn copy_mem(dst: UserMem, src: UserMem, len: usize) {
    // SAFETY: both views were promised valid for what is reached when they were made.
    unsafe {
        copy(
            std::ptr::with_exposed_provenance(src.addr(0)),
            std::ptr::with_exposed_provenance_mut(dst.addr(0)),
            len,
        )
    }
}

/// Copies as [`copy_mem`] does, with these stores as far as the machine has them.
#[inline]
pub fn copy_mem_with(stores: StoreKind, dst: UserMem, src: UserMem, len: usize) {
    match stores {
        StoreKind::Cached => copy_mem(dst, src, len),
        StoreKind::Streamed => copy_mem_by(Routine::Streaming, dst, src, len),
    }
}

/// Copies as [`copy_mem`] does, by a given routine: for measurements.
pub fn copy_mem_by(routine: Routine, dst: UserMem, src: UserMem, len: usize) {
    let routine = if Routine::available().contains(&routine) {
        routine
    } else {
        Routine::Library
    };
    // SAFETY: as in `copy_mem`; the routine exists here.
    unsafe {
        by(
            routine as u8,
            std::ptr::with_exposed_provenance(src.addr(0)),
            std::ptr::with_exposed_provenance_mut(dst.addr(0)),
            len,
        )
    }
}

/// Copies `len` bytes.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping. Bytes that another process
/// changes meanwhile arrive torn.
#[inline(always)]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: forwarded to the caller; each branch touches `len` bytes of both sides, some twice.
    unsafe {
        if len <= 16 {
            if len >= 8 {
                ends::<u64>(src, dst, len);
            } else if len >= 4 {
                ends::<u32>(src, dst, len);
            } else if len >= 2 {
                ends::<u16>(src, dst, len);
            } else if len == 1 {
                *dst = *src;
            }
        } else if len <= 32 {
            ends::<u128>(src, dst, len);
        } else {
            copy_long(src, dst, len);
        }
    }
}

/// Copies `len` bytes between blocks that may overlap.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes.
#[inline]
pub(crate) unsafe fn copy_any(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: forwarded; the chosen routine only gets blocks that lie apart.
    unsafe {
        if (src as usize).abs_diff(dst as usize) >= len {
            copy(src, dst, len);
        } else {
            std::ptr::copy(src, dst, len);
        }
    }
}

/// Copies the first and the last word of a block of one to two words' length.
///
/// # Safety
/// `len` between one and two sizes of `T`; else as [`copy`].
#[inline(always)]
unsafe fn ends<T: Copy>(src: *const u8, dst: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both words lie within `len` bytes by the contract; unaligned moves.
    unsafe {
        let first_word = src.cast::<T>().read_unaligned();
        let last_word = src.add(last).cast::<T>().read_unaligned();
        dst.cast::<T>().write_unaligned(first_word);
        dst.add(last).cast::<T>().write_unaligned(last_word);
    }
}

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_long(src: *const u8, dst: *mut u8, len: usize) {
    let mut routine = chosen();
    if len >= STREAM_FROM.load(Ordering::Relaxed) {
        routine = Routine::Streaming as u8;
    }
    // SAFETY: forwarded; `choose` only lets routines through that exist here.
    unsafe { by(routine, src, dst, len) }
}

/// # Safety
/// As [`copy`]; the routine must exist on this machine.
unsafe fn by(routine: u8, src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len > 32 {
        // SAFETY: AVX is there by the contract; the rest is forwarded.
        unsafe {
            if routine == Routine::Vector as u8 {
                return x86::vector(src, dst, len);
            }
            if routine == Routine::Streaming as u8 {
                return x86::streaming(src, dst, len);
            }
            if routine == Routine::String as u8 {
                return x86::string(src, dst, len);
            }
        }
    }
    let _ = routine;
    // SAFETY: forwarded.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __m256i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256,
        _mm256_store_si256, _mm256_storeu_si256, _mm256_stream_si256,
    };

    /// # Safety
    /// As `super::copy`, with `len > 32`; AVX must be there.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn vector(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: all offsets lie below `len`: whole blocks first, then the last up to 128 bytes,
        // overlapping what came.
        unsafe {
            let load = |at: usize| _mm256_loadu_si256(src.add(at).cast());
            let store = |at: usize, value: __m256i| _mm256_storeu_si256(dst.add(at).cast(), value);
            if len <= 64 {
                let (a, b) = (load(0), load(len - 32));
                store(0, a);
                store(len - 32, b);
                return;
            }
            if len <= 128 {
                let (a, b, c, d) = (load(0), load(32), load(len - 64), load(len - 32));
                store(0, a);
                store(32, b);
                store(len - 64, c);
                store(len - 32, d);
                return;
            }
            let (tail_a, tail_b, tail_c, tail_d) = (
                load(len - 128),
                load(len - 96),
                load(len - 64),
                load(len - 32),
            );
            store(0, load(0));
            // Aligned stores: a store across two lines costs twice where the lines belong to
            // another core.
            let mut at = 32 - (dst as usize & 31);
            while at + 128 < len {
                // Not beyond the block: what lies there is another core's to write, as a rule, and
                // would have to be fetched back.
                _mm_prefetch::<_MM_HINT_T0>(src.add((at + 512).min(len - 1)).cast());
                _mm_prefetch::<_MM_HINT_T0>(src.add((at + 576).min(len - 1)).cast());
                let (a, b, c, d) = (load(at), load(at + 32), load(at + 64), load(at + 96));
                _mm256_store_si256(dst.add(at).cast(), a);
                _mm256_store_si256(dst.add(at + 32).cast(), b);
                _mm256_store_si256(dst.add(at + 64).cast(), c);
                _mm256_store_si256(dst.add(at + 96).cast(), d);
                at += 128;
            }
            store(len - 128, tail_a);
            store(len - 96, tail_b);
            store(len - 64, tail_c);
            store(len - 32, tail_d);
        }
    }

    /// Bytes from which on the string copy takes less than vector moves where it is quick at all:
    /// it starts slowly (pieces of 4 KB take an eighth longer by it between near cores of a Zen 5).
    const STRING_FROM: usize = 6 << 10;

    /// Family 26 of AMD (Zen 5), on which the string copy was found to be the quickest between near
    /// cores and between far ones, wherever blocks begin. Those before are known to be slow where
    /// source and target lie askew to each other.
    const QUICK_AMD: u32 = 0x1A;

    /// Whether this processor's string copy is known to be quick for blocks of some kilobytes.
    // Asking the processor is safe from some compiler on.
    #[allow(unused_unsafe)]
    pub(super) fn has_quick_string_copy() -> bool {
        // SAFETY: every x86-64 has the instruction.
        let ask = |leaf| unsafe { __cpuid_count(leaf, 0) };
        let vendor = ask(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        if name.as_flattened() != b"AuthenticAMD" || vendor.eax < 7 {
            return false;
        }
        let signature = ask(1).eax;
        let family = (signature >> 8 & 0xF) + (signature >> 20 & 0xFF);
        // Fast short string copies.
        let has_fsrm = ask(7).edx & 1 << 4 != 0;
        has_fsrm && family >= QUICK_AMD
    }

    /// # Safety
    /// As [`vector`].
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn string(src: *const u8, dst: *mut u8, len: usize) {
        if len < STRING_FROM {
            // SAFETY: forwarded.
            return unsafe { vector(src, dst, len) };
        }
        // SAFETY: the instruction reads `len` bytes from `src` and writes them to `dst`, upwards as
        // the flag for its direction is clear by the calling convention. Its stores are seen before
        // any that follow it.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// As [`vector`].
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn streaming(src: *const u8, dst: *mut u8, len: usize) {
        if len < 256 {
            // SAFETY: forwarded.
            return unsafe { vector(src, dst, len) };
        }
        // SAFETY: as in `vector`.
        unsafe {
            let load = |at: usize| _mm256_loadu_si256(src.add(at).cast());
            // Whole lines only: one that is streamed in part is written to memory more than once.
            let mut at = dst.align_offset(64);
            if at > 0 {
                _mm256_storeu_si256(dst.cast(), load(0));
                _mm256_storeu_si256(dst.add(32).cast(), load(32));
            }
            while at + 128 <= len {
                _mm_prefetch::<_MM_HINT_T0>(src.add((at + 1024).min(len - 1)).cast());
                _mm_prefetch::<_MM_HINT_T0>(src.add((at + 1088).min(len - 1)).cast());
                let (a, b, c, d) = (load(at), load(at + 32), load(at + 64), load(at + 96));
                _mm256_stream_si256(dst.add(at).cast(), a);
                _mm256_stream_si256(dst.add(at + 32).cast(), b);
                _mm256_stream_si256(dst.add(at + 64).cast(), c);
                _mm256_stream_si256(dst.add(at + 96).cast(), d);
                at += 128;
            }
            // Streaming stores are weakly ordered: a later Release must cover them.
            _mm_sfence();
            if at < len {
                vector_tail(src, dst, at, len);
            }
        }
    }

    /// Copies the bytes from `at` on, fewer than 128, of a block of at least 256.
    ///
    /// # Safety
    /// As [`vector`].
    #[target_feature(enable = "avx")]
    unsafe fn vector_tail(src: *const u8, dst: *mut u8, at: usize, len: usize) {
        let mut at = at;
        // SAFETY: the last step overlaps what was copied already and stays within the block.
        unsafe {
            while at < len {
                let from = at.min(len - 32);
                _mm256_storeu_si256(
                    dst.add(from).cast(),
                    _mm256_loadu_si256(src.add(from).cast()),
                );
                at = from + 32;
            }
        }
    }
}

/// Asks for the cache line at `at` ahead of its use. Any address will do: nothing is read.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_that_no_cache_holds_go_past_them() {
        assert_eq!(stores_for_message(0), StoreKind::Cached);
        assert_eq!(stores_for_message(64 << 10), StoreKind::Cached);
        assert_eq!(stores_for_message(4 << 30), StoreKind::Streamed);
    }

    #[test]
    fn every_routine_copies_every_length_at_every_alignment_and_nothing_beyond() {
        let src: Vec<u8> = (0..7100u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let lengths = (0..300).chain([511, 512, 1000, 1024, 4095, 4096, 6143, 6144, 6145, 7000]);
        for len in lengths {
            for shift in [0usize, 1, 15, 31, 33] {
                for routine in Routine::available() {
                    let mut dst = vec![0xEE; len + 128];
                    // SAFETY: both lie within their vectors.
                    unsafe {
                        by(
                            *routine as u8,
                            src.as_ptr().add(shift),
                            dst.as_mut_ptr().add(64 - shift),
                            len,
                        )
                    };
                    assert_eq!(
                        dst[64 - shift..64 - shift + len],
                        src[shift..shift + len],
                        "{routine:?} {len} {shift}"
                    );
                    assert!(
                        dst[..64 - shift]
                            .iter()
                            .chain(&dst[64 - shift + len..])
                            .all(|byte| *byte == 0xEE),
                        "{routine:?} {len} {shift}"
                    );
                }
                let mut dst = vec![0xEE; len + 8];
                // SAFETY: as above.
                unsafe { copy(src.as_ptr().add(shift), dst.as_mut_ptr(), len) };
                assert_eq!(
                    (&dst[..len], &dst[len..]),
                    (&src[shift..shift + len], &[0xEE; 8][..])
                );
            }
        }
    }
}
