//! How many types an all-to-all with a type for each partner has.

use crate::calls::{self, Function};
use crate::family::Family;
use std::ffi::{CStr, c_int};
use std::mem::transmute;

/// Processes that the types are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// All processes of the communicator, or of its other side.
    Peers,
    /// Processes that a process receives from in its topology.
    Sources,
    /// Processes that a process sends to in its topology.
    Destinations,
}

type One = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type Two = unsafe extern "C" fn(usize, c_int, *mut c_int) -> c_int;
type Three = unsafe extern "C" fn(usize, *mut c_int, *mut c_int, *mut c_int) -> c_int;

/// Asks the C library for a number of a communicator. 0 where it refuses: the call itself then
/// tells why.
fn ask<F: Family>(name: &CStr, comm: usize) -> c_int {
    let mut value = 0;
    // SAFETY: functions with this type.
    let call = unsafe { transmute::<Function, One>(calls::own::<F>(name)) };
    // SAFETY: a handle, which the library checks, and a place for a number.
    if unsafe { call(comm, &raw mut value) } == 0 {
        value
    } else {
        0
    }
}

/// Returns the number of types.
#[cold]
pub fn count<F: Family>(side: Side, is_ignored: bool, comm: usize) -> i64 {
    if is_ignored {
        return 0;
    }
    if side == Side::Peers {
        let is_inter = ask::<F>(c"MPI_Comm_test_inter", comm) != 0;
        let name = if is_inter {
            c"MPI_Comm_remote_size"
        } else {
            c"MPI_Comm_size"
        };
        return ask::<F>(name, comm).into();
    }
    match ask::<F>(c"MPI_Topo_test", comm) {
        kind if kind == F::NUMBERS.cart => 2 * i64::from(ask::<F>(c"MPI_Cartdim_get", comm)),
        kind if kind == F::NUMBERS.graph => {
            let rank = ask::<F>(c"MPI_Comm_rank", comm);
            let mut value = 0;
            let call = calls::own::<F>(c"MPI_Graph_neighbors_count");
            // SAFETY: the function has this type.
            let call = unsafe { transmute::<Function, Two>(call) };
            // SAFETY: a handle with this topology, and a place for a number.
            unsafe { call(comm, rank, &raw mut value) };
            value.into()
        }
        kind if kind == F::NUMBERS.dist_graph => {
            let (mut sources, mut destinations, mut weighted) = (0, 0, 0);
            let call = calls::own::<F>(c"MPI_Dist_graph_neighbors_count");
            // SAFETY: the function has this type.
            let call = unsafe { transmute::<Function, Three>(call) };
            // SAFETY: a handle with this topology, and places for numbers.
            unsafe {
                call(
                    comm,
                    &raw mut sources,
                    &raw mut destinations,
                    &raw mut weighted,
                )
            };
            let count = if side == Side::Sources {
                sources
            } else {
                destinations
            };
            count.into()
        }
        _ => 0,
    }
}
