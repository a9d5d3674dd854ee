//! Tells which members of a communicator have entered a collective, from counters that ranks keep
//! for themselves.
//!
//! A rank counts the collectives that it enters, by communicator and series, in its own memory; its
//! wait report says where. So who is missing is known of every member, whichever algorithm moves
//! the data and whatever the rank does meanwhile.

use garonne_links::process_memory::memory_of;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use garonne_job::layout::WaitInfo;
use garonne_job::node_map::named;
use garonne_job::snapshot::CollectivesEntered;
use garonne_job::wait_report::{CollectiveCounters, WaitReportCopy};
use garonne_mpi::coll::call_tag::{self, CallId, CallSeries, CollectiveKind};

use super::polling;
use super::rank_waits::{CONTEXTS, RankView, number_of};

/// A collective that a rank is in, and the communicator's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveCollective {
    pub comm: u64,
    pub what: CollectiveId,
}

/// Which of a communicator's collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveId {
    /// One that has a number.
    Call(CallId),
    /// A constructor that gives a request: so many had begun before it.
    Construction(u32),
}

/// The context after a communicator's first one on which its collectives speak, and the one for its
/// constructors.
const OF_COLLECTIVES: u64 = 1;
const OF_CONSTRUCTORS: u64 = 2;

impl ActiveCollective {
    /// The collective that messages of a context and a tag belong to.
    pub fn of(context: u64, tag: i32) -> Option<Self> {
        let what = match context % CONTEXTS {
            OF_COLLECTIVES => CollectiveId::Call(CallId::from_tag(tag)?),
            OF_CONSTRUCTORS => CollectiveId::Construction(u32::try_from(tag).ok()?),
            _ => return None,
        };
        Some(Self {
            comm: number_of(context),
            what,
        })
    }

    /// Returns the kind of collective, if its number says that.
    pub fn kind(&self) -> Option<CollectiveKind> {
        match self.what {
            CollectiveId::Call(call) => Some(call.kind),
            CollectiveId::Construction(_) => None,
        }
    }

    /// Returns the collective's number in its communicator, from 1.
    pub fn number(&self) -> u32 {
        match self.what {
            CollectiveId::Call(call) => call.number,
            CollectiveId::Construction(before) => before + 1,
        }
    }

    /// Returns whether nobody leaves it before all have entered, as far as its wait tells.
    pub fn waits_for_all(&self) -> bool {
        match self.what {
            CollectiveId::Call(call) => call.series == CallSeries::Blocking,
            CollectiveId::Construction(_) => true,
        }
    }

    /// Returns whether it has the other's number, whatever was called.
    fn is_same_place(&self, other: &Self) -> bool {
        let place = |it: &Self| match it.what {
            CollectiveId::Call(call) => (Some(call.series), call.number),
            CollectiveId::Construction(before) => (None, before),
        };
        self.comm == other.comm && place(self) == place(other)
    }

    /// Returns whether these counters of its communicator have come to it.
    fn is_in(&self, counts: &[u32; 4]) -> bool {
        match self.what {
            CollectiveId::Call(call) => {
                let ahead = counts[garonne_mpi::coll::counter_of(call.series) as usize]
                    .wrapping_sub(call.number);
                ahead % call_tag::NUMBERS < call_tag::NUMBERS / 2
            }
            CollectiveId::Construction(before) => {
                let counted = counts
                    [garonne_progress::environment::CollectiveCounter::Constructions as usize];
                (counted.wrapping_sub(before + 1) as i32) >= 0
            }
        }
    }
}

/// The collective that a wait belongs to.
pub fn collective(wait: &WaitInfo) -> Option<ActiveCollective> {
    ActiveCollective::of(wait.comm, wait.tag)
}

/// Returns how far a rank of this host has come on each of its communicators.
pub fn entered(pid: u32, book: &WaitReportCopy) -> Vec<CollectivesEntered> {
    let of = |number| {
        let known = book.communicator(number)?;
        let counts = match known.counts {
            CollectiveCounters::Last(counts) => counts,
            CollectiveCounters::At(address) => {
                let memory = memory_of(pid, address, 16)?;
                let (words, _) = memory.as_chunks();
                let mut words = words.iter().map(|word| u32::from_ne_bytes(*word));
                std::array::from_fn(|_| words.next().unwrap_or(0))
            }
        };
        Some(CollectivesEntered { number, counts })
    };
    book.numbers().into_iter().filter_map(of).collect()
}

/// Returns whether a rank has entered a collective; `None`: that is not known.
pub fn has_entered(shown: &RankView, meeting: &ActiveCollective) -> Option<bool> {
    let there = shown.snapshot.rank.wait.as_ref().and_then(collective);
    if there.is_some_and(|there| there.is_same_place(meeting)) {
        return Some(true);
    }
    let counted = shown.snapshot.entered.iter();
    let mut counted = counted.filter(|entered| u64::from(entered.number) == meeting.comm);
    counted.next().map(|entered| meeting.is_in(&entered.counts))
}

/// The members of a communicator that are known not to have entered a collective.
pub fn missing(all: &[RankView], members: &[u32], meeting: &ActiveCollective) -> Vec<u32> {
    let is_missing = |rank: &&u32| {
        let shown = all.get(**rank as usize);
        shown.is_some_and(|shown| has_entered(shown, meeting) == Some(false))
    };
    members.iter().filter(is_missing).copied().collect()
}

/// A collective that ranks wait in.
struct IncompleteCollective {
    collective: ActiveCollective,
    members: Rc<[u32]>,
    /// Members that wait in it, by what they called.
    waiting: BTreeMap<&'static str, Vec<u32>>,
}

/// Returns the collectives that a rank waits or polls for, each with the name of the call.
fn collectives_of(shown: &RankView) -> Vec<(ActiveCollective, &'static str)> {
    let asks = shown.snapshot.polls.iter().flat_map(|polled| &polled.asks);
    let polled = asks
        .flat_map(|ask| &ask.operations)
        .filter_map(|(operation, _)| {
            let meeting = polling::collective(operation)?;
            let kind = meeting
                .kind()
                .filter(|kind| *kind != CollectiveKind::Internal)?;
            Some((meeting, kind.name()))
        });
    let mut entered = waits_in(shown);
    entered.extend(polled);
    entered
}

/// Returns the collectives that a rank waits for.
fn waits_in(shown: &RankView) -> Vec<(ActiveCollective, &'static str)> {
    let wait = shown.snapshot.rank.wait.as_ref();
    let waits = wait.and_then(|wait| Some((collective(wait)?, shown.called(wait))));
    waits.into_iter().collect()
}

/// All of them, each once: in the order of the first rank that is there.
fn incomplete_collectives(
    all: &[RankView],
    entered: impl Fn(&RankView) -> Vec<(ActiveCollective, &'static str)>,
) -> Vec<IncompleteCollective> {
    let mut found: Vec<IncompleteCollective> = Vec::new();
    let entered = all
        .iter()
        .flat_map(|shown| entered(shown).into_iter().map(move |it| (shown, it)));
    for (shown, (meeting, called)) in entered {
        let Some(members) = shown.members_of(meeting.comm) else {
            continue;
        };
        let known = found
            .iter_mut()
            .find(|known| known.collective.is_same_place(&meeting) && *known.members == *members);
        let rank = shown.snapshot.rank.rank;
        match known {
            Some(known) => known.waiting.entry(called).or_default().push(rank),
            None => found.push(IncompleteCollective {
                collective: meeting,
                members: members.into(),
                waiting: BTreeMap::from([(called, vec![rank])]),
            }),
        }
    }
    found
}

/// Writes a line for each collective that ranks wait in and that not all members have entered: who
/// is missing.
pub fn missing_lines(all: &[RankView]) -> Vec<String> {
    let mut lines = Vec::new();
    for gathering in incomplete_collectives(all, collectives_of) {
        let missing = missing(all, &gathering.members, &gathering.collective);
        let (Some((called, rank)), false) = (gathering.first(), missing.is_empty()) else {
            continue;
        };
        let Some(shown) = all.get(rank as usize) else {
            continue;
        };
        let entered = gathering.members.len() - missing.len();
        // Those that called others have entered one of this number all the same.
        let called = match gathering.waiting.len() {
            1 => called,
            _ => "collective",
        };
        lines.push(format!(
            "{entered} of {} ranks {} entered {}; missing: {}",
            gathering.members.len(),
            if entered == 1 { "has" } else { "have" },
            shown.collective_words(called, &gathering.collective),
            named(&missing),
        ));
    }
    lines
}

impl IncompleteCollective {
    /// The first rank in it, after what it called.
    fn first(&self) -> Option<(&'static str, u32)> {
        let ranks =
            |(called, ranks): (&&'static str, &Vec<u32>)| Some((*called, *ranks.iter().min()?));
        self.waiting
            .iter()
            .filter_map(ranks)
            .min_by_key(|(_, rank)| *rank)
    }
}

/// Members of one communicator that wait in different collectives of one number: neither can ever
/// return. Those that fewer called come first, each with the place of the call.
pub fn mismatch(all: &[RankView]) -> Option<String> {
    let differs = |gathering: &IncompleteCollective| {
        let kinds: HashSet<Option<CollectiveKind>> = gathering
            .waiting
            .values()
            .flatten()
            .filter_map(|rank| all.get(*rank as usize)?.snapshot.rank.wait)
            .map(|wait| collective(&wait).and_then(|it| it.kind()))
            .collect();
        kinds.len() > 1
    };
    let found = intercomm_mismatch(all).or_else(|| {
        incomplete_collectives(all, waits_in)
            .into_iter()
            .find(differs)
    })?;
    let number = found.collective.number();
    let mut sides: Vec<_> = found.waiting.iter().collect();
    sides.sort_by_key(|(_, ranks)| (ranks.len(), ranks.first().copied()));
    let of = |rank: u32| all.get(rank as usize);
    let comm = of(found.first()?.1)?.comm_name(found.collective.comm);
    let lines = sides.into_iter().map(|(called, list)| {
        let place = list
            .first()
            .and_then(|rank| of(*rank)?.snapshot.place.clone());
        let place = place.map_or(String::new(), |place| format!("   at {place}"));
        let is = if list.len() == 1 { "is" } else { "are" };
        let share = format!(" ({} of {})", list.len(), found.members.len());
        format!(
            "\n  {}{share} {is} in {called} #{number}{place}",
            named(list)
        )
    });
    let lines: String = lines.collect();
    Some(format!(
        "mismatch: the ranks of {comm} called different collectives{lines}"
    ))
}

/// Finds a mismatch on an intercommunicator, whose members are not known: of two ranks one waits
/// for the other, so both are members.
fn intercomm_mismatch(all: &[RankView]) -> Option<IncompleteCollective> {
    all.iter().find_map(|shown| {
        let wait = shown.snapshot.rank.wait?;
        let own = collective(&wait)?;
        let other = all.get(usize::try_from(wait.peer).ok()?)?;
        let theirs_wait = other.snapshot.rank.wait?;
        let theirs = collective(&theirs_wait)?;
        if !own.is_same_place(&theirs) || own.kind() == theirs.kind() || is_preparing(&own, &theirs)
        {
            return None;
        }
        // Where members are told, all of them are looked at.
        if shown.members_of(own.comm).is_some() {
            return None;
        }
        let (one, two) = (shown.snapshot.rank.rank, other.snapshot.rank.rank);
        Some(IncompleteCollective {
            collective: own,
            members: [one, two].into(),
            waiting: BTreeMap::from([
                (shown.called(&wait), vec![one]),
                (other.called(&theirs_wait), vec![two]),
            ]),
        })
    })
}

/// Returns whether one of them is the library's own.
fn is_preparing(own: &ActiveCollective, theirs: &ActiveCollective) -> bool {
    [own, theirs]
        .iter()
        .any(|it| it.kind() == Some(CollectiveKind::Internal))
}

/// Series in words.
pub fn series_text(call: &CallId) -> &'static str {
    match call.series {
        CallSeries::Blocking => "",
        CallSeries::Nonblocking => "nonblocking ",
        CallSeries::Persistent => "persistent ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::RankState;
    use garonne_job::snapshot::{CommMembers, CommSnapshot, DetailedSnapshot};

    /// A tag as the library makes them for blocking calls: number, kind (1 barrier, 2 broadcast).
    fn tag(number: i32, kind: i32) -> i32 {
        number << 9 | kind << 1
    }

    /// A rank of four that has entered so many blocking collectives of communicator 1, and waits in
    /// one of them.
    fn shown(rank: u32, entered: u32, wait: Option<(i32, u64)>) -> RankView {
        let mut seen = DetailedSnapshot::unavailable(rank);
        seen.rank.state = RankState::Running;
        seen.rank.process = Some('S');
        seen.rank.wait = wait.map(|(tag, comm)| WaitInfo {
            call: 1,
            peer: -1,
            tag,
            comm,
            since_ns: 1,
            ..WaitInfo::default()
        });
        seen.entered = vec![CollectivesEntered {
            number: 1,
            counts: [entered, 0, 0, 0],
        }];
        seen.comms = vec![CommSnapshot {
            number: 1,
            name: "four".into(),
            size: Some(4),
            members: CommMembers::Strided {
                first: 0,
                stride: 1,
                size: 4,
            },
        }];
        RankView {
            snapshot: seen,
            host: None,
            silent: false,
        }
    }

    const COLLECTIVES: u64 = CONTEXTS + OF_COLLECTIVES;

    #[test]
    fn those_whose_counters_have_not_come_there_are_missing() {
        let barrier = Some((tag(12, 1), COLLECTIVES));
        let mut all = vec![
            shown(0, 12, barrier),
            // It has left already.
            shown(1, 12, None),
            shown(2, 11, None),
            shown(3, 12, barrier),
        ];
        let lines = missing_lines(&all);
        assert_eq!(
            lines,
            ["3 of 4 ranks have entered MPI_Barrier #12 of comm \"four\"; missing: rank 2"]
        );
        all[0] = shown(0, 12, Some((tag(12, 2), COLLECTIVES)));
        assert_eq!(
            missing_lines(&all),
            ["3 of 4 ranks have entered collective #12 of comm \"four\"; missing: rank 2"]
        );
        // Of whom nothing is known it is not said.
        all[2].snapshot.entered.clear();
        assert!(missing_lines(&all).is_empty());
    }

    #[test]
    fn counters_are_compared_where_numbers_wrap() {
        let last = ActiveCollective::of(COLLECTIVES, tag(call_tag::NUMBERS as i32 - 1, 1)).unwrap();
        assert!(last.is_in(&[call_tag::NUMBERS, 0, 0, 0]));
        assert!(last.is_in(&[call_tag::NUMBERS - 1, 0, 0, 0]));
        assert!(!last.is_in(&[call_tag::NUMBERS - 2, 0, 0, 0]));
        let started = ActiveCollective::of(CONTEXTS + OF_CONSTRUCTORS, 4).unwrap();
        assert!(started.is_in(&[0, 0, 0, 5]) && !started.is_in(&[9, 9, 9, 4]));
    }

    #[test]
    fn the_odd_one_among_those_who_call_different_collectives_is_named_first() {
        let (barrier, bcast) = ((tag(12, 1), COLLECTIVES), (tag(12, 2), COLLECTIVES));
        let mut all: Vec<_> = (0..4).map(|rank| shown(rank, 12, Some(bcast))).collect();
        assert_eq!(mismatch(&all), None);
        all[2] = shown(2, 12, Some(barrier));
        all[2].snapshot.place = Some("a.c:3".into());
        assert_eq!(
            mismatch(&all).unwrap(),
            "mismatch: the ranks of comm \"four\" called different collectives\n  \
             rank 2 (1 of 4) is in MPI_Barrier #12   at a.c:3\n  \
             ranks 0-1,3 (3 of 4) are in MPI_Bcast #12"
        );
    }

    #[test]
    fn late_ranks_and_other_communicators_are_no_mismatch() {
        let bcast = Some((tag(12, 2), COLLECTIVES));
        for other in [
            Some((tag(11, 1), COLLECTIVES)),
            Some((tag(12, 1), 2 * CONTEXTS + OF_COLLECTIVES)),
            Some((tag(12, 1), CONTEXTS)),
            None,
        ] {
            assert_eq!(
                mismatch(&[shown(0, 12, bcast), shown(1, 12, other)]),
                None,
                "{other:?}"
            );
        }
    }
}
