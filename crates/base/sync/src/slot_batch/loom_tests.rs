//! Slot batches over the cells that stand for a ring under loom, with the ring's own writer and
//! reader: what a run takes is one order with the rest of its lane.

use super::*;
use crate::ring::RingKind;
use crate::ring::loom_tests::{GEOMETRY, Model, send};
use loom::sync::{Arc, Mutex};

const WRITER: u16 = 1;

impl ContiguousSlots for Model {
    /// Nothing lies there: slot 0 is at `UNIT`.
    fn address(&self, slot: u32) -> *mut u8 {
        std::ptr::without_provenance_mut((self.at(slot) + 1) * UNIT)
    }
    fn behind(at: usize) -> usize {
        at + 1
    }
}

fn slot_at(address: *mut u8) -> usize {
    address as usize / UNIT - 1
}

/// A lane's writer and its run, as a producer has them.
struct Out {
    writer: RingWriter<Model>,
    run: Arc<BatchCursor>,
    running: bool,
    /// The last number sent.
    sent: u64,
}

impl Out {
    fn new(model: &Model) -> Self {
        Self {
            writer: RingWriter::new(model.clone(), WRITER, RingKind::Lane),
            run: Arc::new(BatchCursor::new(model.address(0))),
            running: false,
            sent: 0,
        }
    }

    fn open(&mut self, records: u32) -> u32 {
        self.end();
        let opened = self.run.open(&mut self.writer, records);
        self.running = opened > 0;
        opened
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.running) {
            self.run.end(&mut self.writer);
        }
        assert!(self.run.next().is_none());
    }

    /// Sends the next number by the run, if it has a place for it.
    fn fill(&mut self) -> bool {
        let (run, memory) = (&self.run, &self.writer.memory);
        let Some(at) = run.next().map(slot_at) else {
            return false;
        };
        self.sent += 1;
        let header = [self.sent, 0, 0];
        run.fill(memory.stamp(at), 8, || memory.put(at, header, None));
        true
    }

    /// Sends the next number as a record of its own, if there is room.
    fn send(&mut self) {
        self.end();
        self.sent += u64::from(send(&mut self.writer, self.sent + 1, 0));
    }
}

/// The reader of a lane as its consumer has it.
struct In {
    reader: RingReader<Model>,
    ready: NextRecord<usize>,
    got: Vec<u64>,
}

impl In {
    fn new(model: &Model) -> Self {
        let reader = RingReader::new(model.clone());
        Self {
            ready: NextRecord::of(&reader, WRITER),
            reader,
            got: Vec::new(),
        }
    }

    fn take(&mut self) -> bool {
        let found = self.ready.peek(&self.reader.memory);
        if let Some(at) = found {
            self.got.push(self.reader.memory.get(at)[0]);
            self.ready.pass(&mut self.reader, WRITER);
        }
        found.is_some()
    }

    fn take_all(&mut self) {
        while self.take() {}
        self.reader.publish_idle();
    }
}

/// What goes by runs and what goes beside them arrives whole, once and in one order, while the
/// reader takes it, also where a run takes slots again or less than it was opened for.
#[test]
fn a_run_and_the_rest_of_its_lane_are_one_order() {
    loom::model(|| {
        let model = Model::new();
        let mut consumer = In::new(&model);
        let mut out = Out::new(&model);
        let thread = loom::thread::spawn(move || {
            // Opened for more than it takes.
            assert!(out.open(GEOMETRY.slots) == GEOMETRY.slots && out.fill());
            assert_eq!(out.run.used(), (1, 8));
            out.send();
            // In slots that were given back, if any were.
            let opened = out.open(1);
            assert!(out.fill() == (opened == 1) && !out.fill());
            out.end();
            out.sent
        });
        for _ in 0..2 {
            consumer.take();
        }
        let sent = thread.join().unwrap();
        consumer.take_all();
        assert_eq!(consumer.got, (1..=sent).collect::<Vec<_>>());
    });
}

/// Threads that fill one run, one at a time and in whatever order, do it as one would, and so does
/// who ends it.
#[test]
fn a_run_goes_from_thread_to_thread() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        let mut consumer = In::new(&model);
        let mut out = Out::new(&model);
        assert_eq!(out.open(GEOMETRY.slots), GEOMETRY.slots);
        let out = Arc::new(Mutex::new(out));
        let threads = [false, true].map(|ends| {
            let out = out.clone();
            loom::thread::spawn(move || {
                let mut out = out.lock().unwrap();
                if ends {
                    out.send();
                } else {
                    out.fill();
                }
            })
        });
        consumer.take();
        for thread in threads {
            thread.join().unwrap();
        }
        consumer.take_all();
        let sent = out.lock().unwrap().sent;
        assert!(sent > 0);
        assert_eq!(consumer.got, (1..=sent).collect::<Vec<_>>());
    });
}

/// Where two threads use a run at once, against its rules, records may be lost, but each place that
/// it gives is a slot of its lane: also where both took the last one and counted it, and it is
/// ended and opened anew meanwhile.
#[test]
fn no_place_of_a_run_is_outside_its_lane_even_if_two_use_it_at_once() {
    loom::model(|| {
        let model = Model::new();
        let mut writer: RingWriter<Model> = RingWriter::new(model.clone(), WRITER, RingKind::Lane);
        let run = Arc::new(BatchCursor::new(model.address(0)));
        let next = |run: &BatchCursor| {
            let at = run.next().map(slot_at);
            assert!(
                at.is_none_or(|at| at < GEOMETRY.slots as usize),
                "a place outside the lane"
            );
            at
        };
        // All that lies there is the stamp: what two write at once is no matter of this.
        let fill =
            |run: &BatchCursor, model: &Model, at: usize| run.fill(model.stamp(at), 8, || ());
        assert_eq!(run.open(&mut writer, GEOMETRY.slots), GEOMETRY.slots);
        fill(&run, &model, next(&run).unwrap());
        let both = [next(&run).unwrap(), next(&run).unwrap()];
        for at in both {
            fill(&run, &model, at);
        }
        // Both were taken by the reader.
        model
            .head()
            .store(u64::from(GEOMETRY.slots), Ordering::Release);
        let other = (run.clone(), model.clone());
        let thread = loom::thread::spawn(move || {
            for _ in 0..2 {
                if let Some(at) = next(&other.0) {
                    fill(&other.0, &other.1, at);
                }
            }
        });
        run.end(&mut writer);
        run.open(&mut writer, GEOMETRY.slots);
        thread.join().unwrap();
        next(&run);
    });
}
