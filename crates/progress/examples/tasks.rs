//! Work done by idle cores while the program computes: `cargo run --release -p garonne-progress --example tasks`.
//!
//! A block of numbers is summed up in pieces by tasks while main computes; an alarm beats meanwhile, and a blocking call waits on a thread of its own.

use garonne_progress::events::Next;
use garonne_progress::tasks::{At, Error, How, Place, Step, Urgency, shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PIECES: usize = 16;

fn main() -> Result<(), Error> {
    let tasks = shared()?;
    let numbers: Arc<Vec<u64>> = Arc::new((0..1 << 20).collect());
    let (total, beats) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let now = How {
        urgency: Urgency::Now,
        ..How::at(Place::Machine)
    };
    let beat = beats.clone();
    let every = Duration::from_millis(1);
    let alarm = tasks.on_alarm((every, Some(every)), &now, move |_: &At| {
        beat.fetch_add(1, Ordering::Relaxed);
        Next::Keep
    })?;
    let answer = tasks.blocking(|| {
        std::thread::sleep(Duration::from_millis(20));
        "the answer"
    })?;

    let near = How::at(Place::NearCaller);
    let size = numbers.len() / PIECES;
    let pieces = (0..PIECES).map(|index| {
        let (numbers, total) = (numbers.clone(), total.clone());
        tasks.task(&near, move |_: &At| {
            let piece = &numbers[index * size..(index + 1) * size];
            total.fetch_add(piece.iter().sum(), Ordering::Relaxed);
            Step::Done
        })
    });
    // Pinned: their queue knows where they lie, and their drop takes back what nobody has begun.
    let pieces: Vec<_> = pieces
        .map(|task| task.map(Box::pin))
        .collect::<Result<_, Error>>()?;
    for piece in &pieces {
        tasks.submit(piece.as_ref())?;
    }
    let own: f64 = (1..20_000_000u32)
        .map(|n| 1.0 / (f64::from(n) * f64::from(n)))
        .sum();
    for piece in &pieces {
        tasks.wait(piece);
    }
    println!(
        "sum {}, computed meanwhile {own:.6}, {} beats",
        total.load(Ordering::Relaxed),
        beats.load(Ordering::Relaxed)
    );
    println!("tasks done by each core: {:?}", tasks.settled());
    println!("{} came", answer.wait().unwrap_or("nothing"));
    drop(alarm);
    Ok(())
}
