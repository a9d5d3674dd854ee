//! The agreement board under every order of memory operations that loom can think of: whoever dies
//! between which steps, all members that live take one decision.

use super::*;
use loom::sync::Arc;

struct Words {
    decided: [AtomicU64; 2],
    arrivals: [AtomicU64; 2],
    cells: Vec<AtomicU32>,
    members: u32,
}

impl BoardWords for Arc<Words> {
    fn decided(&self, place: u32) -> &AtomicU64 {
        &self.decided[place as usize]
    }

    fn arrivals(&self, place: u32) -> &AtomicU64 {
        &self.arrivals[place as usize]
    }

    fn word(&self, place: u32, member: u32, index: usize) -> &AtomicU32 {
        let cell = (place * self.members + member) as usize;
        &self.cells[cell * cell_words(self.members) + index]
    }
}

fn words(members: u32) -> Arc<Words> {
    let cells = 2 * members as usize * cell_words(members);
    Arc::new(Words {
        decided: [AtomicU64::new(0), AtomicU64::new(0)],
        arrivals: [AtomicU64::new(0), AtomicU64::new(0)],
        cells: (0..cells).map(|_| AtomicU32::new(0)).collect(),
        members,
    })
}

/// Where a member dies.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Lives,
    BeforeContribution,
    AfterContribution,
    AfterProposal,
}

/// Member 0 lives and takes part in two agreements; member 1 dies somewhere in the first, or lives.
fn model(end: End) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let words = words(2);
        let is_dead = Arc::new(AtomicU32::new(0));
        let other = {
            let (board, is_dead) = (AgreementBoard::new(words.clone(), 2), is_dead.clone());
            loom::thread::spawn(move || {
                let seen = other_member(&board, end);
                // The detector tells after the last write.
                is_dead.store(u32::from(end != End::Lives), Ordering::Release);
                seen
            })
        };
        let board = AgreementBoard::new(words, 2);
        let state = |member| match member == 1 && is_dead.load(Ordering::Acquire) != 0 {
            true => MemberState::Dead,
            false => MemberState::Alive,
        };
        let agreements = if end == End::Lives { 3 } else { 2 };
        let mut seen = Vec::new();
        for agreement in 0..agreements {
            board.contribute(0, agreement, (0b110, agreement), [].into_iter());
            seen.push(loop {
                board.propose(0, agreement, state);
                match board.decision(agreement) {
                    Some(decision) => break decision,
                    None => loom::thread::yield_now(),
                }
            });
        }
        let others = other.join().unwrap();
        assert_eq!(others[..], seen[..others.len()]);
        match end {
            End::Lives => assert!(seen.iter().all(|one| one.flags == 0b010)),
            End::BeforeContribution => assert!(seen.iter().all(|one| one.dead == [1])),
            _ => assert!(seen[1].dead == [1] && seen[1].flags == 0b110),
        }
        assert!(
            seen.iter()
                .all(|one| one.acknowledged == one.dead.is_empty())
        );
    });
}

fn other_member(board: &AgreementBoard<Arc<Words>>, end: End) -> Vec<BoardDecision> {
    let mut seen = Vec::new();
    let all_live = |_| MemberState::Alive;
    let agreements = if end == End::Lives { 3 } else { 1 };
    for agreement in 0..agreements {
        if end == End::BeforeContribution {
            break;
        }
        board.contribute(1, agreement, (0b011, 0), [].into_iter());
        if end == End::AfterContribution {
            break;
        }
        board.propose(1, agreement, all_live);
        if end == End::AfterProposal {
            // What it saw decided before it died is what the other one gets.
            seen.extend(board.decision(agreement));
            break;
        }
        seen.push(loop {
            board.propose(1, agreement, all_live);
            match board.decision(agreement) {
                Some(decision) => break decision,
                None => loom::thread::yield_now(),
            }
        });
    }
    seen
}

#[test]
fn both_live_and_take_the_same_decisions() {
    model(End::Lives);
}

#[test]
fn one_dies_before_it_contributes() {
    model(End::BeforeContribution);
}

#[test]
fn one_dies_after_it_contributed() {
    model(End::AfterContribution);
}

#[test]
fn one_dies_after_it_proposed() {
    model(End::AfterProposal);
}
