//! The error text for ranks of one communicator that called different collectives: each side with
//! its members and the place of its call, the side with the fewest members first.

use super::call_signature::CallSignature;
use crate::comm::Comm;
use crate::error::{Class, Error};
use garonne_engine::api::CallOrigin;
use garonne_sync::shm_barrier::NOTE_BYTES;

/// Place where the return address of its call lies in what a member notes of a collective.
const SITE_AT: usize = NOTE_BYTES - 8;
/// Sides that are told.
const SIDES_TOLD: usize = 4;
/// Ranges of ranks of a side that are named.
const RANGES_NAMED: usize = 8;

const _: () = assert!(super::call_signature::SIGNATURE_BYTES + 4 <= SITE_AT);

/// The call of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberCall {
    pub member: u32,
    /// `None`: this version of the library does not know it.
    pub statement: Option<CallSignature>,
    /// Return address of its call, in its process.
    pub site: u64,
}

impl MemberCall {
    /// Decodes what a member noted in the segment.
    pub fn noted(member: u32, note: &[u8; NOTE_BYTES]) -> Self {
        let site = note
            .last_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Self {
            member,
            statement: note.first_chunk().and_then(CallSignature::from_bytes),
            site,
        }
    }
}

/// Puts a call's return address where [`MemberCall::noted`] finds it.
#[inline(always)]
pub(super) fn note_site(note: &mut [u8; NOTE_BYTES], site: u64) {
    note[SITE_AT..].copy_from_slice(&site.to_ne_bytes());
}

/// Returns the error for members that called different collectives, as far as they have arrived.
pub(super) fn mismatch_error(
    comm: &Comm,
    (what, number): (&str, u32),
    mut said: Vec<MemberCall>,
) -> Error {
    said.sort_by_key(|said| said.member);
    let mut sides: Vec<(Option<CallSignature>, Vec<MemberCall>)> = Vec::new();
    for one in said {
        match sides.iter_mut().find(|(known, _)| *known == one.statement) {
            Some((_, members)) => members.push(one),
            None => sides.push((one.statement, vec![one])),
        }
    }
    sides.sort_by_key(|(_, members)| members.len());
    let lines = sides.iter().take(SIDES_TOLD).map(|(said, members)| {
        let said = said.map_or_else(
            || "something this version of the library does not know".to_owned(),
            |said| said.to_string(),
        );
        let named = ranks(members.iter().map(|said| said.member));
        let place = members
            .first()
            .map_or(String::new(), |first| place(comm, first));
        format!(
            "\n  {named}  {said}{place}, {} of {}",
            members.len(),
            comm.size()
        )
    });
    let lines: String = lines.collect();
    let more = match (sides.len(), sides.len().saturating_sub(SIDES_TOLD)) {
        (1, _) => "\n  another rank  something else".to_owned(),
        (_, 0) => String::new(),
        (_, more) => format!("\n  and so on: {more} more"),
    };
    let comm = comm.label();
    Error::new(
        Class::NotSame,
        format!(
            "error[G0112]: ranks disagree about {what} {number} of {comm}{lines}{more}\n  \
             help: all ranks of a communicator call the same collectives in the same order, with the same root and matching sizes",
        ),
    )
}

/// Returns where a member called, if that can be found out from here.
fn place(comm: &Comm, said: &MemberCall) -> String {
    let process = comm.process();
    let peer = comm.group().peer(said.member);
    let is_own = peer == Some(process.host.me());
    let other = peer.and_then(|peer| process.host.process_of(peer));
    if said.site == 0 || (!is_own && other.is_none()) {
        return String::new();
    }
    let origin = CallOrigin {
        site: said.site,
        ..CallOrigin::default()
    };
    process.describe_in(other.filter(|_| !is_own), origin).1
}

/// Ranks in words, in order: `rank 2`, `ranks 0,3-7`.
fn ranks(members: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for member in members {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == member => *last = member,
            _ => ranges.push((member, member)),
        }
    }
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let named: Vec<_> = ranges.iter().take(RANGES_NAMED).map(range).collect();
    let more = if ranges.len() > RANGES_NAMED {
        ",..."
    } else {
        ""
    };
    match ranges.as_slice() {
        [(first, last)] if first == last => format!("rank {first}"),
        _ => format!("ranks {}{more}", named.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_coll::call_tag::CollectiveKind;

    #[test]
    fn ranks_are_told_in_ranges() {
        assert_eq!(ranks([2].into_iter()), "rank 2");
        assert_eq!(ranks([0, 1].into_iter()), "ranks 0-1");
        assert_eq!(ranks([0, 3, 4, 5, 7].into_iter()), "ranks 0,3-5,7");
        assert_eq!(
            ranks((0..20).map(|at| 2 * at)),
            "ranks 0,2,4,6,8,10,12,14,..."
        );
    }

    #[test]
    fn what_a_member_noted_reads_back() {
        let statement = CallSignature::of(CollectiveKind::Bcast)
            .root(3)
            .bytes(1 << 40);
        let mut note = [0; NOTE_BYTES];
        note[..super::super::call_signature::SIGNATURE_BYTES]
            .copy_from_slice(&statement.to_bytes());
        note_site(&mut note, 0x1234_5678_9abc);
        let said = MemberCall::noted(4, &note);
        assert_eq!(
            (said.statement, said.site),
            (Some(statement), 0x1234_5678_9abc)
        );
    }
}
