//! Loops that are compiled twice: for the baseline of the architecture, and for wider vectors.
//!
//! Reductions call this module. A loop is a value whose `run` is always inlined, so that it becomes
//! part of a function compiled for AVX2. The processor is asked at run time which version to use.
//! The module owns nothing and allocates nothing.

/// Work over slices that the compiler can turn into vector instructions. `run` must be
/// `#[inline(always)]`, and all it calls must be inlined, or the wider form gains nothing.
pub trait SimdLoop {
    /// Does it.
    fn run(self);
}

/// Runs a loop with the widest vectors that are worth it here.
#[inline]
pub fn run(work: impl SimdLoop) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as it just said.
        return unsafe { with_avx2(work) };
    }
    work.run();
}

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2(work: impl SimdLoop) {
    work.run();
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Add<'a>(&'a [u64], &'a mut [u64]);

    impl SimdLoop for Add<'_> {
        #[inline(always)]
        fn run(self) {
            for (a, b) in self.0.iter().zip(self.1) {
                *b = b.wrapping_add(*a);
            }
        }
    }

    #[test]
    fn a_loop_does_the_same_with_wide_vectors() {
        let a: Vec<u64> = (0..1003).collect();
        let mut narrow: Vec<u64> = (0..1003).map(|i| i * 7).collect();
        let mut wide = narrow.clone();
        Add(&a, &mut narrow).run();
        run(Add(&a, &mut wide));
        assert_eq!(narrow, wide);
    }
}
