//! After `kill -9` of any process of a job, at any moment, nothing is left of it.

mod support;

use std::time::{Duration, Instant};

use support::{MARK, agent_of, children, command, kill, leftovers, marked, until};

/// A small generator (splitmix64), so that a failing round can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

/// Jobs whose ranks register at once, late, never, from behind shells, compute, sleep, or have
/// children of their own.
const JOBS: [&str; 7] = [
    "run -n 4 RANK ring forever",
    "run -n 3 RANK spin 10000",
    "run -n 3 sh -c RANK&wait",
    "run -n 2 sh -c sleep_100&exec_RANK_ring_forever",
    "run -n 8 RANK sleep 3 fence forever",
    "run -n 2 setsid sleep 100",
    "run -n 2 sh -c setsid_sleep_100&sleep_100&wait",
];

/// Splits a job's line; in the shell's words, `_` stands for a space.
fn job(line: &str, mark: &str) -> std::process::Command {
    let (head, script) = line.split_once("-c ").unwrap_or((line, ""));
    let mut command = command(head);
    if !script.is_empty() {
        let script = script
            .replace("RANK", &support::fake_rank())
            .replace("&exec_", "& exec ");
        command.args([
            "-c",
            &script.replace('_', " ").replace("fake rank", "fake-rank"),
        ]);
    }
    command
        .env(MARK, mark)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

/// Whom to kill: launcher, guard, agent, two of these three at one time, or any other process of
/// the job.
fn victims(dice: &mut Dice, launcher: i32, mark: &str) -> Vec<i32> {
    let guard = children(launcher).first().copied();
    let agent = agent_of(launcher);
    let keepers = |chosen: [Option<i32>; 2]| chosen.into_iter().flatten().collect::<Vec<_>>();
    let chosen = match dice.roll(8) {
        0 => vec![launcher],
        1 => keepers([agent, None]),
        2 => keepers([guard, None]),
        3 => keepers([Some(launcher), agent]),
        4 => keepers([[Some(launcher), agent][dice.roll(2) as usize], guard]),
        _ => {
            let mut all = marked(mark);
            all.retain(|&other| other != launcher);
            match all.len() as u64 {
                0 => vec![],
                count => vec![all[dice.roll(count) as usize]],
            }
        }
    };
    if chosen.is_empty() {
        vec![launcher]
    } else {
        chosen
    }
}

/// One job, one blow.
fn round(seed: u64) {
    let mut dice = Dice(seed);
    let mark = format!("{}-{seed}", std::process::id());
    let line = JOBS[dice.roll(JOBS.len() as u64) as usize];
    let mut launcher = job(line, &mark).spawn().expect("the job starts");
    let pid = launcher.id();
    std::thread::sleep(Duration::from_micros(dice.roll(40_000)));
    let victims = victims(&mut dice, pid as i32, &mark);
    // All are stopped first, so that none sees another die.
    if victims.len() > 1 {
        victims
            .iter()
            .for_each(|&victim| kill(victim, libc::SIGSTOP));
    }
    victims
        .iter()
        .for_each(|&victim| kill(victim, libc::SIGKILL));
    let start = Instant::now();
    until(
        &format!("the launcher ends (seed {seed}, {line}, victims {victims:?})"),
        || {
            // A killed bystander (a shell's background job) is no failure of the job: then another
            // one is.
            if start.elapsed() > Duration::from_secs(2) {
                kill(pid as i32, libc::SIGKILL);
            }
            launcher
                .try_wait()
                .expect("the launcher's status")
                .is_some()
        },
    );
    until(
        &format!(
            "no process is left (seed {seed}, {line}, victims {victims:?}): {:?}",
            marked(&mark)
        ),
        || marked(&mark).is_empty(),
    );
    until(&format!("no name is left (seed {seed}, {line})"), || {
        leftovers(pid).is_empty()
    });
}

#[test]
fn nothing_is_left_after_random_kills() {
    let rounds: u64 = std::env::var("GARONNE_TEST_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(240);
    let first: u64 = std::env::var("GARONNE_TEST_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    for seed in first..first + rounds {
        round(seed);
    }
}

/// Neither launcher nor agent can clean up. The guard ends what they leave, also processes that
/// never registered or are nobody's child any more. Without the guard too, the kernel ends what has
/// registered, and the direct children.
#[test]
fn nothing_outlives_agent_and_launcher_not_even_while_it_computes() {
    for (line, guarded) in [
        ("run -n 2 RANK hello spin 20000", true),
        ("run -n 2 RANK hello spin 20000", false),
        ("run -n 2 sh -c RANK_hello_spin_20000;true", true),
        ("run -n 2 sh -c RANK_hello_spin_20000;true", false),
        (
            "run -n 2 sh -c setsid_sleep_100&sleep_100&echo_x;wait",
            true,
        ),
    ] {
        let mark = format!("{}-both-{}-{guarded}", std::process::id(), line.len());
        let mut launcher = job(line, &mark)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the job starts");
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(launcher.stdout.take().unwrap()));
        (0..2).for_each(|_| drop(lines.next()));
        let pid = launcher.id() as i32;
        let mut keepers = vec![pid, agent_of(pid).expect("the agent")];
        if !guarded {
            keepers.extend(children(pid));
        }
        keepers.iter().for_each(|&pid| kill(pid, libc::SIGSTOP));
        keepers.iter().for_each(|&pid| kill(pid, libc::SIGKILL));
        launcher.wait().expect("the launcher's end");
        until(&format!("no process is left of {line}"), || {
            marked(&mark).is_empty()
        });
    }
}
