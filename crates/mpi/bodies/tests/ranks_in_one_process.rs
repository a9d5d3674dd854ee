//! Two ranks in one process: threads with a `RankContext` each call the MPI functions as C programs
//! do, and exchange messages through memory of the process.

mod support;

use garonne_bodies::RankContext;
use garonne_rank::Rank;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use support::*;

const RANKS: usize = 2;

/// What two ranks tell each other beside MPI.
struct World {
    /// A place for a handle of each rank.
    handles: [Mutex<Handle>; RANKS],
    all: Barrier,
}

impl World {
    /// Passes a handle to the other rank and returns that rank's.
    fn exchange(&self, me: usize, mine: Handle) -> Handle {
        let at = |rank: usize| {
            self.handles[rank]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        *at(me) = mine;
        self.all.wait();
        let theirs = *at(1 - me);
        self.all.wait();
        theirs
    }
}

/// Runs `program` in two ranks that are threads, between `MPI_Init` and `MPI_Finalize`, while a
/// third thread belongs to neither.
fn run(first_number: u32, program: impl Fn(&World, usize) + Sync) {
    let world = World {
        handles: Default::default(),
        all: Barrier::new(RANKS),
    };
    let started = Barrier::new(RANKS + 1);
    let ranks = Rank::world_of_threads(RANKS as u32).unwrap();
    std::thread::scope(|scope| {
        for (me, rank) in ranks.into_iter().enumerate() {
            let (world, program, started) = (&world, &program, &started);
            scope.spawn(move || {
                let context = RankContext::for_rank(first_number + me as u32, rank);
                let entered = context.enter();
                assert!(!initialized());
                ok(init());
                assert!(initialized());
                ok(comm_set_errhandler(COMM_WORLD, ERRORS_RETURN));
                started.wait();
                assert_eq!(value(|rank| comm_rank(COMM_WORLD, rank)), me as c_int);
                assert_eq!(value(|size| comm_size(COMM_WORLD, size)), RANKS as c_int);
                program(world, me);
                started.wait();
                ok(finalize());
                drop(entered);
                assert!(
                    !initialized(),
                    "the thread is back in the process's only rank"
                );
            });
        }
        // Both ranks have called MPI_Init and neither has called MPI_Finalize.
        started.wait();
        assert!(!initialized(), "a thread of neither rank");
        started.wait();
    });
}

/// Number of the first context of each test's world: another one for each context of the process.
const NUMBERS: [u32; 4] = [1, 3, 5, 7];

#[test]
fn ranks_exchange_messages() {
    run(NUMBERS[0], |_, me| {
        let other = 1 - me as c_int;
        // So often that the fast path knows the other rank.
        for round in 0..100 {
            let (mine, mut theirs) = ([me as c_int, round], [-1; 2]);
            if me == 0 {
                ok(send(at(&mine), 2, INT, other, round, COMM_WORLD));
            }
            ok(recv(
                at_mut(&mut theirs),
                2,
                INT,
                other,
                round,
                COMM_WORLD,
                STATUS_IGNORE,
            ));
            if me == 1 {
                ok(send(at(&mine), 2, INT, other, round, COMM_WORLD));
            }
            assert_eq!(theirs, [other, round]);
        }
        // Short messages, and long ones that go by the rendezvous protocol.
        for len in [1, 100_000] {
            let mine = vec![me as c_int + 10; len];
            let mut theirs = vec![-1; len];
            let mut requests = [REQUEST_NULL; 2];
            let count = len as c_int;
            ok(irecv(
                theirs.as_mut_ptr().cast(),
                count,
                INT,
                other,
                7,
                COMM_WORLD,
                &mut requests[0],
            ));
            ok(isend(
                mine.as_ptr().cast(),
                count,
                INT,
                other,
                7,
                COMM_WORLD,
                &mut requests[1],
            ));
            ok(waitall(2, requests.as_mut_ptr(), STATUS_IGNORE));
            assert_eq!(requests, [REQUEST_NULL; 2]);
            assert!(theirs.iter().all(|word| *word == other + 10));
        }
        let (mine, mut theirs) = (me as c_int, -1);
        let to = at_mut(&mut theirs);
        ok(sendrecv(
            at(&mine),
            1,
            INT,
            other,
            1,
            to,
            1,
            INT,
            other,
            1,
            COMM_WORLD,
            STATUS_IGNORE,
        ));
        assert_eq!(theirs, other);
    });
}

#[test]
fn ranks_meet_in_collectives() {
    run(NUMBERS[1], |_, me| {
        for round in 0..20 {
            let (mine, mut sum) = (me as c_int + round, -1);
            ok(allreduce(
                at(&mine),
                at_mut(&mut sum),
                1,
                INT,
                SUM,
                COMM_WORLD,
            ));
            assert_eq!(sum, 1 + 2 * round);
            ok(barrier(COMM_WORLD));
        }
        let mut copy = value(|new| comm_dup(COMM_WORLD, new));
        let mut alone = value(|new| comm_split(copy, me as c_int, 0, new));
        assert_eq!(value(|size| comm_size(alone, size)), 1);
        let (mine, mut sum) = (5, -1);
        ok(allreduce(at(&mine), at_mut(&mut sum), 1, INT, SUM, alone));
        assert_eq!(sum, 5);
        ok(barrier(copy));
        ok(comm_free(&mut alone));
        ok(comm_free(&mut copy));
        assert_eq!((alone, copy), (COMM_NULL, COMM_NULL));
    });
}

extern "C" fn count_error(_comm: *mut Handle, code: *mut c_int) {
    // SAFETY: MPI passes a valid address.
    LAST_ERROR.store(unsafe { *code }, Ordering::Relaxed);
}

/// The code with which rank 0's error handler was called.
static LAST_ERROR: AtomicI32 = AtomicI32::new(0);

#[test]
fn attributes_and_errors_belong_to_one_rank() {
    run(NUMBERS[2], |world, me| {
        // Both ranks get the same key, and each sees its own value alone.
        let null = std::ptr::null_mut();
        let keyval = value(|keyval| comm_create_keyval(null, null, keyval, null));
        let get = || {
            let (mut found, mut flag) = (0_usize, 0);
            ok(comm_get_attr(
                COMM_WORLD,
                keyval,
                at_mut(&mut found),
                &mut flag,
            ));
            (flag != 0).then_some(found)
        };
        assert_eq!(get(), None);
        world.all.wait();
        if me == 0 {
            let value = std::ptr::without_provenance_mut::<c_void>(77);
            ok(comm_set_attr(COMM_WORLD, keyval, value));
        }
        world.all.wait();
        assert_eq!(get(), (me == 0).then_some(77));

        // Predefined datatypes have another name and other attributes in each rank.
        let keyval = value(|keyval| type_create_keyval(null, null, keyval, null));
        let name = || {
            let (mut name, mut len) = ([0_u8; 128], 0);
            ok(type_get_name(INT, name.as_mut_ptr().cast(), &mut len));
            String::from_utf8_lossy(&name[..len as usize]).into_owned()
        };
        if me == 0 {
            ok(type_set_name(INT, c"words".as_ptr()));
            let value = std::ptr::without_provenance_mut::<c_void>(78);
            ok(type_set_attr(INT, keyval, value));
        }
        world.all.wait();
        let (mut found, mut flag) = (0_usize, 0);
        ok(type_get_attr(INT, keyval, at_mut(&mut found), &mut flag));
        assert_eq!((flag != 0, found), (me == 0, if me == 0 { 78 } else { 0 }));
        let mut copy = value(|new| type_dup(INT, new));
        ok(type_get_attr(copy, keyval, at_mut(&mut found), &mut flag));
        assert_eq!(flag, 0, "a key without a copy function");
        ok(type_free(&mut copy));
        assert_eq!(name(), if me == 0 { "words" } else { "MPI_INT" });

        // An error handler of rank 0 does not see errors of rank 1.
        if me == 0 {
            let handler = count_error as *const c_void;
            let handler = value(|new| comm_create_errhandler(handler, new));
            ok(comm_set_errhandler(COMM_WORLD, handler));
        }
        world.all.wait();
        let nothing = 0;
        if me == 1 {
            let code = send(at(&nothing), 1, INT, 17, 0, COMM_WORLD);
            assert!(code != 0 && text(code).contains("17"), "{}", text(code));
        }
        world.all.wait();
        assert_eq!(LAST_ERROR.load(Ordering::Relaxed), 0);
        world.all.wait();
        if me == 0 {
            let code = send(at(&nothing), 1, INT, 18, 0, COMM_WORLD);
            assert!(text(code).contains("18"), "{}", text(code));
            assert_eq!(LAST_ERROR.load(Ordering::Relaxed), code);
        }

        // Error classes of the program are numbered in each rank by itself.
        if me == 0 {
            let first = value::<c_int>(add_error_class);
            assert_eq!(value::<c_int>(add_error_class), first + 1);
            world.exchange(me, first as usize);
        } else {
            let theirs = world.exchange(me, 0);
            assert_eq!(value::<c_int>(add_error_class), theirs as c_int);
        }
    });
}

extern "C" fn add(
    _input: *mut c_void,
    _inout: *mut c_void,
    _len: *mut c_int,
    _datatype: *mut Handle,
) {
}

#[test]
fn objects_of_one_rank_are_refused_in_the_other() {
    run(NUMBERS[3], |world, me| {
        let mut comm = value(|new| comm_dup(COMM_WORLD, new));
        let mut datatype = value(|new| type_contiguous(me as c_int + 2, INT, new));
        let mut op = value(|new| op_create(add as *const c_void, 1, new));
        let refused = |code: c_int, expected: c_int| {
            assert_eq!(class(code), expected, "{}", text(code));
            assert!(
                text(code).contains("belongs to another rank of this process"),
                "{}",
                text(code)
            );
        };
        let mut number = 0;
        let theirs = world.exchange(me, comm);
        refused(comm_rank(theirs, &mut number), ERR_COMM);
        let theirs = world.exchange(me, datatype);
        refused(type_size(theirs, &mut number), ERR_TYPE);
        let mut theirs = world.exchange(me, op);
        refused(op_free(&mut theirs), ERR_OP);
        world.all.wait();
        // Each rank's own objects are as they were.
        assert_eq!(value(|rank| comm_rank(comm, rank)), me as c_int);
        assert_eq!(
            value(|size| type_size(datatype, size)),
            4 * (me as c_int + 2)
        );
        ok(type_free(&mut datatype));
        ok(op_free(&mut op));
        ok(comm_free(&mut comm));
    });
}
