//! Traces: the records that ranks write, the timeline made of them, and how much of each operation
//! was hidden behind computation.
//!
//! Pure but for the file that a timeline is written to. [`record`] is what lies in shared memory,
//! and [`event`] what it means. [`timeline`] and [`trace_file`] make a file that Perfetto opens;
//! [`timeline_reader`] reads it back. [`overlap`] computes shares and reasons. Records come from
//! other processes' memory: any words are decoded to something or to nothing, never to a panic.
//! Whatever grows with them is bounded by [`limits`].

#![forbid(unsafe_code)]

pub mod event;
pub mod event_stream;
pub mod limits;
pub mod overlap;
pub mod record;
pub mod timeline;
pub mod timeline_reader;
pub mod trace_file;
pub mod traffic;

/// Takes any bytes for records of three ranks, and as a file: both come from others.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    use garonne_sync::trace_ring::{RECORD_WORDS, RecordWords};

    struct Nameless;
    impl event::NameSource for Nameless {
        fn call(&mut self, number: u16) -> String {
            // Both kinds of call, as the analysis tells them apart.
            format!(
                "MPI_{}{number}",
                if number.is_multiple_of(2) { "I" } else { "S" }
            )
        }
        fn site(&mut self, rank: u32, address: u64) -> String {
            format!("{rank}:{address:x}")
        }
        fn collective(&mut self, tag: i32) -> String {
            format!("{tag}")
        }
    }

    let _ = timeline_reader::read(bytes);
    let _ = event_stream::EventReader::default().read(bytes, &mut |_| {});
    let (mut live, mut shown, mut again) = (
        overlap::OverlapAnalysis::new(false),
        timeline::Timeline::new(0, 2),
        overlap::OverlapAnalysis::new(false),
    );
    let mut decoder = event::RecordDecoder::new(Nameless);
    for (place, chunk) in bytes.chunks_exact(RECORD_WORDS * 8).enumerate() {
        let words: RecordWords = std::array::from_fn(|word| {
            u64::from_ne_bytes(std::array::from_fn(|byte| chunk[word * 8 + byte]))
        });
        if let Some(record) = record::Record::decode(&words) {
            let Some(mut seen) = decoder.decode(place as u32 % 3, &record) else {
                continue;
            };
            seen.shift(record.context % 2);
            live.see(&seen);
            shown.see(&seen);
        }
    }
    shown.finish(0);
    let about = "{\"made_by\":\"garonne\"}";
    let file = format!(
        "{{\"otherData\":{about},\"traceEvents\":[{}]}}",
        shown.take()
    );
    let read = timeline_reader::read(file.as_bytes());
    assert!(read.is_ok(), "{read:?} of {file}");
    read.iter()
        .flat_map(|read| &read.seen)
        .for_each(|seen| again.see(seen));
    let _ = (live.finish(), again.finish());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_records_are_read_without_harm(words in prop::collection::vec((1u8..14, 0u8..4, any::<[u8; 4]>(), any::<[u64; 7]>()), 0..60)) {
            let mut bytes = Vec::new();
            for (kind, side, few, mut words) in words {
                // Few threads, operations and peers, so that records have to do with each other.
                words[1] = u64::from(kind) | u64::from(side) << 8 | u64::from(few[0] % 4) << 16 | u64::from(few[1] % 2) << 32;
                words[3] = u64::from(few[2] % 4);
                words[6] = u64::from(few[3] % 4);
                words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
            }
            super::read_anything(&bytes);
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/seeds/trace_records");
        let inputs = std::fs::read_dir(&dir).unwrap();
        let count = inputs
            .map(|input| super::read_anything(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 0, "{}", dir.display());
    }
}
