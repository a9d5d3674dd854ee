//! Numbers as the kernels see them: loaded from and stored to bytes, added, multiplied, compared.
//!
//! One trait for machine numbers and software floating point, so that every operation is written
//! once.

use garonne_sync::simd_dispatch::{self, SimdLoop};
use rustc_apfloat::Float;
use rustc_apfloat::ieee::{Half, Quad, X87DoubleExtended};
use std::marker::PhantomData;

/// A number of fixed size in memory.
pub(super) trait Number: Copy {
    /// Bytes from one to the next.
    const SIZE: usize;

    /// From the first bytes of `bytes`, which holds at least one.
    fn load(bytes: &[u8]) -> Self;

    /// To the first bytes of `bytes`.
    fn store(self, bytes: &mut [u8]);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;

    /// Returns whether it is greater than the other.
    fn above(self, other: Self) -> bool;

    /// Returns whether they are equal in value.
    fn same(self, other: Self) -> bool;

    /// `dst = f(src, dst)` for each element of two slices.
    #[inline(always)]
    fn each(src: &[u8], dst: &mut [u8], f: impl Fn(Self, Self) -> Self) {
        for (a, b) in src
            .chunks_exact(Self::SIZE)
            .zip(dst.chunks_exact_mut(Self::SIZE))
        {
            f(Self::load(a), Self::load(b)).store(b);
        }
    }
}

/// Applies `f` to each pair of numbers, with the widest vectors that this machine has.
#[inline(always)]
pub(super) fn each<T: Number>(src: &[u8], dst: &mut [u8], f: impl Fn(T, T) -> T) {
    simd_dispatch::run(Each {
        src,
        dst,
        f,
        number: PhantomData,
    });
}

struct Each<'a, T, F> {
    src: &'a [u8],
    dst: &'a mut [u8],
    f: F,
    number: PhantomData<T>,
}

impl<T: Number, F: Fn(T, T) -> T> SimdLoop for Each<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        T::each(self.src, self.dst, self.f);
    }
}

/// The first `N` bytes; all zero if there are fewer, which callers exclude by cutting exact chunks.
#[inline(always)]
pub(super) fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    match bytes.first_chunk::<N>() {
        Some(head) => *head,
        None => [0; N],
    }
}

macro_rules! machine {
    ($($t:ty, $add:path, $sub:path, $mul:path;)*) => {$(
        impl Number for $t {
            const SIZE: usize = size_of::<$t>();

            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                <$t>::from_ne_bytes(head(bytes))
            }

            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes[..Self::SIZE].copy_from_slice(&self.to_ne_bytes());
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                $sub(self, other)
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                $mul(self, other)
            }

            #[inline(always)]
            fn above(self, other: Self) -> bool {
                self > other
            }

            #[inline(always)]
            fn same(self, other: Self) -> bool {
                self == other
            }

            /// Over arrays of constant size, which the compiler turns into vector instructions.
            #[inline(always)]
            fn each(src: &[u8], dst: &mut [u8], f: impl Fn(Self, Self) -> Self) {
                let (src, _) = src.as_chunks::<{ size_of::<$t>() }>();
                let (dst, _) = dst.as_chunks_mut::<{ size_of::<$t>() }>();
                for (a, b) in src.iter().zip(dst) {
                    *b = f(<$t>::from_ne_bytes(*a), <$t>::from_ne_bytes(*b)).to_ne_bytes();
                }
            }
        }
    )*};
}

// Overflow wraps, as it does in every MPI on two's-complement machines.
machine! {
    i8, i8::wrapping_add, i8::wrapping_sub, i8::wrapping_mul;
    i16, i16::wrapping_add, i16::wrapping_sub, i16::wrapping_mul;
    i32, i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul;
    i64, i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul;
    i128, i128::wrapping_add, i128::wrapping_sub, i128::wrapping_mul;
    u8, u8::wrapping_add, u8::wrapping_sub, u8::wrapping_mul;
    u16, u16::wrapping_add, u16::wrapping_sub, u16::wrapping_mul;
    u32, u32::wrapping_add, u32::wrapping_sub, u32::wrapping_mul;
    u64, u64::wrapping_add, u64::wrapping_sub, u64::wrapping_mul;
    f32, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul;
    f64, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul;
}

/// Software floating point: so many bytes of value in so many bytes of memory. Padding is left as
/// it was.
macro_rules! soft {
    ($($t:ty, $data:literal, $size:literal;)*) => {$(
        impl Number for $t {
            const SIZE: usize = $size;

            fn load(bytes: &[u8]) -> Self {
                let mut bits = [0; 16];
                bits[..$data].copy_from_slice(&head::<$data>(bytes));
                if cfg!(target_endian = "big") {
                    bits[..$data].reverse();
                }
                Self::from_bits(u128::from_le_bytes(bits))
            }

            fn store(self, bytes: &mut [u8]) {
                let mut bits = self.to_bits().to_le_bytes();
                if cfg!(target_endian = "big") {
                    bits[..$data].reverse();
                }
                bytes[..$data].copy_from_slice(&bits[..$data]);
            }

            fn add(self, other: Self) -> Self {
                (self + other).value
            }

            fn sub(self, other: Self) -> Self {
                (self - other).value
            }

            fn mul(self, other: Self) -> Self {
                (self * other).value
            }

            fn above(self, other: Self) -> bool {
                self > other
            }

            fn same(self, other: Self) -> bool {
                self == other
            }
        }
    )*};
}

soft! {
    Half, 2, 2;
    Quad, 16, 16;
    X87DoubleExtended, 10, 16;
}

/// Two numbers as one complex number.
#[derive(Clone, Copy)]
pub(super) struct Complex<T> {
    re: T,
    im: T,
}

impl<T: Number> Number for Complex<T> {
    const SIZE: usize = 2 * T::SIZE;

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        Self {
            re: T::load(bytes),
            im: T::load(&bytes[T::SIZE..]),
        }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        self.re.store(bytes);
        self.im.store(&mut bytes[T::SIZE..]);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re.add(other.re),
            im: self.im.add(other.im),
        }
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re.sub(other.re),
            im: self.im.sub(other.im),
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let re = self.re.mul(other.re).sub(self.im.mul(other.im));
        let im = self.re.mul(other.im).add(self.im.mul(other.re));
        Self { re, im }
    }

    /// Complex numbers have no order; the table of legal combinations excludes operations that need
    /// one.
    fn above(self, _: Self) -> bool {
        false
    }

    fn same(self, other: Self) -> bool {
        self.re.same(other.re) && self.im.same(other.im)
    }
}
