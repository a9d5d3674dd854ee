//! Endpoints that read memory and take no messages: what is left of reads when one is closed in
//! their middle.

use garonne_ofi::endpoint::{Endpoint, Event, Peer};
use garonne_ofi::library::Library;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Longer than what sockets keep, so that a read is under way while the one before ends.
const PIECE: usize = 4 << 20;
const READS: usize = 8;

/// Two endpoints that know each other, or why there are none.
fn pair(provider: &str) -> Option<[(Endpoint, Peer); 2]> {
    let address = (provider != "shm").then_some("127.0.0.1");
    let offers = Library::load().and_then(|library| library.offers(Some(provider), address));
    let offers = match offers {
        Ok(offers) => offers,
        Err(error) => {
            eprintln!("skipped: no {provider} here: {error}");
            return None;
        }
    };
    let mut one = Endpoint::open_for_reads(&offers).unwrap();
    let mut other = Endpoint::open_for_reads(&offers).unwrap();
    assert!(one.read_max() >= PIECE, "{}", one.read_max());
    let (to_other, to_one) = (
        one.insert(other.address()).unwrap(),
        other.insert(one.address()).unwrap(),
    );
    assert!(!one.send(to_other, b"no room for this").unwrap());
    Some([(one, to_other), (other, to_one)])
}

/// Closes one side after so many reads came, and looks whether anything touches its memory or the
/// other's afterwards.
fn closed_in_the_middle(provider: &str, after: usize) {
    let Some([(mut one, to_other), (mut other, _)]) = pair(provider) else {
        return;
    };
    let source: Vec<u8> = (0..READS * PIECE)
        .map(|at| (at ^ (at >> 11)) as u8 | 1)
        .collect();
    let mut local = vec![0u8; source.len()];
    let (mut begun, mut done, start) = (0, 0, Instant::now());
    // SAFETY: both outlive both endpoints' use of them.
    unsafe {
        let exposed = other.expose(source.as_ptr(), source.len()).unwrap();
        let prepared = one.prepare(local.as_mut_ptr(), local.len()).unwrap();
        while done < after || begun == 0 || begun < READS && done == 0 {
            assert!(start.elapsed() < LIMIT, "{begun} begun, {done} done");
            if begun < READS {
                let at = begun * PIECE;
                let to = (local.as_mut_ptr().add(at), PIECE, prepared);
                let from = (to_other, exposed.at + at as u64, exposed.key);
                begun += usize::from(one.read(begun as u64, from, to).unwrap());
            }
            one.poll(&mut |event| match event {
                Event::Read(_, result) => {
                    result.unwrap();
                    done += 1;
                }
                event => panic!("{event:?}"),
            })
            .unwrap();
            other.poll(&mut |event| panic!("{event:?}")).unwrap();
        }
    }
    assert!(done < READS, "all came before anything could be closed");
    drop(one);
    let left = local.clone();
    // The other side learns of it, or does not; it stays usable for others and can be closed.
    for _ in 0..200 {
        let _ = other.poll(&mut |event| assert!(!matches!(event, Event::Message(_))));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        local == left,
        "memory was written to after its endpoint was closed"
    );
    assert!(
        local
            .iter()
            .zip(&source)
            .all(|(here, there)| *here == 0 || here == there)
    );
}

#[test]
fn closing_ends_reads_by_tcp() {
    for after in [0, 1, 4] {
        closed_in_the_middle("tcp", after);
    }
}

#[test]
fn closing_ends_reads_by_shared_memory() {
    closed_in_the_middle("shm", 1);
}
