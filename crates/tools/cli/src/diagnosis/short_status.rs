//! Describes what a rank does in two or three words, for a column of a table.

use garonne_job::call_names;
use garonne_job::layout::{RankState, WaitInfo};

use super::collectives::collective;
use super::rank_usage::asks;
use super::rank_waits::RankView;

/// Returns a status such as `recv \u{2190} 3`, `barrier 17`, `polls`, `outside MPI`; empty: the
/// rank gets on, or there is nothing to say.
pub fn short_status(shown: &RankView) -> String {
    let rank = &shown.snapshot.rank;
    match (rank.state, rank.process, rank.wait) {
        _ if shown.silent => "not seen".into(),
        (RankState::Absent | RankState::Finalized | RankState::Gone, ..)
        | (_, None | Some('Z' | 'X'), _) => String::new(),
        (_, Some('T' | 't'), _) => "stopped".into(),
        (.., Some(wait)) => waits(shown, &wait),
        (.., None) if shown.snapshot.moves => String::new(),
        (.., None) => "outside MPI".into(),
    }
}

fn waits(shown: &RankView, wait: &WaitInfo) -> String {
    let named = call_names::name(wait.call).unwrap_or_default();
    if asks(named) {
        return "polls".into();
    }
    if let Some(meeting) = collective(wait) {
        return format!("{} {}", short(shown.called(wait)), meeting.number());
    }
    let call = short(named);
    let peer = u32::try_from(wait.peer).map_or("any".to_owned(), |peer| peer.to_string());
    match call.as_str() {
        "" => "in MPI".into(),
        call if call.contains("sendrecv") => format!("{call} \u{2194} {peer}"),
        call if call.contains("send") => format!("{call} \u{2192} {peer}"),
        call if call.contains("recv") || call.contains("probe") => {
            format!("{call} \u{2190} {peer}")
        }
        call if wait.peer < 0 => call.to_owned(),
        call => format!("{call} for {peer}"),
    }
}

/// The name of a call without what all have.
fn short(name: &str) -> String {
    let name = name.strip_prefix("MPI_").unwrap_or(name);
    name.strip_suffix("_c").unwrap_or(name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::snapshot::DetailedSnapshot;

    fn shown(wait: Option<WaitInfo>) -> RankView {
        let mut seen = DetailedSnapshot::unavailable(0);
        (seen.rank.state, seen.rank.process, seen.rank.wait) =
            (RankState::Running, Some('S'), wait);
        RankView {
            snapshot: seen,
            host: None,
            silent: false,
        }
    }

    fn waiting(call: &str, peer: i32) -> String {
        let call = (1..)
            .find(|number| call_names::name(*number) == Some(call))
            .unwrap();
        short_status(&shown(Some(WaitInfo {
            call,
            peer,
            ..WaitInfo::default()
        })))
    }

    #[test]
    fn waits_are_told_in_two_or_three_words() {
        for (call, peer, words) in [
            ("MPI_Recv", 3, "recv \u{2190} 3"),
            ("MPI_Recv_c", -1, "recv \u{2190} any"),
            ("MPI_Mprobe", 2, "mprobe \u{2190} 2"),
            ("MPI_Ssend", 1, "ssend \u{2192} 1"),
            ("MPI_Sendrecv", 1, "sendrecv \u{2194} 1"),
            ("MPI_Wait", 5, "wait for 5"),
            ("MPI_Waitall", -1, "waitall"),
            ("MPI_Testany", -1, "polls"),
            ("MPI_Iprobe", -1, "polls"),
        ] {
            assert_eq!(waiting(call, peer), words, "{call}");
        }
    }

    #[test]
    fn who_waits_for_nothing_is_outside_mpi_unless_its_counters_move() {
        let mut one = shown(None);
        assert_eq!(short_status(&one), "outside MPI");
        one.snapshot.moves = true;
        assert_eq!(short_status(&one), "");
        one.snapshot.rank.process = Some('T');
        assert_eq!(short_status(&one), "stopped");
        one.snapshot.rank.state = RankState::Finalized;
        assert_eq!(short_status(&one), "");
        one.silent = true;
        assert_eq!(short_status(&one), "not seen");
    }
}
