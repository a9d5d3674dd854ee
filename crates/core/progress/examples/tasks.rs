//! Work done by idle cores while the program computes:
//! `cargo run --release -p garonne-progress --example tasks`.
//!
//! A block of numbers is summed up in pieces by tasks while main computes in slices, between which
//! it lets tasks run, as a scheduler of user-level threads does. An alarm beats meanwhile, a
//! descriptor is read, a task repeats until something has happened, and a blocking call waits on a
//! thread of its own.

use garonne_progress::events::{Interest, WatchAction};
use garonne_progress::tasks::{Error, Place, RunContext, RunOutcome, TaskOptions, Urgency, shared};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PIECES: usize = 16;

/// User-level threads of main's, and what each computes in a turn.
const STRANDS: u32 = 2;
const SLICE: u32 = 100_000;
const TERMS: u32 = 20_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = shared()?;
    let numbers: Arc<Vec<u64>> = Arc::new((0..1 << 20).collect());
    let (total, beats) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let now = TaskOptions {
        urgency: Urgency::Now,
        ..TaskOptions::at(Place::Machine)
    };
    let beat = beats.clone();
    let every = Duration::from_millis(1);
    let alarm = tasks.on_alarm((every, Some(every)), &now, move |_: &RunContext| {
        beat.fetch_add(1, Ordering::Relaxed);
        WatchAction::Keep
    })?;
    // Read to its end each time: what is left would call this again at once.
    let (mut writer, reader) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    let (watched, bytes) = (reader.try_clone()?, Arc::new(AtomicU64::new(0)));
    let its_bytes = bytes.clone();
    let letters = tasks.on_descriptor(
        (&watched, Interest::Readable),
        &TaskOptions::at(Place::Machine),
        move |_: &RunContext| {
            let mut buffer = [0; 64];
            loop {
                match (&reader).read(&mut buffer) {
                    Ok(0) => return WatchAction::Stop,
                    Ok(got) => its_bytes.fetch_add(got as u64, Ordering::Relaxed),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return WatchAction::Keep;
                    }
                    Err(_) => return WatchAction::Stop,
                };
            }
        },
    )?;
    // Looked at by whoever is idle, at least every millisecond, until it is done.
    let patient = TaskOptions {
        patience: Some(every),
        ..TaskOptions::at(Place::Machine)
    };
    let beat = beats.clone();
    let repeats =
        Arc::new(tasks.task(
            &patient,
            move |_: &RunContext| match beat.load(Ordering::Relaxed) {
                0 => RunOutcome::Again,
                _ => RunOutcome::Done,
            },
        )?);
    tasks.submit_shared(&repeats)?;
    let answer = tasks.blocking(|| {
        std::thread::sleep(Duration::from_millis(20));
        "the answer"
    })?;

    let near = TaskOptions::at(Place::NearCaller);
    let size = numbers.len() / PIECES;
    let pieces = (0..PIECES).map(|index| {
        let (numbers, total) = (numbers.clone(), total.clone());
        tasks.task(&near, move |_: &RunContext| {
            let piece = &numbers[index * size..(index + 1) * size];
            total.fetch_add(piece.iter().sum(), Ordering::Relaxed);
            RunOutcome::Done
        })
    });
    // Pinned: their queue knows where they lie, and their drop takes back what nobody has begun.
    let pieces: Vec<_> = pieces
        .map(|task| task.map(Box::pin))
        .collect::<Result<_, Error>>()?;
    for piece in &pieces {
        tasks.submit(piece.as_ref())?;
    }
    writer.write_all(b"a letter")?;
    let mut own = [0.0; STRANDS as usize];
    for slice in 0..TERMS / SLICE / STRANDS {
        for (sum, strand) in own.iter_mut().zip(0..) {
            let first = (slice * STRANDS + strand) * SLICE + 1;
            *sum += (first..first + SLICE)
                .map(|n| 1.0 / (f64::from(n) * f64::from(n)))
                .sum::<f64>();
            // A switch: what waits for this core is run, and it costs next to nothing if nothing
            // does.
            tasks.at_switch();
        }
    }
    for piece in &pieces {
        tasks.wait(piece);
    }
    tasks.wait(&repeats);
    while bytes.load(Ordering::Relaxed) < 8 {
        std::thread::sleep(every);
    }
    println!(
        "sum {}, computed meanwhile {:.6}, {} beats, {} bytes read",
        total.load(Ordering::Relaxed),
        own.iter().sum::<f64>(),
        beats.load(Ordering::Relaxed),
        bytes.load(Ordering::Relaxed)
    );
    println!("tasks done by each core: {:?}", tasks.settled());
    println!("{} came", answer.wait().unwrap_or("nothing"));
    drop((alarm, letters));
    Ok(())
}
