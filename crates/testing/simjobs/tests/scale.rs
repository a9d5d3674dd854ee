//! Cost of a rank in jobs larger than any machine here: memory and partners of a rank, in worlds
//! of 2^10, 2^15, 100,000 and 2^20 ranks.
//!
//! Of the larger worlds some ranks are there, spread over all numbers; the rest is never spoken to,
//! which is the point. Memory is what the kernel says that the process has written, so each figure
//! comes from a process of its own: this program calls itself.

use garonne_engine::CreditQuotas;
use garonne_engine::api::CallOrigin;
use garonne_mpi::coll::{Allreduce, Barrier, Bcast, Elements};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::{Datatype, codes};
use garonne_mpi::op::{Op, PredefinedOp};
use garonne_mpi::process::{Process, ProcessConfig, ThreadLevel};
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, run, run_some};
use garonne_sync::user::Scratch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Says to a child what to do: ranks of the world, and how many of them are there.
const CHILD: &str = "GARONNE_TEST_SCALE";

/// Additional memory that a rank may hold among 2^15 than among 2^10: partners of neighbouring
/// numbers shared pages of its tables, and among 100,000 each has its own. One word for each rank
/// were 131,072 bytes, and 400,000.
const FIRST_GROWTH_MAX: i64 = 100 << 10;

/// Additional memory that a rank may hold among a million than among 100,000: nothing, and noise of
/// the allocator. One byte for each rank were a million.
const FURTHER_GROWTH_MAX: i64 = 16 << 10;

fn job(world: u32) -> SimJob {
    SimJob {
        world,
        seed: 7,
        faults: Faults::none(),
        quotas: CreditQuotas {
            envelopes: 64,
            payload: 1024,
        },
        memory: garonne_sim::MemoryAccess::Apart,
    }
}

/// A barrier, a sum and a broadcast.
fn meet(comm: &Comm) {
    let origin = CallOrigin::default();
    comm.collective(&Barrier, origin).expect("barrier");
    let (mine, all) = (
        Scratch::new(8).expect("memory"),
        Scratch::new(8).expect("memory"),
    );
    mine.mem().write(0, &u64::from(comm.rank()).to_le_bytes());
    let datatype = Datatype::predefined(codes::UINT64_T).expect("a predefined type");
    let sum = Allreduce {
        send: Some(mine.mem()),
        recv: all.mem(),
        count: 1,
        datatype: &datatype,
        op: &Op::predefined(PredefinedOp::Sum as u16).expect("a predefined operation"),
    };
    comm.collective(&sum, origin).expect("allreduce");
    let mut bytes = [0; 8];
    all.mem().read(0, &mut bytes);
    let n = u64::from(comm.size());
    assert_eq!(u64::from_le_bytes(bytes), n * (n - 1) / 2);
    let buffer = Elements {
        mem: all.mem(),
        count: 1,
        datatype: &datatype,
    };
    comm.collective(&Bcast { buffer, root: 0 }, origin)
        .expect("bcast");
}

/// Bytes that this process has written and holds.
fn dirty() -> i64 {
    let text =
        std::fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel's account of memory");
    let line = text.lines().find(|line| line.starts_with("Private_Dirty:"));
    let kilobytes = line
        .and_then(|line| line.split_whitespace().nth(1))
        .expect("a line for what was written");
    kilobytes.parse::<i64>().expect("a number") << 10
}

/// In a child: a job of which some ranks are there, who make a communicator and meet in it. Prints
/// what they all hold then.
#[test]
fn child() {
    let Ok(numbers) = std::env::var(CHILD) else {
        return;
    };
    let (world, there) = numbers.split_once(',').expect("two numbers");
    let (world, there): (u32, u32) = (
        world.parse().expect("a number"),
        there.parse().expect("a number"),
    );
    let present: Vec<u32> = (0..there).map(|at| at * (world / there)).collect();
    let ranks: Vec<i32> = present.iter().map(|rank| *rank as i32).collect();
    let outcome = run_some(&job(world), &present, |host: Arc<SimHost>| {
        let process = Process::new(ProcessConfig::plain(host));
        process.init(ThreadLevel::Multiple).expect("init");
        let world = process.world().expect("the world");
        let group = world.group().incl(&ranks).expect("a group");
        let met = world
            .create_group(&group, 3, CallOrigin::default())
            .expect("a communicator")
            .expect("all are members");
        meet(&met);
        if met.rank() == 0 {
            println!("\nheld {}", dirty());
        }
        meet(&met);
    });
    assert_eq!(outcome.failure, None);
}

/// Returns the memory that `there` ranks of `world` hold together.
fn held(world: u32, there: u32) -> i64 {
    let own = std::env::current_exe().expect("this program");
    let child = std::process::Command::new(own)
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{world},{there}"))
        .output()
        .expect("this program again");
    let text = String::from_utf8_lossy(&child.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("held "));
    let errors = String::from_utf8_lossy(&child.stderr);
    line.unwrap_or_else(|| panic!("{text}{errors}"))
        .parse()
        .expect("a number")
}

/// Returns the cost of one more rank in a world of this size.
fn cost(world: u32) -> i64 {
    let (few, many) = (4, 68);
    (held(world, many) - held(world, few)) / i64::from(many - few)
}

#[test]
fn a_rank_among_a_million_holds_what_one_among_a_thousand_does() {
    let [small, middle, large, huge] = [1 << 10, 1 << 15, 100_000, 1 << 20].map(cost);
    let text = format!(
        "a rank that speaks with some others holds {small} bytes among 2^10, {middle} among 2^15, {large} among 100,000, {huge} among 2^20"
    );
    println!("{text}");
    assert!(middle.max(large) - small < FIRST_GROWTH_MAX, "{text}");
    assert!(huge - large < FURTHER_GROWTH_MAX, "{text}");
}

/// The most and the average of peers that a rank of `world` spoke with in [`meet`].
fn partners(world: u32) -> (u64, f64) {
    let (most, all) = (AtomicU64::new(0), AtomicUsize::new(0));
    let outcome = run(&job(world), |host: Arc<SimHost>| {
        let process = Process::new(ProcessConfig::plain(host.clone()));
        process.init(ThreadLevel::Multiple).expect("init");
        meet(&process.world().expect("the world"));
        process.finalize().expect("finalize");
        let spoken = host.inspect(|shard| shard.peer_count());
        most.fetch_max(spoken as u64, Ordering::Relaxed);
        all.fetch_add(spoken, Ordering::Relaxed);
    });
    assert_eq!(outcome.failure, None);
    (
        most.into_inner(),
        all.into_inner() as f64 / f64::from(world),
    )
}

#[test]
fn partners_grow_with_the_logarithm_of_the_ranks() {
    for world in [16, 128, 1_000] {
        let (most, mean) = partners(world);
        let doublings = u64::from(world.next_power_of_two().ilog2());
        println!("{world} ranks: {mean:.1} partners, {most} at most, {doublings} doublings");
        // A barrier's before and behind, at each distance; a broadcast's children and parent and a
        // sum's partner are among them or as many again.
        assert!(
            most <= 4 * doublings,
            "a rank of {world} spoke with {most} others"
        );
    }
}
