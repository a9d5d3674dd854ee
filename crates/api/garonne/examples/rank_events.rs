//! Passes a number around the ranks of a job: `garonne run -n 4 rank_events [ROUNDS]`.
//!
//! Each rank adds one and passes the number on. Rank 0 also lets all others count in its memory.

use garonne::{CloseCause, Event, EventEndpoint, RegionKey, RegionRights};
use std::error::Error;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tags of messages: the number, and the key of rank 0's memory.
const NUMBER: u32 = 1;
const KEY: u32 = 2;

fn main() -> Outcome<()> {
    let rounds: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(100), |word| word.parse())?;
    let endpoint = EventEndpoint::join()?;
    let (rank, size) = endpoint.rank()?;
    if size < 2 {
        println!("rank {rank} of {size}: nobody else is there");
        return Ok(endpoint.close(Duration::from_secs(10))?);
    }
    let next = endpoint.connect_rank((rank + 1) % size)?;
    let region = endpoint.create_region(8)?;
    if rank == 0 {
        for other in 1..size {
            let connection = endpoint.connect_rank(other)?;
            let key = endpoint.expose(connection, region, RegionRights::All)?;
            endpoint.send(connection, KEY, key.to_bytes(), 0)?;
        }
        endpoint.send(next, NUMBER, 0u64.to_le_bytes(), 0)?;
    }
    let (mut left, mut counted) = (rounds, 0);
    // Rank 0 hears of each count of the others; each of them, of its own.
    let counts = if rank == 0 { size - 1 } else { 1 };
    while left > 0 || counted < counts {
        match endpoint.next_event(Some(Duration::from_secs(60)))? {
            Some(Event::Message {
                tag: NUMBER,
                message,
                ..
            }) => {
                let number = u64::from_le_bytes((&*message).try_into()?);
                let passed = number + 1;
                left -= 1;
                // Rank 0 has begun, and keeps the number of the last round.
                if rank != 0 || left > 0 {
                    endpoint.send(next, NUMBER, passed.to_le_bytes(), 0)?;
                }
                if rank == 0 && left == 0 {
                    assert_eq!(passed, rounds * u64::from(size));
                }
            }
            Some(Event::Message {
                tag: KEY,
                message,
                connection,
            }) => {
                let key = RegionKey::from_bytes(&message)?;
                endpoint.fetch_add(connection, (&key, 0), rank.into(), 0, Some(rank.into()))?;
            }
            Some(Event::AccessDone { result, .. }) => {
                result?;
                counted += 1;
            }
            Some(Event::Notified { .. }) => counted += 1,
            Some(Event::Sent { result, .. }) => result?,
            Some(Event::Closed {
                cause: CloseCause::PeerLost(error),
                ..
            }) => return Err(error.into()),
            Some(_) => {}
            None => return Err("nothing comes any more".into()),
        }
    }
    if rank == 0 {
        let mut sum = [0; 8];
        endpoint.read_region(region, 0, &mut sum)?;
        let expected = u64::from(size) * u64::from(size - 1) / 2;
        assert_eq!(u64::from_ne_bytes(sum), expected);
    }
    endpoint.close(Duration::from_secs(60))?;
    println!("rank {rank} of {size}: all is well");
    Ok(())
}
