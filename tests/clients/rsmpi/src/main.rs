//! A ring, a non-blocking exchange, collectives, user types and an own operation through the `mpi`
//! crate.

use mpi::collective::{SystemOperation, UserOperation};
use mpi::datatype::{Equivalence, UserDatatype};
use mpi::request::{scope, WaitGuard};
use mpi::topology::Communicator;
use mpi::traits::*;

/// Sent as an MPI struct type: padding between the fields is not transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Particle {
    kind: u8,
    position: [f64; 3],
}

// SAFETY: the blocks and displacements are those of the fields above.
unsafe impl Equivalence for Particle {
    type Out = UserDatatype;
    fn equivalent_datatype() -> UserDatatype {
        UserDatatype::structured(
            &[1, 3],
            &[std::mem::offset_of!(Particle, kind) as mpi::Address, std::mem::offset_of!(Particle, position) as mpi::Address],
            &[u8::equivalent_datatype(), f64::equivalent_datatype()],
        )
    }
}

fn main() {
    let universe = mpi::initialize().expect("MPI was initialised already");
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);

    let (token, status) = mpi::point_to_point::send_receive::<i32, i32, _, _>(
        &rank,
        &world.process_at_rank(next),
        &world.process_at_rank(previous),
    );
    assert_eq!((token, status.source_rank()), (previous, previous));

    let out: Vec<u64> = (0..50_000).map(|i| i * (rank as u64 + 1)).collect();
    let mut into = vec![0u64; out.len()];
    scope(|scope| {
        let _receive = WaitGuard::from(world.process_at_rank(previous).immediate_receive_into(scope, &mut into[..]));
        let _send = WaitGuard::from(world.process_at_rank(next).immediate_send(scope, &out[..]));
    });
    assert!(into.iter().enumerate().all(|(i, &value)| value == i as u64 * (previous as u64 + 1)));

    let mut sum = 0;
    world.all_reduce_into(&rank, &mut sum, SystemOperation::sum());
    assert_eq!(sum, size * (size - 1) / 2);

    let largest = UserOperation::commutative(|x, y| {
        let (x, y) = (x.downcast::<i32>().unwrap(), y.downcast::<i32>().unwrap());
        y[0] = y[0].max(x[0]);
    });
    let mut max = -1;
    world.all_reduce_into(&rank, &mut max, &largest);
    assert_eq!(max, size - 1);

    let mine = Particle { kind: rank as u8, position: [rank as f64, 0.5, -1.0] };
    let mut all = vec![Particle::default(); size as usize];
    world.all_gather_into(&mine, &mut all[..]);
    assert!(all.iter().enumerate().all(|(r, p)| p.kind == r as u8 && p.position == [r as f64, 0.5, -1.0]));

    let half = world.split_by_color(mpi::topology::Color::with_value(rank % 2)).expect("a colour was given");
    half.barrier();
    world.barrier();
    if rank == 0 {
        println!("rsmpi: {size} ranks agree");
    }
}
