//! The ring under loom: cells in the place of a segment, and every interleaving of two writers and
//! a reader.

use super::*;
use crate::facade::Cell;
use loom::sync::Arc;

pub(crate) struct Cells {
    head: AtomicU64,
    tail: AtomicU64,
    starved: AtomicU32,
    stamps: Vec<AtomicU64>,
    intents: Vec<AtomicU64>,
    words: Vec<Cell<[u64; SLOT_WORDS]>>,
}

#[derive(Clone)]
pub(crate) struct Model(Arc<Cells>);

pub(crate) const GEOMETRY: RingGeometry = RingGeometry {
    slots: 2,
    units: 4,
    reserved_slots: 0,
    reserved_units: 0,
};

impl Model {
    pub(crate) fn new() -> Self {
        let many = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Cells {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            starved: AtomicU32::new(0),
            stamps: many(2),
            intents: many(2),
            words: (0..2).map(|_| Cell::new([0; SLOT_WORDS])).collect(),
        }))
    }
}

impl RingMemory for Model {
    type At = usize;

    fn at(&self, slot: u32) -> usize {
        slot as usize % GEOMETRY.slots as usize
    }
    fn geometry(&self) -> RingGeometry {
        GEOMETRY
    }
    fn head(&self) -> &AtomicU64 {
        &self.0.head
    }
    fn tail(&self) -> &AtomicU64 {
        &self.0.tail
    }
    fn starved(&self) -> &AtomicU32 {
        &self.0.starved
    }
    fn stamp(&self, at: usize) -> &AtomicU64 {
        &self.0.stamps[at]
    }
    fn intent(&self, writer: u16) -> &AtomicU64 {
        &self.0.intents[usize::from(writer)]
    }
    fn writers(&self) -> u16 {
        2
    }
    fn put(&self, at: usize, header: [u64; PLACE_WORD], place: Option<u64>) {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        self.0.words[at].with_mut(|words| unsafe {
            (&mut *words)[..PLACE_WORD].copy_from_slice(&header);
            (*words)[PLACE_WORD] = place.unwrap_or(0);
        });
    }
    fn get(&self, at: usize) -> [u64; PLACE_WORD + 1] {
        // SAFETY: as in `put`.
        self.0.words[at].with_mut(|words| unsafe { std::array::from_fn(|i| (*words)[i]) })
    }
}

pub(crate) fn send(writer: &mut RingWriter<Model>, value: u64, units: u32) -> bool {
    match writer.claim(units, RecordClass::Data) {
        Ok(claim) => {
            writer.publish(claim, [value, 0, 0], StoreKind::Cached);
            true
        }
        Err(RingFull) => false,
    }
}

fn receive(reader: &mut RingReader<Model>) -> Option<u64> {
    match reader.look() {
        NextSlot::Record(found) => {
            reader.release(&found);
            Some(found.words[0])
        }
        NextSlot::Empty => None,
        NextSlot::Broken(_) => panic!("a broken slot from honest writers"),
    }
}

#[test]
fn two_writers_of_a_mailbox_lose_nothing() {
    loom::model(|| {
        let model = Model::new();
        let threads: Vec<_> = (0..2u16)
            .map(|me| {
                let mut writer = RingWriter::new(model.clone(), me, RingKind::Mailbox);
                loom::thread::spawn(move || send(&mut writer, u64::from(me) + 1, 1))
            })
            .collect();
        let mut reader = RingReader::new(model);
        let mut sum = receive(&mut reader).unwrap_or(0);
        for thread in threads {
            assert!(thread.join().unwrap());
        }
        while let Some(value) = receive(&mut reader) {
            sum += value;
        }
        assert_eq!(sum, 3);
    });
}

#[test]
fn a_lane_reuses_slots_only_after_the_reader_is_done() {
    loom::model(|| {
        let model = Model::new();
        let mut writer = RingWriter::new(model.clone(), 0, RingKind::Lane);
        let thread = loom::thread::spawn(move || {
            (1..=3u64)
                .take_while(|value| send(&mut writer, *value, 1))
                .count() as u64
        });
        let mut reader = RingReader::new(model);
        let mut got = Vec::new();
        for _ in 0..3 {
            got.extend(receive(&mut reader));
        }
        let sent = thread.join().unwrap();
        while let Some(value) = receive(&mut reader) {
            got.push(value);
        }
        assert_eq!(got, (1..=sent).collect::<Vec<_>>());
    });
}

#[test]
fn a_writer_that_finds_no_room_is_rung_or_finds_it() {
    loom::model(|| {
        let model = Model::new();
        let mut writer = RingWriter::new(model.clone(), 0, RingKind::Lane);
        assert!(send(&mut writer, 1, 0) && send(&mut writer, 2, 0));
        let mut reader = RingReader::new(model);
        let thread = loom::thread::spawn(move || send(&mut writer, 3, 0));
        let NextSlot::Record(found) = reader.look() else {
            panic!("the first record was published")
        };
        reader.next = found.end;
        let rung = reader.publish_head();
        assert!(
            thread.join().unwrap() || rung,
            "the writer would wait for ever"
        );
    });
}

#[test]
fn a_slot_claimed_by_a_dead_writer_is_skipped_and_no_other() {
    loom::model(|| {
        let model = Model::new();
        let mut dead = RingWriter::new(model.clone(), 0, RingKind::Mailbox);
        let mut alive = RingWriter::new(model.clone(), 1, RingKind::Mailbox);
        let thread = loom::thread::spawn(move || assert!(send(&mut alive, 7, 1)));
        dead.claim(1, RecordClass::Data).unwrap();
        let mut reader = RingReader::new(model);
        let mut got = Vec::new();
        got.extend(receive(&mut reader));
        reader.skip_gone(&mut |writer| writer == 0);
        thread.join().unwrap();
        for _ in 0..2 {
            got.extend(receive(&mut reader));
            reader.skip_gone(&mut |writer| writer == 0);
        }
        got.extend(receive(&mut reader));
        assert_eq!(got, [7]);
    });
}
