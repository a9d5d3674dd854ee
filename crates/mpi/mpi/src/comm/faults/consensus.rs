//! Agreement of processes that no agent knows together, as a value: views that are exchanged until
//! all living members have told the same one.
//!
//! A view says whose input is in it, who is dead, and what came of the inputs. Views only grow.
//! Each member tells its view to all others at the beginning, and once nobody is missing in it,
//! then after each change. Who hears of a death ignores what the dead member sends from then on.
//! A member decides when all that live in its view have told exactly that view. It tells its
//! decision to all, who adopt it, before it goes on.
//!
//! Two members that live cannot decide differently. Of two views that are decided by unanimity each
//! was told by the other's owner before that one's last, so they are equal. A decision of a member
//! that is dead in another decided view is adopted by nobody who has told that view. This needs
//! that nobody is thought dead who lives, that each death becomes known to all, and that messages
//! between the living arrive in order.
//!
//! Each member sends three messages to each other one, and two more for each death: the number of
//! messages grows with the square of the members.

/// A set of members, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberSet(Vec<u8>);

impl MemberSet {
    pub fn new(members: usize) -> Self {
        Self(vec![0; members.div_ceil(8)])
    }

    pub fn insert(&mut self, member: usize) -> bool {
        let Some(byte) = self.0.get_mut(member / 8) else {
            return false;
        };
        let before = std::mem::replace(byte, *byte | 1 << (member % 8));
        before != *byte
    }

    pub fn contains(&self, member: usize) -> bool {
        let byte = self.0.get(member / 8).copied().unwrap_or(0);
        byte & 1 << (member % 8) != 0
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn meet(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns whether all of `other` are in this set.
    fn has_all(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }
}

/// What one member knows of an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgreementView {
    /// Members whose input is in the values below.
    heard: MemberSet,
    /// Members that are dead.
    pub dead: MemberSet,
    /// Dead members that all inputs acknowledge.
    acknowledged: MemberSet,
    /// Conjunction of the inputs' bits.
    pub flags: u32,
    /// Greatest number of the inputs.
    pub number: u32,
}

impl AgreementView {
    /// Returns whether all dead members are acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged.has_all(&self.dead)
    }

    fn join(&mut self, other: &Self) {
        self.heard.join(&other.heard);
        self.dead.join(&other.dead);
        self.acknowledged.meet(&other.acknowledged);
        self.flags &= other.flags;
        self.number = self.number.max(other.number);
    }
}

/// Words before the sets of a message: agreement, kind, flags, number.
const HEAD: usize = 16;
const TELLS: u32 = 0;
const DECIDES: u32 = 1;

/// What one member tells another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ViewMessage {
    /// Number of the agreement on its communicator.
    pub agreement: u32,
    /// The view is decided.
    is_decided: bool,
    view: AgreementView,
}

impl ViewMessage {
    /// Bytes for a member of the same side, or of the other side of an intercommunicator, which
    /// counts its own side first. `sides`: members of the own and of the other side.
    pub fn encode(&self, sides: [usize; 2], is_across: bool) -> Vec<u8> {
        let kind = if self.is_decided { DECIDES } else { TELLS };
        let words = [self.agreement, kind, self.view.flags, self.view.number];
        let mut bytes = words.map(u32::to_le_bytes).concat();
        for set in [&self.view.heard, &self.view.dead, &self.view.acknowledged] {
            bytes.extend(turned(set, sides, is_across).0);
        }
        bytes
    }

    /// Reads what another member sent; `None`: it is damaged.
    pub fn decode(bytes: &[u8], members: usize) -> Option<Self> {
        let (head, sets) = bytes.split_at_checked(HEAD)?;
        let (words, _) = head.as_chunks::<4>();
        let [agreement, kind, flags, number] = <[[u8; 4]; 4]>::try_from(words).ok()?;
        let len = members.div_ceil(8);
        if sets.len() != 3 * len || len == 0 || u32::from_le_bytes(kind) > DECIDES {
            return None;
        }
        // Bits beyond the last member.
        let unused = |set: &[u8]| (members..8 * len).any(|bit| set[bit / 8] & 1 << (bit % 8) != 0);
        if sets.chunks_exact(len).any(unused) {
            return None;
        }
        let mut sets = sets.chunks_exact(len).map(|set| MemberSet(set.to_vec()));
        Some(Self {
            agreement: u32::from_le_bytes(agreement),
            is_decided: u32::from_le_bytes(kind) == DECIDES,
            view: AgreementView {
                heard: sets.next()?,
                dead: sets.next()?,
                acknowledged: sets.next()?,
                flags: u32::from_le_bytes(flags),
                number: u32::from_le_bytes(number),
            },
        })
    }
}

/// A set as the other side counts, if it is for that side.
fn turned(set: &MemberSet, [own, other]: [usize; 2], is_across: bool) -> MemberSet {
    if !is_across {
        return set.clone();
    }
    let mut turned = MemberSet::new(own + other);
    for member in (0..own + other).filter(|member| set.contains(*member)) {
        turned.insert(if member < own {
            member + other
        } else {
            member - own
        });
    }
    turned
}

/// One agreement at one member.
///
/// [`begin`](Self::begin) is called first, then [`on_message`](Self::on_message) and
/// [`on_death`](Self::on_death) as things come. What they return is for all other members that are
/// not [dead](Self::is_dead), in this order.
pub(super) struct Consensus {
    me: usize,
    members: usize,
    agreement: u32,
    view: AgreementView,
    /// Members that have told exactly this view.
    confirmed: MemberSet,
    decided: Option<AgreementView>,
}

impl Consensus {
    /// `acknowledged`: the dead members that this one has acknowledged.
    pub fn new(
        (me, members): (usize, usize),
        agreement: u32,
        acknowledged: MemberSet,
        (flags, number): (u32, u32),
    ) -> Self {
        let mut heard = MemberSet::new(members);
        heard.insert(me);
        Self {
            me,
            members,
            agreement,
            view: AgreementView {
                heard,
                dead: MemberSet::new(members),
                acknowledged,
                flags,
                number,
            },
            confirmed: MemberSet::new(members),
            decided: None,
        }
    }

    /// Returns whether a member is dead in this one's view.
    pub fn is_dead(&self, member: usize) -> bool {
        self.view.dead.contains(member)
    }

    /// Returns what is decided, once it is.
    pub fn decision(&self) -> Option<&AgreementView> {
        self.decided.as_ref()
    }

    pub fn begin(&mut self) -> Vec<ViewMessage> {
        match self.is_complete() {
            true => self.settle(true),
            false => vec![self.message(false)],
        }
    }

    pub fn on_death(&mut self, member: usize) -> Vec<ViewMessage> {
        if member == self.me || self.decided.is_some() || !self.view.dead.insert(member) {
            return Vec::new();
        }
        self.confirmed.clear();
        self.settle(true)
    }

    pub fn on_message(&mut self, from: usize, message: &ViewMessage) -> Vec<ViewMessage> {
        if self.decided.is_some() || self.is_dead(from) || message.agreement != self.agreement {
            return Vec::new();
        }
        if message.is_decided {
            self.decided = Some(message.view.clone());
            return vec![self.message(true)];
        }
        let before = self.view.clone();
        self.view.join(&message.view);
        let has_changed = self.view != before;
        if has_changed {
            self.confirmed.clear();
        }
        if self.view == message.view {
            self.confirmed.insert(from);
        }
        self.settle(has_changed)
    }

    /// Returns whether the view has all members' inputs, or their deaths.
    fn is_complete(&self) -> bool {
        (0..self.members).all(|member| self.view.heard.contains(member) || self.is_dead(member))
    }

    fn message(&self, is_decided: bool) -> ViewMessage {
        ViewMessage {
            agreement: self.agreement,
            is_decided,
            view: self.decided.clone().unwrap_or_else(|| self.view.clone()),
        }
    }

    fn settle(&mut self, has_changed: bool) -> Vec<ViewMessage> {
        let mut told = Vec::new();
        if !self.is_complete() {
            return told;
        }
        if has_changed {
            told.push(self.message(false));
        }
        let agrees =
            |member| member == self.me || self.is_dead(member) || self.confirmed.contains(member);
        if (0..self.members).all(agrees) {
            self.decided = Some(self.view.clone());
            told.push(self.message(true));
        }
        told
    }
}

/// Reads any bytes as what another member sent, and writes what is understood.
#[cfg(any(test, fuzzing))]
pub(in crate::comm) fn read_anything(bytes: &[u8]) {
    for members in [1, 2, 13, 40] {
        if let Some(read) = ViewMessage::decode(bytes, members) {
            assert_eq!(read.encode([members, 0], false), bytes);
            let there = read.encode([1, members - 1], true);
            let there = ViewMessage::decode(&there, members)
                .map(|read| read.encode([members - 1, 1], true));
            assert_eq!(there.as_deref(), Some(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Members with channels in order between each two. Who dies loses an end of each channel to
    /// others, of any length; deaths become known at any time after that.
    struct World {
        members: Vec<Consensus>,
        channels: Vec<Vec<VecDeque<ViewMessage>>>,
        /// Who is dead, and from when on; deaths that each member does not know yet.
        dead: Vec<bool>,
        unknown: Vec<Vec<usize>>,
    }

    impl World {
        fn new(sizes: usize, inputs: &[(u32, u32)]) -> Self {
            let members = (0..sizes)
                .map(|me| Consensus::new((me, sizes), 7, MemberSet::new(sizes), inputs[me]));
            Self {
                members: members.collect(),
                channels: vec![vec![VecDeque::new(); sizes]; sizes],
                dead: vec![false; sizes],
                unknown: vec![Vec::new(); sizes],
            }
        }

        fn send(&mut self, from: usize, told: Vec<ViewMessage>) {
            for message in told {
                for to in 0..self.members.len() {
                    if to != from && !self.members[from].is_dead(to) && !self.dead[from] {
                        self.channels[from][to].push_back(message.clone());
                    }
                }
            }
        }

        fn kill(&mut self, victim: usize, dice: &mut impl FnMut(usize) -> usize) {
            self.dead[victim] = true;
            for to in 0..self.members.len() {
                let kept = dice(self.channels[victim][to].len() + 1);
                self.channels[victim][to].truncate(kept);
                if to != victim {
                    self.unknown[to].push(victim);
                }
            }
        }

        /// One thing that may happen; false: nothing is left to happen.
        fn step(&mut self, dice: &mut impl FnMut(usize) -> usize) -> bool {
            let sizes = self.members.len();
            let mut can = Vec::new();
            for to in (0..sizes).filter(|to| !self.dead[*to]) {
                let from = 0..sizes;
                can.extend(
                    from.filter(|from| !self.channels[*from][to].is_empty())
                        .map(|from| (from, to, true)),
                );
                can.extend(self.unknown[to].iter().map(|victim| (*victim, to, false)));
            }
            if can.is_empty() {
                return false;
            }
            let (other, me, is_message) = can[dice(can.len())];
            let told = match is_message {
                true => {
                    let message = self.channels[other][me].pop_front().unwrap();
                    self.members[me].on_message(other, &message)
                }
                false => {
                    self.unknown[me].retain(|victim| *victim != other);
                    self.members[me].on_death(other)
                }
            };
            self.send(me, told);
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn all_that_live_decide_alike_whoever_dies_meanwhile(
            sizes in 1usize..7,
            inputs in prop::collection::vec(any::<(u32, u32)>(), 7),
            deaths in prop::collection::vec((0usize..120, 0usize..7), 0..6),
            seed: u64,
        ) {
            let mut state = seed | 1;
            let mut dice = move |sides: usize| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as usize % sides
            };
            let mut world = World::new(sizes, &inputs);
            for me in 0..sizes {
                let told = world.members[me].begin();
                world.send(me, told);
            }
            let mut at = 0;
            loop {
                for (_, victim) in deaths.iter().filter(|(when, _)| *when == at) {
                    let living = world.dead.iter().filter(|dead| !**dead).count();
                    if *victim < sizes && !world.dead[*victim] && living > 1 {
                        world.kill(*victim, &mut dice);
                    }
                }
                at += 1;
                if !world.step(&mut dice) && at > 120 {
                    break;
                }
            }
            let living = (0..sizes).filter(|me| !world.dead[*me]);
            let decided: Vec<_> = living.clone().map(|me| world.members[me].decision().cloned()).collect();
            prop_assert!(decided.iter().all(|one| one.is_some() && *one == decided[0]));
            let view = decided[0].clone().unwrap();
            for (me, input) in inputs.iter().enumerate().take(sizes) {
                // Nobody is thought dead who lives, and the inputs of all that live count.
                prop_assert!(world.dead[me] || !view.dead.contains(me));
                let counts = view.heard.contains(me);
                prop_assert!(world.dead[me] || counts);
                prop_assert!(!counts || (view.flags & !input.0 == 0 && view.number >= input.1));
            }
        }

        #[test]
        fn views_survive_the_way_to_both_sides_and_any_bytes_are_read_or_refused(
            sides in (1usize..20, 0usize..20),
            set in prop::collection::vec(any::<bool>(), 40),
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let sides = [sides.0, sides.1];
            let members = sides[0] + sides[1];
            let mut dead = MemberSet::new(members);
            (0..members).filter(|member| set[*member]).for_each(|member| { dead.insert(member); });
            let sent = ViewMessage {
                agreement: 5,
                is_decided: true,
                view: AgreementView { heard: MemberSet::new(members), dead: dead.clone(), acknowledged: dead, flags: 3, number: 9 },
            };
            let read = ViewMessage::decode(&sent.encode(sides, false), members);
            prop_assert_eq!(read.as_ref(), Some(&sent));
            let read = ViewMessage::decode(&sent.encode(sides, true), members).unwrap();
            for member in 0..members {
                let there = if member < sides[0] { member + sides[1] } else { member - sides[0] };
                prop_assert_eq!(sent.view.dead.contains(member), read.view.dead.contains(there));
            }
            read_anything(&bytes);
        }
    }
}
