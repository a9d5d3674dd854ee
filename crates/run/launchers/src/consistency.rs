//! What ranks that meet by variables see of others that cannot be theirs: another library, another
//! key, another job. Said on standard error as soon as it is likely, since they go on waiting for
//! minutes, and again in the error if the wait was in vain. Pure but for that line.

use garonne_job::settings::ENV_KEY;
use garonne_links::connect::ConnectError;
use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;

use garonne_tcp::{HandshakeError, RejectReason};

use garonne_job::codes;
use garonne_job::error::Error;
use garonne_job::limits::{REFUSAL_STANDS, UNAUTHENTICATED_STAY};
use garonne_links::addresses;

/// Something that a rank saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    text: String,
    /// The other process says so itself: the mismatch is certain.
    certain: bool,
}

/// Mismatches seen so far: when each kind was first seen, and whether it was reported.
#[derive(Debug, Default)]
pub(super) struct ConsistencyCheck {
    seen: Vec<(Mismatch, Instant, bool)>,
}

/// Different doubts that are kept; more are no news.
const DOUBTS_MAX: usize = 16;

impl ConsistencyCheck {
    /// Says it, if it is new and stands long enough.
    pub fn report_mismatch(&mut self, doubt: Option<Mismatch>, now: Instant) {
        if let Some(text) = doubt.and_then(|doubt| self.unreported(doubt, now)) {
            let _ = writeln!(std::io::stderr(), "garonne: {text}");
        }
    }

    /// Records a mismatch, and returns what is to be reported now.
    fn unreported(&mut self, doubt: Mismatch, now: Instant) -> Option<String> {
        let at = match self.seen.iter().position(|(known, ..)| *known == doubt) {
            Some(at) => at,
            None if self.seen.len() < DOUBTS_MAX => {
                self.seen.push((doubt, now, false));
                self.seen.len() - 1
            }
            None => return None,
        };
        let (doubt, since, said) = &mut self.seen[at];
        let due = !*said && (doubt.certain || now >= *since + UNAUTHENTICATED_STAY);
        *said |= due;
        due.then(|| doubt.text.clone())
    }

    /// Returns the last mismatch, as the end of an error; empty if there is none.
    pub fn last_mismatch(&self) -> String {
        let last = self.seen.last();
        last.map_or(String::new(), |(doubt, ..)| format!("; {}", doubt.text))
    }

    /// Returns the error that rank 0 is of another library, once nobody else has come in its place
    /// for a while.
    pub fn proved(&self, now: Instant) -> Option<Error> {
        let mut certain = self.seen.iter().filter(|(doubt, ..)| doubt.certain);
        let (doubt, ..) = certain.find(|(_, since, _)| now >= *since + REFUSAL_STANDS)?;
        Some(Error::peer(codes::G0203, doubt.text.clone()))
    }
}

fn is_foreign(fault: &HandshakeError) -> bool {
    matches!(
        fault,
        HandshakeError::Versions { .. } | HandshakeError::Library(_)
    )
}

/// Returns what rank 0 concludes from a caller that it has refused.
pub(super) fn caller_mismatch(from: IpAddr, fault: &HandshakeError) -> Option<Mismatch> {
    let text = match fault {
        fault if is_foreign(fault) => {
            format!("a process at {from} calls rank 0 and cannot take part: {fault}")
        }
        HandshakeError::NotAuthentic => format!(
            "a process at {from} calls rank 0 with another key than the one in the file that {ENV_KEY} names here"
        ),
        HandshakeError::Refused(RejectReason::Other) => format!(
            "a process at {from} calls rank 0 for another job: WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be spelled alike for all ranks, and RANK must not come twice"
        ),
        _ => return None,
    };
    let certain = is_foreign(fault);
    Some(Mismatch { text, certain })
}

/// Returns what rank 0 concludes about its own address, where nobody comes: whether MASTER_ADDR,
/// which means these addresses here, leads to this host at all, and whether somebody had a port
/// that it would have taken first.
pub(super) fn own_address_mismatch(
    (address, port): (&str, u16),
    taken: Option<u16>,
    hosts: &[IpAddr],
) -> Option<Mismatch> {
    let own = addresses::own();
    let leads_here = |host: &IpAddr| host.is_loopback() || own.contains(host);
    let text = match taken {
        _ if !hosts.is_empty() && !hosts.iter().any(leads_here) => {
            let hosts: Vec<_> = hosts.iter().map(IpAddr::to_string).collect();
            format!(
                "rank 0 waits on this host, of which MASTER_ADDR '{address}' ({}) is no address: if it is another host's, a second process is rank 0 there (RANK must not come twice)",
                hosts.join(", ")
            )
        }
        Some(taken) => format!(
            "rank 0 waits, and somebody had port {taken} before, behind MASTER_PORT {port}: perhaps another process is rank 0, too (RANK must not come twice)"
        ),
        None => return None,
    };
    Some(Mismatch {
        text,
        certain: false,
    })
}

/// Returns what another rank concludes about its own number, where rank 0 of these variables has
/// met all others.
pub(super) fn own_rank_mismatch(have_met: bool, rank: u32) -> Option<Mismatch> {
    have_met.then(|| Mismatch {
        text: format!(
            "rank {rank} waits, and a rank 0 by the same variables has met all its ranks: another process is rank {rank}, too (RANK must not come twice), or this job's rank 0 has not come yet"
        ),
        certain: false,
    })
}

/// Returns what another rank concludes where a process of another user has the socket of rank 0.
pub(super) fn foreign_socket_mismatch(stranger: Option<&str>, rank: u32) -> Option<Mismatch> {
    stranger.map(|stranger| Mismatch {
        text: format!(
            "rank {rank} waits, and {stranger} has the socket where rank 0 meets the others; rank 0 takes another one when it comes"
        ),
        certain: false,
    })
}

/// Returns what another rank concludes about the process that it found in place of rank 0.
pub(super) fn rank_zero_mismatch(missed: &ConnectError) -> Option<Mismatch> {
    let refused = missed
        .refused
        .as_ref()
        .filter(|(_, fault)| !matches!(fault, HandshakeError::Garbage));
    let text = match (refused, missed.cut) {
        (Some((at, fault)), _) if is_foreign(fault) => {
            format!("rank 0's place at {at} cannot be shared: {fault}")
        }
        (Some((at, HandshakeError::Refused(RejectReason::Other))), _) => format!(
            "{at} is the place of another job's rank 0, or WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not spelled alike for all ranks, or another process is this rank, too (RANK must not come twice)"
        ),
        (Some((at, fault)), _) => format!("rank 0's place at {at}: {fault}"),
        (None, Some(at)) => format!(
            "{at} cuts calls off, as rank 0 does with callers of another key than its own: the file that {ENV_KEY} names must hold the same one for all ranks"
        ),
        (None, None) => return None,
    };
    let certain = refused.is_some_and(|(_, fault)| is_foreign(fault));
    Some(Mismatch { text, certain })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use garonne_tcp::{LibraryName, VERSIONS};

    use super::*;

    fn foreign() -> HandshakeError {
        HandshakeError::Versions {
            ours: VERSIONS,
            theirs: (9, 11).into(),
            library: LibraryName::own(),
        }
    }

    #[test]
    fn rank_0_doubts_a_place_that_is_no_address_of_its_host_or_whose_port_somebody_had() {
        let own: IpAddr = "127.0.0.1".parse().unwrap();
        let other: IpAddr = "203.0.113.77".parse().unwrap();
        let doubt = |taken, host| {
            own_address_mismatch(("a", 29500), taken, &[host]).map(|doubt| doubt.text)
        };
        assert_eq!(doubt(None, own), None);
        let elsewhere = doubt(None, other).unwrap();
        assert!(
            elsewhere.contains("'a' (203.0.113.77) is no address"),
            "{elsewhere}"
        );
        assert!(doubt(Some(29501), own).unwrap().contains("port 29501"));
    }

    #[test]
    fn another_library_is_said_at_once_and_ends_the_wait_soon() {
        let (mut doubts, now) = (ConsistencyCheck::default(), Instant::now());
        let missed = ConnectError {
            refused: Some(("10.0.0.1:29501".parse().unwrap(), foreign())),
            ..ConnectError::default()
        };
        let said = doubts
            .unreported(rank_zero_mismatch(&missed).unwrap(), now)
            .unwrap();
        assert!(
            said.contains("10.0.0.1:29501") && said.contains("formats 9 to 11"),
            "{said}"
        );
        assert_eq!(
            doubts.unreported(rank_zero_mismatch(&missed).unwrap(), now),
            None
        );
        assert!(doubts.proved(now).is_none());
        let error = doubts.proved(now + REFUSAL_STANDS).unwrap();
        assert_eq!(error.code(), codes::G0203);
        assert!(error.to_string().contains("formats 9 to 11"), "{error}");
    }

    #[test]
    fn another_key_is_said_once_it_has_come_for_a_while_and_at_the_end() {
        let (mut doubts, now) = (ConsistencyCheck::default(), Instant::now());
        let doubt =
            || caller_mismatch("10.0.0.2".parse().unwrap(), &HandshakeError::NotAuthentic).unwrap();
        assert_eq!(doubts.unreported(doubt(), now), None);
        assert_eq!(
            doubts.unreported(doubt(), now + Duration::from_secs(1)),
            None
        );
        let said = doubts
            .unreported(doubt(), now + UNAUTHENTICATED_STAY)
            .unwrap();
        assert!(
            said.contains("10.0.0.2") && said.contains(ENV_KEY),
            "{said}"
        );
        assert!(doubts.last_mismatch().contains(&said));
        assert!(doubts.proved(now + 100 * REFUSAL_STANDS).is_none());
    }

    #[test]
    fn what_speaks_another_protocol_is_no_matter_of_ours() {
        assert_eq!(
            caller_mismatch("10.0.0.2".parse().unwrap(), &HandshakeError::Garbage),
            None
        );
        let missed = ConnectError {
            refused: Some(("10.0.0.1:29501".parse().unwrap(), HandshakeError::Garbage)),
            ..ConnectError::default()
        };
        assert_eq!(rank_zero_mismatch(&missed), None);
        assert_eq!(ConsistencyCheck::default().last_mismatch(), "");
    }
}
