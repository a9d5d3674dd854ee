//! Keeps values that different cores write on different cache lines. Pure layout, no behaviour.

/// A value alone on its cache lines.
///
/// 128 bytes on AArch64 (Apple and several server cores have 128-byte lines) and also on x86-64,
/// whose adjacent-line prefetcher fetches 64-byte lines in pairs and so makes neighbours share; 64
/// bytes elsewhere.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), repr(align(128)))]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    repr(align(64))
)]
#[derive(Debug, Default)]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
