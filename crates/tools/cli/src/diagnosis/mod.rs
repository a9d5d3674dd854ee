//! Diagnoses what a running job hangs on, from one look at its ranks on all hosts.
//!
//! A [`Diagnosis`] is made by `garonne who` for its user. The agent's own program makes one
//! (`verdict_for_agent`) for a job that is ended from outside or stands still. Nothing here changes
//! the job.

mod bytes_in_flight;
mod call_kinds;
pub mod collectives;
pub mod crash;
pub mod deadlock;
mod hang_confirmation;
pub mod job_snapshot;
pub mod polling;
mod rank_usage;
pub mod rank_waits;
pub mod report_text;
pub mod short_status;
pub mod stack_locations;
mod terminal_interrupt;
mod unexpected_messages;
mod wait_text;

use garonne_job::agent_socket_name::AgentSocketName;
use std::io::Write;

use garonne_agent::agent::stall_detector;
use garonne_inspect::query_client::{self, QueryClient};
use garonne_job::codes;
use garonne_job::layout::RankState;
use serde_json::json;

use deadlock::HangVerdict;
use job_snapshot::{JobSnapshot, SilentHost};
use rank_waits::RankView;

/// Result of one look at all ranks of a job. [`Diagnosis::of`] makes it; `text` and `json` show it.
pub struct Diagnosis {
    /// Every rank, in order.
    pub ranks: Vec<RankView>,
    /// Hosts that have not said what their ranks show.
    pub silent_hosts: Vec<SilentHost>,
    mismatch: Option<String>,
    /// Place where ranks of this host are by their stacks, a line each.
    places: Vec<String>,
    verdict: HangVerdict,
    /// The conclusion if ranks that poll did nothing else, where that is worse.
    presumed: Option<HangVerdict>,
}

/// Lines of one kind that are printed: beyond these, more do not help.
const LINES_MAX: usize = 16;

/// The kinds of result, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosisKind {
    /// Nothing keeps any rank for ever, as far as can be seen.
    Moving,
    /// Ranks wait for one that is not in MPI.
    Awaited,
    /// Some hosts were not seen, and nothing is certain without them.
    Unseen,
    /// The rank that most others wait for is stopped.
    Stopped,
    /// A rank waits for one that does nothing any more.
    Missing,
    /// Ranks wait for each other.
    Deadlock,
    /// Ranks of one communicator are in different collectives.
    Mismatch,
}

impl DiagnosisKind {
    /// Returns the error code for `garonne explain`; `None`: nothing is wrong.
    pub fn code(self) -> Option<&'static str> {
        match self {
            DiagnosisKind::Moving | DiagnosisKind::Awaited => None,
            DiagnosisKind::Unseen => Some(codes::G0311),
            DiagnosisKind::Stopped => Some(codes::G0309),
            DiagnosisKind::Missing => Some(codes::G0308),
            DiagnosisKind::Deadlock => Some(codes::G0307),
            DiagnosisKind::Mismatch => Some(codes::G0310),
        }
    }

    /// The exit code of `garonne who`.
    pub fn exit_code(self) -> i32 {
        match self {
            DiagnosisKind::Moving | DiagnosisKind::Awaited => 0,
            DiagnosisKind::Deadlock => 10,
            DiagnosisKind::Mismatch => 11,
            DiagnosisKind::Missing => stall_detector::RANK_LEFT,
            DiagnosisKind::Stopped => 13,
            DiagnosisKind::Unseen => 14,
        }
    }
}

impl Diagnosis {
    /// Looks at all ranks of a job.
    pub fn of(client: &QueryClient) -> Self {
        Self::from(job_snapshot::gather(client))
    }

    /// Adds where ranks of this host are by their stacks, which takes some milliseconds for each.
    pub fn with_places(self, client: &QueryClient) -> Self {
        Self {
            places: stack_locations::location_lines(client, &self.ranks),
            ..self
        }
    }

    /// Diagnoses a job of which a key of the terminal has just ended some ranks: what these waited
    /// for counts.
    fn of_interrupted(client: &QueryClient) -> Self {
        let mut gathered = job_snapshot::gather(client);
        terminal_interrupt::revive(&mut gathered.ranks);
        Self::from(gathered)
    }

    fn from(
        JobSnapshot {
            ranks: all,
            silent_hosts: silent,
        }: JobSnapshot,
    ) -> Self {
        let verdict = deadlock::find_deadlock(&rank_waits::wait_states(&all));
        let presumed =
            deadlock::presumed_deadlock(&verdict, || rank_waits::wait_states_if_polls_block(&all));
        let mismatch = collectives::mismatch(&all);
        Self {
            places: Vec::new(),
            ranks: all,
            silent_hosts: silent,
            mismatch,
            verdict,
            presumed,
        }
    }

    /// Returns the kind of problem, if there is any.
    pub fn kind(&self) -> DiagnosisKind {
        match &self.verdict {
            _ if self.mismatch.is_some() => DiagnosisKind::Mismatch,
            HangVerdict::Cycle { .. } => DiagnosisKind::Deadlock,
            HangVerdict::WaitsForEnded { .. } => DiagnosisKind::Missing,
            HangVerdict::Awaited(list)
                if list.first().is_some_and(|(rank, _)| self.is_stopped(*rank)) =>
            {
                DiagnosisKind::Stopped
            }
            _ if !self.silent_hosts.is_empty() => DiagnosisKind::Unseen,
            HangVerdict::Awaited(_) => DiagnosisKind::Awaited,
            HangVerdict::Moving => DiagnosisKind::Moving,
        }
    }

    fn is_stopped(&self, rank: u32) -> bool {
        let shown = self.ranks.get(rank as usize);
        shown.is_some_and(|shown| {
            !shown.silent && matches!(shown.snapshot.rank.process, Some('T' | 't'))
        })
    }

    /// Returns whether it is certain that ranks can never go on, and has been so for a while.
    fn is_proven(&self) -> bool {
        let shown = |rank: u32| self.ranks.get(rank as usize);
        let waits = |rank: u32| shown(rank).is_some_and(hang_confirmation::waits_for_good);
        match &self.verdict {
            HangVerdict::Cycle { ranks, .. } => ranks.iter().all(|rank| waits(*rank)),
            HangVerdict::WaitsForEnded { waiter, ended, .. } => {
                waits(*waiter) && shown(*ended).is_some_and(hang_confirmation::has_left)
            }
            HangVerdict::Awaited(_) | HangVerdict::Moving => false,
        }
    }

    /// Returns whether any rank has come to MPI.
    pub fn has_begun(&self) -> bool {
        self.ranks
            .iter()
            .any(|shown| shown.snapshot.rank.state != RankState::Absent)
    }

    /// Messages that lie where a rank waits for another.
    fn beside(&self) -> Option<String> {
        let of_rank = |shown: &RankView| {
            let rank = shown.snapshot.rank.rank;
            let lines = unexpected_messages::message_lines(shown).into_iter();
            lines
                .map(move |line| format!("rank {rank}: {line}"))
                .collect::<Vec<_>>()
        };
        let lines: Vec<_> = self
            .ranks
            .iter()
            .flat_map(of_rank)
            .take(LINES_MAX)
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Says which ranks are missing in which collective.
    fn missing(&self) -> Option<String> {
        let lines: Vec<_> = collectives::missing_lines(&self.ranks)
            .into_iter()
            .take(LINES_MAX)
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Says in lines which ranks are missing in which collective, and which hosts were not seen.
    pub fn missing_lines(&self) -> Vec<String> {
        let parts = [
            self.missing(),
            job_snapshot::silent_hosts_text(&self.silent_hosts),
        ];
        let lines = parts.iter().flatten().flat_map(|part| part.lines());
        lines.map(str::to_owned).collect()
    }

    /// All that is to be said beside the table of ranks, with the error code; empty where there is
    /// nothing.
    pub fn text(&self) -> String {
        let verdict = report_text::verdict_text(&self.verdict, &self.ranks);
        let hint = self
            .kind()
            .code()
            .map(|code| format!("see: garonne explain {code}"));
        let presumed = self.presumed.as_ref();
        let parts = [
            self.beside(),
            (!self.places.is_empty()).then(|| self.places.join("\n")),
            self.missing(),
            self.mismatch.clone(),
            verdict,
            presumed.and_then(|presumed| report_text::presumed_text(presumed, &self.ranks)),
            job_snapshot::silent_hosts_text(&self.silent_hosts),
            hint,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// All of it for programs.
    pub fn json(&self, client: &QueryClient) -> serde_json::Value {
        let list: Vec<_> = self
            .ranks
            .iter()
            .filter(|shown| !shown.silent)
            .map(report_text::as_json)
            .collect();
        let kind = match &self.verdict {
            HangVerdict::Cycle { .. } => "deadlock",
            HangVerdict::WaitsForEnded { .. } => "missing",
            HangVerdict::Awaited(_) => "awaited",
            HangVerdict::Moving => "moving",
        };
        let verdict = json!({ "kind": kind, "ranks": report_text::named(&self.verdict), "text": report_text::verdict_text(&self.verdict, &self.ranks),
            "presumed": self.presumed.as_ref().and_then(|presumed| report_text::presumed_text(presumed, &self.ranks)),
            "code": self.kind().code(), "exit_code": self.kind().exit_code() });
        let far: Vec<_> = self
            .silent_hosts
            .iter()
            .map(job_snapshot::silent_as_json)
            .collect();
        json!({ "name": client.job_name, "launcher": client.launcher, "command": client.command, "ranks": list, "elsewhere": far, "mismatch": self.mismatch, "places": self.places, "missing": collectives::missing_lines(&self.ranks), "verdict": verdict })
    }
}

/// `garonne agent --verdict JOB CAUSE`: what the job hangs on, in words, for the agent that runs
/// this. Nothing where it hangs on nothing.
pub fn verdict_for_agent(job: &str, cause: &str) -> i32 {
    let Ok(client) = query_client::attach(&AgentSocketName(job.to_owned())) else {
        return 1;
    };
    let found = match cause {
        "time" => Diagnosis::of(&client),
        "interrupt" => Diagnosis::of_interrupted(&client),
        // The code comes first, and nothing where the job may go on.
        "stall" => match Diagnosis::of(&client) {
            found if found.is_proven() => {
                let found = found.with_places(&client);
                let said = format!("{}\n{}\n", found.kind().exit_code(), found.text());
                return i32::from(std::io::stdout().write_all(said.as_bytes()).is_err());
            }
            _ => return 0,
        },
        _ => return 1,
    };
    let found = found.with_places(&client);
    match found.has_begun() {
        true => i32::from(writeln!(std::io::stdout(), "{}", found.text()).is_err()),
        false => 0,
    }
}
