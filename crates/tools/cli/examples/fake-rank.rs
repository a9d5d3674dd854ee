//! A rank without MPI, for the tests of launcher and agent: joins, does what its arguments say,
//! leaves.
//!
//! Arguments are commands, done in order: `hello`, `ring` (talks through every inbox), `fence`,
//! `put K V`, `get K`, `sleep MS`, `spin MS`. Others print or end: `report TEXT`, `say TEXT`,
//! `abort CODE TEXT`, `crash`, `exit CODE`, `finalize`, `resume`, `forever`. `only RANK` lets the
//! other ranks skip the next command. `wait RANK` publishes that the rank waits for one (-1: for
//! any) until `awake`; `mourn RANK` waits until the board shows that one gone. `child` runs this
//! program as a program of its own; `spaces` counts the PID namespaces of all ranks. At the
//! beginning, `pose VERSION` makes rank 1 claim another version, and `speak LOWEST HIGHEST` lets it
//! know other protocols.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use garonne_job::layout::{RankState, WaitInfo};
use garonne_job::rank_messages::{LIBRARY_VERSION, PROTOCOLS};
use garonne_rank::client::AgentClient;
use garonne_tcp::Versions;

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let posed = args
        .next_if(|word| word == "pose")
        .and_then(|_| args.next());
    let spoken = args.next_if(|word| word == "speak").map(|_| {
        let mut number = || {
            args.next()
                .and_then(|word| word.parse().ok())
                .expect("a protocol")
        };
        Versions::from((number(), number()))
    });
    let client = match std::env::var("GARONNE_RANK").as_deref() {
        Ok("1") => AgentClient::from_env_as(
            posed.as_deref().unwrap_or(LIBRARY_VERSION),
            spoken.unwrap_or(PROTOCOLS),
        ),
        _ => AgentClient::from_env(),
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(9);
        }
    };
    let Some(client) = client else {
        println!("a world of one");
        return;
    };
    while let Some(word) = args.next() {
        if word == "only" {
            let rank: u32 = args.next().expect("only RANK").parse().expect("a rank");
            if rank != client.world().rank {
                let skipped = args.next().expect("a command after `only RANK`");
                (0..operands(&skipped)).for_each(|_| drop(args.next()));
            }
            continue;
        }
        let operands: Vec<String> = args.by_ref().take(operands(&word)).collect();
        obey(&client, &word, &operands);
    }
}

fn operands(word: &str) -> usize {
    match word {
        "put" | "abort" => 2,
        "get" | "mourn" | "wait" | "sleep" | "spin" | "report" | "say" | "exit" => 1,
        _ => 0,
    }
}

/// Starts this program as one that is not a rank.
fn run_child() {
    let program = std::env::current_exe().expect("own path");
    let output = std::process::Command::new(program)
        .output()
        .expect("the child runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

fn obey(client: &AgentClient, word: &str, operands: &[String]) {
    let world = client.world();
    let number = || operands[0].parse::<i64>().expect("a number");
    let fine = |result: Result<(), garonne_job::Error>| {
        result.unwrap_or_else(|error| panic!("{word}: {error}"))
    };
    match word {
        "hello" => println!(
            "rank {} of {} in world {}",
            world.rank, world.size, world.epoch
        ),
        "ring" => ring(client),
        "fence" => fine(client.fence()),
        "put" => fine(client.put(&operands[0], operands[1].as_bytes())),
        "get" => println!(
            "{}",
            String::from_utf8_lossy(&client.get(&operands[0]).expect("a value"))
        ),
        "sleep" => std::thread::sleep(Duration::from_millis(number() as u64)),
        "spin" => {
            let end = Instant::now() + Duration::from_millis(number() as u64);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        "report" => fine(client.report(&operands[0])),
        "say" => eprintln!("{}", operands[0]),
        "abort" => {
            fine(client.abort(number() as i32, &operands[1]));
            std::process::exit(99);
        }
        "crash" => std::process::abort(),
        "exit" => std::process::exit(number() as i32),
        "finalize" => fine(client.finalized()),
        "resume" => fine(client.resumed()),
        "wait" => publish_wait(client, number() as i32, now_ns()),
        "mourn" => {
            while client.rank_block(number() as u32).state() != RankState::Gone {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        "awake" => publish_wait(client, 0, 0),
        "child" => run_child(),
        "spaces" => {
            let spaces: std::collections::BTreeSet<u64> = (0..world.size)
                .map(|rank| client.rank_block(rank).pid_space())
                .collect();
            println!("{} PID namespaces", spaces.len());
        }
        "forever" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        other => panic!("unknown command '{other}'"),
    }
}

/// Shows on this rank's rank block that it waits for `peer` since a time, or for nothing since 0.
fn publish_wait(client: &AgentClient, peer: i32, since_ns: u64) {
    client
        .rank_block(client.world().rank)
        .publish_wait(&WaitInfo {
            peer,
            since_ns,
            ..WaitInfo::default()
        });
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes a token into the next rank's inbox and waits for the previous rank's in its own.
fn ring(client: &AgentClient) {
    let world = client.world();
    let next = client
        .map_peer((world.rank + 1) % world.size)
        .expect("the next rank's inbox");
    next.atomic_u32(64).store(world.rank + 1, Release);
    let own = client.own_inbox();
    let expected = (world.rank + world.size - 1) % world.size + 1;
    while own.atomic_u32(64).load(Acquire) != expected {
        std::thread::yield_now();
    }
    println!("rank {} heard from rank {}", world.rank, expected - 1);
}
