//! The window lock under every order of memory operations that loom can think of: holders exclude
//! each other, and nobody waits for ever.

use super::*;
use crate::facade::{Cell, Notify};
use loom::sync::Arc;

struct Shared {
    state: WindowLockState,
    slots: Vec<WindowLockSlot>,
    value: Cell<u32>,
    /// Where each member sleeps.
    sleeps: Vec<Notify>,
}

// SAFETY: the lock guards the cell; loom checks that its accesses do not race.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// Runs one member for each mode, each of which takes and gives up the lock once.
fn model(modes: &'static [LockMode], bound: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(move || {
        let shared = Arc::new(Shared {
            state: WindowLockState::default(),
            slots: modes.iter().map(|_| WindowLockSlot::default()).collect(),
            value: Cell::new(0),
            sleeps: modes.iter().map(|_| Notify::new()).collect(),
        });
        let members: Vec<_> = modes
            .iter()
            .zip(0u16..)
            .skip(1)
            .map(|(mode, me)| {
                let shared = shared.clone();
                loom::thread::spawn(move || member(&shared, me, *mode))
            })
            .collect();
        member(&shared, 0, modes[0]);
        members
            .into_iter()
            .for_each(|member| member.join().unwrap());
        let lock = WindowLock::new(&shared.state, &shared.slots);
        let writers = modes.iter().filter(|mode| **mode == LockMode::Exclusive);
        assert!(lock.try_acquire(0, LockMode::Exclusive), "it is not free");
        // SAFETY: all members have ended.
        assert_eq!(
            shared.value.with(|value| unsafe { *value }),
            writers.count() as u32
        );
    });
}

fn member(shared: &Shared, me: u16, mode: LockMode) {
    let lock = WindowLock::new(&shared.state, &shared.slots);
    if !lock.try_acquire(me, mode) {
        lock.enqueue(me, mode);
        // A hand-over that is lost is a deadlock here.
        while !lock.poll(me, mode) {
            shared.sleeps[usize::from(me)].wait();
        }
    }
    match mode {
        // SAFETY: loom checks that nobody writes meanwhile.
        LockMode::Shared => drop(shared.value.with(|value| unsafe { *value })),
        // SAFETY: loom checks that nobody else has access meanwhile.
        LockMode::Exclusive => shared.value.with_mut(|value| unsafe { *value += 1 }),
    }
    lock.release(me, mode, |member| {
        shared.sleeps[usize::from(member)].notify()
    });
}

#[test]
fn two_writers_exclude_each_other() {
    model(&[LockMode::Exclusive, LockMode::Exclusive], 3);
}

#[test]
fn a_reader_and_a_writer_exclude_each_other() {
    model(&[LockMode::Shared, LockMode::Exclusive], 3);
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    model(
        &[LockMode::Shared, LockMode::Exclusive, LockMode::Shared],
        2,
    );
}

#[test]
fn three_writers_exclude_each_other() {
    model(&[LockMode::Exclusive; 3], 2);
}
