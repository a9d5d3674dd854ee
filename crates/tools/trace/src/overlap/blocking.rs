//! Blocking calls that waited for another rank: nothing of them can hide, but how long the other
//! side was waited for is counted.
//!
//! A blocking send or receive is judged with the start of the other side. A blocking collective is
//! judged with the moments at which its members entered it. A call site gets a row only if a
//! partner was late there. Bounded by [`crate::limits`].

use super::CallSiteOverlap;
use super::intervals::Interval;
use super::overlap_share::{OverlapReason, OverlapShare};
use crate::event::SharedName;
use crate::limits::{LAST_CALLS_KEPT, LATE_NS, SITES};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The call that a thread is in.
#[derive(Clone, Debug)]
pub(super) struct CurrentCall {
    call: SharedName,
    site: SharedName,
    since: u64,
    /// Calls of callbacks within it.
    depth: usize,
    collective: Option<SharedName>,
}

impl CurrentCall {
    /// A call that was entered at this moment.
    pub fn new(call: &SharedName, site: &SharedName, since: u64) -> Self {
        Self {
            call: call.clone(),
            site: site.clone(),
            since,
            depth: 0,
            collective: None,
        }
    }

    /// Another call is entered within it.
    pub fn enter(&mut self) {
        self.depth += 1;
    }

    /// The call is this collective.
    pub fn is_collective(&mut self, name: &SharedName) {
        if self.depth == 0 {
            self.collective = Some(name.clone());
        }
    }

    /// A call is left; whether it is this one.
    pub fn leave(&mut self) -> bool {
        let is_outermost = self.depth == 0;
        self.depth = self.depth.saturating_sub(1);
        is_outermost
    }
}

/// A member's part in a collective.
#[derive(Debug)]
struct CollectiveEntry {
    rank: u32,
    call: SharedName,
    site: SharedName,
    during: Interval,
}

/// Blocking calls of all ranks, and how long each waited for another rank.
/// [`super::OverlapAnalysis`] owns it and feeds it events in order.
#[derive(Debug, Default)]
pub(super) struct BlockingWaits {
    rows: BTreeMap<(SharedName, SharedName), CallSiteOverlap>,
    collectives: HashMap<SharedName, Vec<CollectiveEntry>>,
    order: VecDeque<SharedName>,
    entered: usize,
}

impl BlockingWaits {
    /// A blocking send or receive is over; its other side was started at `partner`, if that is
    /// known.
    pub fn message(
        &mut self,
        (call, site): (&SharedName, &SharedName),
        during: Interval,
        partner: Option<u64>,
        bytes: u64,
    ) {
        let late = partner.map_or(0, |partner| lateness(during, partner));
        self.add((call, site), late, bytes);
    }

    /// A rank has left a call at this moment.
    pub fn left(&mut self, rank: u32, inside: CurrentCall, at: u64) {
        let Some(name) = inside.collective else {
            return;
        };
        let entered = CollectiveEntry {
            rank,
            call: inside.call,
            site: inside.site,
            during: Interval::new(inside.since, at),
        };
        let members = self.collectives.entry(name.clone()).or_default();
        if members.is_empty() {
            self.order.push_back(name);
        }
        members.push(entered);
        self.entered += 1;
        while self.entered > LAST_CALLS_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.judge(&oldest);
        }
    }

    /// Counts who of the members of a collective waited for the last.
    fn judge(&mut self, name: &SharedName) {
        let members = self.collectives.remove(name).unwrap_or_default();
        self.entered = self.entered.saturating_sub(members.len());
        let mut begins: Vec<(u64, u32)> = members
            .iter()
            .map(|member| (member.during.begin, member.rank))
            .collect();
        begins.sort_unstable();
        for member in &members {
            // Whoever came after this member had left was not waited for.
            let came = begins.partition_point(|&(begin, _)| begin <= member.during.end);
            let last = begins[..came]
                .iter()
                .rev()
                .find(|(_, rank)| *rank != member.rank);
            let late = last.map_or(0, |&(begin, _)| lateness(member.during, begin));
            self.add((&member.call, &member.site), late, 0);
        }
    }

    fn add(&mut self, (call, site): (&SharedName, &SharedName), late: u64, bytes: u64) {
        let key = (site.clone(), call.clone());
        if self.rows.len() >= SITES && !self.rows.contains_key(&key) {
            return;
        }
        let share = OverlapShare {
            moving_ns: 0,
            hidden_ns: 0,
            waited_ns: late,
            reason: (late > 0).then_some(OverlapReason::PartnerLate),
        };
        self.rows.entry(key).or_default().add(&share, bytes);
    }

    /// The rows of call sites where a partner was late.
    pub fn finish(mut self) -> BTreeMap<(SharedName, SharedName), CallSiteOverlap> {
        while let Some(oldest) = self.order.pop_front() {
            self.judge(&oldest);
        }
        self.rows
            .retain(|_, row| row.reasons[OverlapReason::PartnerLate as usize] > 0);
        self.rows
    }
}

/// Returns how long a call waited for a partner that came at this moment; 0 if that is too little
/// to matter.
fn lateness(during: Interval, partner: u64) -> u64 {
    let late = partner.min(during.end).saturating_sub(during.begin);
    if late >= LATE_NS { late } else { 0 }
}
