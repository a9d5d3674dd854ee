//! `MPI_Dims_create`: a grid with sides as equal as divisibility allows.

use crate::error::{Class, Error, Result};
use std::collections::HashMap;

/// Fills the zeros in `dims` so that the product is `nodes`: sides fall, and the greatest is as
/// small as possible, then the next, and so on. Positive entries stay.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Result<()> {
    if nodes < 1 {
        return Err(Error::new(
            Class::Arg,
            format!("a grid of {nodes} processes was asked for; it needs at least 1"),
        ));
    }
    let mut fixed = 1i64;
    for &side in dims.iter().filter(|side| **side != 0) {
        if side < 0 {
            return Err(Error::new(
                Class::Dims,
                format!("a side of a grid is {side}; it must be 0 (free) or more"),
            ));
        }
        fixed = fixed.saturating_mul(side.into());
    }
    let free = dims.iter().filter(|side| **side == 0).count();
    if i64::from(nodes) % fixed != 0 || (free == 0 && fixed != i64::from(nodes)) {
        let text = format!("{nodes} processes do not fill a grid whose given sides make {fixed}");
        return Err(Error::new(Class::Dims, text));
    }
    let rest = (i64::from(nodes) / fixed) as u32;
    let divisors: Vec<u32> = divisors(rest);
    let sides = DimsSearch {
        divisors,
        failed: HashMap::new(),
    }
    .factor(rest, free, rest)
    .unwrap_or_default();
    let mut sides = sides.into_iter();
    for side in dims.iter_mut().filter(|side| **side == 0) {
        *side = sides.next().unwrap_or(1) as i32;
    }
    Ok(())
}

/// All divisors, rising.
fn divisors(n: u32) -> Vec<u32> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    for d in (1..).take_while(|d| u64::from(*d) * u64::from(*d) <= u64::from(n)) {
        if n.is_multiple_of(d) {
            small.push(d);
            if d != n / d {
                large.push(n / d);
            }
        }
    }
    small.extend(large.into_iter().rev());
    small
}

/// Depth-first search for the lexicographically least falling factorisation.
struct DimsSearch {
    divisors: Vec<u32>,
    /// (product, sides) that cannot be made with sides up to this bound.
    failed: HashMap<(u32, usize), u32>,
}

impl DimsSearch {
    fn factor(&mut self, product: u32, sides: usize, bound: u32) -> Option<Vec<u32>> {
        if product == 1 {
            return Some(vec![1; sides]);
        }
        if sides == 0
            || self
                .failed
                .get(&(product, sides))
                .is_some_and(|failed| bound <= *failed)
        {
            return None;
        }
        for index in 0..self.divisors.len() {
            let side = self.divisors[index];
            if side > bound {
                break;
            }
            // A first side below the root cannot be the greatest.
            if !product.is_multiple_of(side) || !reaches(side, sides, product) {
                continue;
            }
            if let Some(mut rest) = self.factor(product / side, sides - 1, side) {
                rest.insert(0, side);
                return Some(rest);
            }
        }
        self.failed.insert((product, sides), bound);
        None
    }
}

/// Returns whether `side` to the power of `sides` is at least `product`.
fn reaches(side: u32, sides: usize, product: u32) -> bool {
    let mut power = 1u64;
    for _ in 0..sides.min(32) {
        power *= u64::from(side);
        if power >= u64::from(product) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(nodes: i32, dims: &[i32]) -> Vec<i32> {
        let mut dims = dims.to_vec();
        dims_create(nodes, &mut dims).unwrap();
        dims
    }

    #[test]
    fn sides_are_balanced_and_falling() {
        assert_eq!(grid(6, &[0, 0]), [3, 2]);
        assert_eq!(grid(7, &[0, 0]), [7, 1]);
        assert_eq!(grid(6, &[0, 3, 0]), [2, 3, 1]);
        assert_eq!(grid(24, &[0, 0, 0]), [4, 3, 2]);
        assert_eq!(grid(64, &[0, 0, 0]), [4, 4, 4]);
        assert_eq!(grid(48, &[0, 0]), [8, 6]);
        assert_eq!(grid(1 << 30, &[0; 40])[..31], [&[2; 30][..], &[1]].concat());
        assert_eq!(grid(1, &[]), Vec::<i32>::new());
    }

    #[test]
    fn sides_that_cannot_be_filled_are_refused() {
        assert_eq!(dims_create(7, &mut [2, 0]).unwrap_err().class, Class::Dims);
        assert_eq!(dims_create(7, &mut []).unwrap_err().class, Class::Dims);
        assert_eq!(dims_create(0, &mut [0]).unwrap_err().class, Class::Arg);
        assert_eq!(dims_create(4, &mut [-1, 0]).unwrap_err().class, Class::Dims);
    }

    proptest! {
        #[test]
        fn the_product_is_the_number_of_processes_and_sides_fall(nodes in 1..100_000i32, count in 1..6usize) {
            let dims = grid(nodes, &vec![0; count]);
            prop_assert_eq!(dims.iter().product::<i32>(), nodes);
            prop_assert!(dims.is_sorted_by(|a, b| a >= b));
        }
    }
}
