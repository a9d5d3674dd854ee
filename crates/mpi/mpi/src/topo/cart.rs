//! Cartesian grids: coordinates in row-major order, the last dimension fastest.

use super::Topology;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::CallOrigin;
use std::sync::Arc;

/// A grid of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    /// Processes along each dimension.
    pub dims: Vec<i32>,
    /// Whether each dimension is a ring.
    pub periods: Vec<bool>,
}

impl Cart {
    fn new(dims: &[i32], periods: &[bool]) -> Result<Self> {
        if dims.len() != periods.len() {
            return Err(Error::new(
                Class::Dims,
                format!(
                    "{} sides but {} periods were given",
                    dims.len(),
                    periods.len()
                ),
            ));
        }
        if let Some(bad) = dims.iter().find(|side| **side < 1) {
            return Err(Error::new(
                Class::Dims,
                format!("a side of a grid is {bad}; it must be at least 1"),
            ));
        }
        Ok(Self {
            dims: dims.to_vec(),
            periods: periods.to_vec(),
        })
    }

    /// Number of processes in the grid.
    pub fn size(&self) -> u64 {
        self.dims
            .iter()
            .fold(1, |size: u64, side| size.saturating_mul(*side as u64))
    }

    /// `MPI_Cart_coords`.
    pub fn coords(&self, rank: i32) -> Result<Vec<i32>> {
        if rank < 0 || rank as u64 >= self.size() {
            return Err(Error::new(
                Class::Rank,
                format!(
                    "rank {rank} is not in the grid, which has {} processes",
                    self.size()
                ),
            ));
        }
        let mut rest = rank;
        let mut coords: Vec<i32> = self
            .dims
            .iter()
            .rev()
            .map(|side| {
                let here = rest % side;
                rest /= side;
                here
            })
            .collect();
        coords.reverse();
        Ok(coords)
    }

    /// `MPI_Cart_rank`: coordinates in ring dimensions wrap around.
    pub fn rank(&self, coords: &[i32]) -> Result<i32> {
        if coords.len() < self.dims.len() {
            let text = format!(
                "{} coordinates were given for a grid of {} dimensions",
                coords.len(),
                self.dims.len()
            );
            return Err(Error::new(Class::Dims, text));
        }
        let mut rank = 0;
        for (index, (&side, &periodic)) in self.dims.iter().zip(&self.periods).enumerate() {
            let here = coords[index];
            if !periodic && !(0..side).contains(&here) {
                let text = format!(
                    "coordinate {here} of dimension {index} is outside the grid, whose side there is {side}"
                );
                return Err(Error::new(Class::Rank, text));
            }
            rank = rank * side + here.rem_euclid(side);
        }
        Ok(rank)
    }

    /// `MPI_Cart_shift` seen from `rank`: the source and the destination.
    pub fn shift(&self, rank: u32, direction: i32, by: i32) -> Result<(i32, i32)> {
        let dimension = usize::try_from(direction)
            .ok()
            .filter(|dimension| *dimension < self.dims.len());
        let dimension = dimension.ok_or_else(|| {
            Error::new(
                Class::Dims,
                format!(
                    "direction {direction} does not exist in a grid of {} dimensions",
                    self.dims.len()
                ),
            )
        })?;
        Ok((
            self.step(rank, dimension, -i64::from(by)),
            self.step(rank, dimension, by.into()),
        ))
    }

    /// The rank `by` steps away along a dimension, or `MPI_PROC_NULL`.
    fn step(&self, rank: u32, dimension: usize, by: i64) -> i32 {
        let side = i64::from(self.dims[dimension]);
        let stride: i64 = self.dims[dimension + 1..]
            .iter()
            .map(|side| i64::from(*side))
            .product();
        let here = i64::from(rank) / stride % side;
        let there = here + by;
        if self.periods[dimension] {
            (i64::from(rank) + (there.rem_euclid(side) - here) * stride) as i32
        } else if (0..side).contains(&there) {
            (i64::from(rank) + by * stride) as i32
        } else {
            crate::PROC_NULL
        }
    }

    /// Both neighbours in each dimension, the one below first.
    pub(crate) fn neighbors(&self, rank: u32) -> Vec<i32> {
        (0..self.dims.len())
            .flat_map(|dimension| {
                [
                    self.step(rank, dimension, -1),
                    self.step(rank, dimension, 1),
                ]
            })
            .collect()
    }
}

impl Comm {
    /// `MPI_Cart_create`: `None` for processes that the grid leaves over. With `reorder` ranks may
    /// change so that neighbours are nearer to each other.
    pub fn cart_create(
        &self,
        dims: &[i32],
        periods: &[bool],
        (reorder, origin): (bool, CallOrigin),
    ) -> Result<Option<Comm>> {
        let cart = Cart::new(dims, periods)?;
        let size = self.grid_size(&cart)?;
        self.with_topology(
            size,
            Topology::Cart(cart),
            (CollectiveKind::CartCreate, reorder, origin),
        )
    }

    fn grid_size(&self, cart: &Cart) -> Result<u32> {
        if cart.size() > u64::from(self.size()) {
            let text = format!(
                "has {} processes, fewer than the {} of a grid {:?}",
                self.size(),
                cart.size(),
                cart.dims
            );
            return Err(self.error(Class::Dims, text));
        }
        Ok(cart.size() as u32)
    }

    /// The grid of this communicator.
    pub fn cart(&self) -> Result<&Cart> {
        match self.topology() {
            Some(Topology::Cart(cart)) => Ok(cart),
            _ => Err(self.error(Class::Topology, "has no Cartesian topology")),
        }
    }

    /// `MPI_Cart_sub`: the subgrid through this process along the dimensions that `remain`.
    pub fn cart_sub(&self, remain: &[bool], origin: CallOrigin) -> Result<Comm> {
        let cart = self.cart()?;
        if remain.len() < cart.dims.len() {
            return Err(self.error(Class::Dims, "was given too few dimensions to keep"));
        }
        let coords = cart.coords(self.rank() as i32)?;
        let (mut color, mut key) = (0, 0);
        let mut kept = Cart {
            dims: Vec::new(),
            periods: Vec::new(),
        };
        for (index, &side) in cart.dims.iter().enumerate() {
            if remain[index] {
                key = key * side + coords[index];
                kept.dims.push(side);
                kept.periods.push(cart.periods[index]);
            } else {
                color = color * side as u32 + coords[index] as u32;
            }
        }
        let made = self.split_dressed(
            color,
            key,
            (CollectiveKind::CartSub, origin),
            move |parts| parts.topology = Some(Arc::new(Topology::Cart(kept))),
        )?;
        made.ok_or_else(|| self.error(Class::Intern, "lost a process in MPI_Cart_sub"))
    }

    /// `MPI_Cart_map`: the rank that the calling process would have, or `MPI_UNDEFINED`.
    pub fn cart_map(&self, dims: &[i32], periods: &[bool]) -> Result<i32> {
        let size = self.grid_size(&Cart::new(dims, periods)?)?;
        Ok(if self.rank() < size {
            self.rank() as i32
        } else {
            crate::UNDEFINED
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grids() -> impl Strategy<Value = Cart> {
        proptest::collection::vec((1..5i32, any::<bool>()), 0..4).prop_map(|sides| Cart {
            dims: sides.iter().map(|s| s.0).collect(),
            periods: sides.iter().map(|s| s.1).collect(),
        })
    }

    proptest! {
        #[test]
        fn ranks_and_coordinates_are_inverse(cart in grids()) {
            for rank in 0..cart.size() as i32 {
                prop_assert_eq!(cart.rank(&cart.coords(rank).unwrap()).unwrap(), rank);
            }
        }

        #[test]
        fn a_shift_moves_one_coordinate_and_back(cart in grids(), by in -6..7i32) {
            for rank in 0..cart.size() as u32 {
                for direction in 0..cart.dims.len() {
                    let (source, dest) = cart.shift(rank, direction as i32, by).unwrap();
                    let mut coords = cart.coords(rank as i32).unwrap();
                    coords[direction] += by;
                    let inside = cart.periods[direction] || (0..cart.dims[direction]).contains(&coords[direction]);
                    prop_assert_eq!(dest, if inside { cart.rank(&coords).unwrap() } else { crate::PROC_NULL });
                    if source >= 0 {
                        prop_assert_eq!(cart.shift(source as u32, direction as i32, by).unwrap().1, rank as i32);
                    }
                }
            }
        }
    }
}
