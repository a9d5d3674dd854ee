//! Blocking calls that waited for another rank: nothing of them can hide, but how long the other
//! side was waited for is counted.
//!
//! A blocking send or receive is judged with the start of the other side, a blocking collective
//! with the moments at which its members entered it. A call site gets a row only if a partner was
//! late there. Bounded by [`crate::limits`].

use super::Row;
use super::intervals::Span;
use super::overlap_share::{Reason, Share};
use crate::event::Name;
use crate::limits::{ENTERED_KEPT, LATE_NS, SITES};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The call that a thread is in.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    call: Name,
    site: Name,
    since: u64,
    /// Calls of callbacks within it.
    depth: usize,
    collective: Option<Name>,
}

impl Inside {
    /// A call that was entered at this moment.
    pub fn new(call: &Name, site: &Name, since: u64) -> Self {
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
    pub fn is_collective(&mut self, name: &Name) {
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
struct Entered {
    rank: u32,
    call: Name,
    site: Name,
    during: Span,
}

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(super) struct Blocking {
    rows: BTreeMap<(Name, Name), Row>,
    collectives: HashMap<Name, Vec<Entered>>,
    order: VecDeque<Name>,
    entered: usize,
}

impl Blocking {
    /// A blocking send or receive is over; its other side was started at `partner`, if that is
    /// known.
    pub fn message(
        &mut self,
        (call, site): (&Name, &Name),
        during: Span,
        partner: Option<u64>,
        bytes: u64,
    ) {
        let late = partner.map_or(0, |partner| lateness(during, partner));
        self.add((call, site), late, bytes);
    }

    /// A rank has left a call at this moment.
    pub fn left(&mut self, rank: u32, inside: Inside, at: u64) {
        let Some(name) = inside.collective else {
            return;
        };
        let entered = Entered {
            rank,
            call: inside.call,
            site: inside.site,
            during: Span::new(inside.since, at),
        };
        let members = self.collectives.entry(name.clone()).or_default();
        if members.is_empty() {
            self.order.push_back(name);
        }
        members.push(entered);
        self.entered += 1;
        while self.entered > ENTERED_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.judge(&oldest);
        }
    }

    /// Counts who of the members of a collective waited for the last.
    fn judge(&mut self, name: &Name) {
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

    fn add(&mut self, (call, site): (&Name, &Name), late: u64, bytes: u64) {
        let key = (site.clone(), call.clone());
        if self.rows.len() >= SITES && !self.rows.contains_key(&key) {
            return;
        }
        let share = Share {
            moving_ns: 0,
            hidden_ns: 0,
            waited_ns: late,
            reason: (late > 0).then_some(Reason::PartnerLate),
        };
        self.rows.entry(key).or_default().add(&share, bytes);
    }

    /// The rows of call sites where a partner was late.
    pub fn finish(mut self) -> BTreeMap<(Name, Name), Row> {
        while let Some(oldest) = self.order.pop_front() {
            self.judge(&oldest);
        }
        self.rows
            .retain(|_, row| row.reasons[Reason::PartnerLate as usize] > 0);
        self.rows
    }
}

/// How long a call waited for a partner that came at this moment; 0 if that is too little to
/// matter.
fn lateness(during: Span, partner: u64) -> u64 {
    let late = partner.min(during.end).saturating_sub(during.begin);
    if late >= LATE_NS { late } else { 0 }
}
