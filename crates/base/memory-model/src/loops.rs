//! Loops over cache lines: the accesses that benchmarks time, and the kernels that are predicted.
//!
//! Each is compiled for wide vectors where the processor has them, as programs that are bound by
//! memory are. The copy passes each word through an exclusive or with a key, which is 0: a compiler
//! would replace a plain copy by a call of the C library, whose routine is another one on each
//! machine.

use garonne_sync::simd_dispatch::{self, SimdLoop};

/// A cache line of eight numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
pub struct Line(pub [f64; 8]);

/// Bytes of a line.
pub const LINE_BYTES: usize = size_of::<Line>();

struct Load<'a>(&'a [u64], &'a mut u64);

impl SimdLoop for Load<'_> {
    #[inline(always)]
    fn run(self) {
        // In any order, unlike a sum of such numbers: so wide vectors are used.
        *self.1 = self.0.iter().fold(0, |all, word| all | word);
    }
}

/// Reads all lines. Returns all bits that are set, so that no compiler leaves the reads out.
pub fn load(lines: &[Line]) -> u64 {
    let mut bits = 0;
    simd_dispatch::run(Load(bytemuck::cast_slice(lines), &mut bits));
    bits
}

/// The numbers of some lines.
fn numbers(lines: &[Line]) -> &[f64] {
    bytemuck::cast_slice(lines)
}

/// The numbers of some lines, to write.
fn numbers_mut(lines: &mut [Line]) -> &mut [f64] {
    bytemuck::cast_slice_mut(lines)
}

struct Store<'a>(&'a mut [f64], f64);

impl SimdLoop for Store<'_> {
    #[inline(always)]
    fn run(self) {
        for number in self.0 {
            *number = self.1;
        }
    }
}

/// Writes a number into all lines.
pub fn store(lines: &mut [Line], number: f64) {
    simd_dispatch::run(Store(numbers_mut(lines), number));
}

struct Update<'a>(&'a mut [f64], f64);

impl SimdLoop for Update<'_> {
    #[inline(always)]
    fn run(self) {
        for number in self.0 {
            *number *= self.1;
        }
    }
}

/// Multiplies all lines by a number, in place.
pub fn update(lines: &mut [Line], factor: f64) {
    simd_dispatch::run(Update(numbers_mut(lines), factor));
}

struct Copy<'a>(&'a mut [f64], &'a [f64], u64);

impl SimdLoop for Copy<'_> {
    #[inline(always)]
    fn run(self) {
        for (to, from) in self.0.iter_mut().zip(self.1) {
            *to = f64::from_bits(from.to_bits() ^ self.2);
        }
    }
}

/// Copies lines. `key` is 0, which the caller hides from the compiler.
pub fn copy(to: &mut [Line], from: &[Line], key: u64) {
    simd_dispatch::run(Copy(numbers_mut(to), numbers(from), key));
}

struct Triad<'a>(&'a mut [f64], &'a [f64], &'a [f64], f64);

impl SimdLoop for Triad<'_> {
    #[inline(always)]
    fn run(self) {
        for (a, (b, c)) in self.0.iter_mut().zip(self.1.iter().zip(self.2)) {
            *a = b + self.3 * c;
        }
    }
}

/// a = b + factor c.
pub fn triad(a: &mut [Line], (b, c): (&[Line], &[Line]), factor: f64) {
    simd_dispatch::run(Triad(numbers_mut(a), numbers(b), numbers(c), factor));
}

struct Daxpy<'a>(&'a mut [f64], &'a [f64], f64);

impl SimdLoop for Daxpy<'_> {
    #[inline(always)]
    fn run(self) {
        for (y, x) in self.0.iter_mut().zip(self.1) {
            *y += self.2 * x;
        }
    }
}

/// y = y + factor x.
pub fn daxpy(y: &mut [Line], x: &[Line], factor: f64) {
    simd_dispatch::run(Daxpy(numbers_mut(y), numbers(x), factor));
}

/// Numbers in a row of the stencil's grid: three rows fit into any first-level cache, and a row is
/// no power of two, for which rows would fall into the same places of a cache.
pub const ROW: usize = 776;

struct Stencil<'a>(&'a mut [f64], &'a [f64], f64);

impl SimdLoop for Stencil<'_> {
    #[inline(always)]
    fn run(self) {
        let rows = self.1.len() / ROW;
        for row in 1..rows.saturating_sub(1) {
            let of = |row: usize| &self.1[row * ROW..(row + 1) * ROW];
            let (above, here, below) = (of(row - 1), of(row), of(row + 1));
            let out = &mut self.0[row * ROW + 1..(row + 1) * ROW - 1];
            let sides = here[..ROW - 2].iter().zip(&here[2..]);
            let columns = above[1..ROW - 1].iter().zip(&below[1..ROW - 1]);
            let inner = sides.zip(columns).zip(&here[1..ROW - 1]);
            for (out, (((left, right), (above, below)), middle)) in out.iter_mut().zip(inner) {
                *out = self.2 * (left + right + above + below + middle);
            }
        }
    }
}

/// Five-point stencil on a grid of rows of [`ROW`] numbers, from one grid into another.
pub fn stencil(to: &mut [Line], from: &[Line], factor: f64) {
    simd_dispatch::run(Stencil(numbers_mut(to), numbers(from), factor));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: usize, first: f64) -> Vec<Line> {
        let number = |at: usize| first + at as f64;
        let line = |line: usize| Line(std::array::from_fn(|at| number(8 * line + at)));
        (0..lines).map(line).collect()
    }

    #[test]
    fn loops_compute_what_they_say() {
        for lines in [0, 1, 3, 4, 7, 64, 101] {
            let (b, c) = (counted(lines, 1.0), counted(lines, 5.0));
            let numbers = b.iter().flat_map(|line| line.0);
            assert_eq!(
                load(&b),
                numbers.fold(0, |all, number| all | number.to_bits())
            );
            let mut a = vec![Line::default(); lines];
            triad(&mut a, (&b, &c), 2.0);
            let mut y = b.clone();
            daxpy(&mut y, &c, 2.0);
            assert_eq!(a, y);
            assert!(
                a.iter()
                    .zip(&b)
                    .zip(&c)
                    .all(|((a, b), c)| a.0[3] == b.0[3] + 2.0 * c.0[3])
            );
            copy(&mut a, &b, 0);
            assert_eq!(a, b);
            update(&mut a, 3.0);
            assert!(a.iter().zip(&b).all(|(a, b)| a.0[7] == 3.0 * b.0[7]));
            store(&mut a, 4.0);
            assert!(a.iter().all(|line| line.0 == [4.0; 8]));
        }
    }

    #[test]
    fn the_stencil_adds_a_number_and_its_four_neighbours() {
        let lines = 4 * ROW / 8;
        let from = counted(lines, 0.0);
        let mut to = vec![Line::default(); lines];
        stencil(&mut to, &from, 1.0);
        let (to, from): (&[f64], &[f64]) = (bytemuck::cast_slice(&to), bytemuck::cast_slice(&from));
        let at = ROW + 5;
        assert_eq!(to[at], 5.0 * from[at]);
        assert_eq!([to[0], to[ROW], to[2 * ROW - 1], to[3 * ROW + 7]], [0.0; 4]);
    }
}
