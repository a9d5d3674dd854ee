//! Datatypes against a naive model: the standard's type map written out element by element.

use super::basic_type::BasicType;
use super::*;
use garonne_sync::user::Scratch;
use proptest::prelude::*;

mod known_answers;
mod model;
mod signature_digest;

use model::{ModelledType, made};

/// Bytes around the data that must stay untouched.
const MARGIN: usize = 64;

/// Memory for `count` elements of what was made, filled with a pattern, and the view at its origin.
struct TestArena {
    scratch: Scratch,
    origin: i64,
    len: usize,
}

impl TestArena {
    fn new(made: &ModelledType, count: u64, salt: u8) -> Self {
        let bytes = made.naive.bytes(count);
        let low = bytes.iter().copied().min().unwrap_or(0).min(0);
        let high = bytes
            .iter()
            .copied()
            .max()
            .map_or(0, |last| last + 1)
            .max(0);
        let len = (high - low) as usize + 2 * MARGIN;
        let scratch = Scratch::new(len).expect("memory for the test");
        let pattern: Vec<u8> = (0..len)
            .map(|i| (i as u8).wrapping_mul(37) ^ salt ^ (i >> 8) as u8)
            .collect();
        scratch.mem().write(0, &pattern);
        Self {
            scratch,
            origin: MARGIN as i64 - low,
            len,
        }
    }

    fn mem(&self) -> UserMem {
        self.scratch.mem().offset(self.origin as isize)
    }

    fn contents(&self) -> Vec<u8> {
        let mut all = vec![0; self.len];
        self.scratch.mem().read(0, &mut all);
        all
    }

    fn at(&self, offset: i64) -> u8 {
        self.contents()[(self.origin + offset) as usize]
    }

    fn expected(&self, made: &ModelledType, count: u64) -> Vec<u8> {
        let all = self.contents();
        made.naive
            .bytes(count)
            .into_iter()
            .map(|offset| all[(self.origin + offset) as usize])
            .collect()
    }
}

/// Cuts `len` into pieces whose sizes the seeds say.
fn pieces(len: usize, seeds: &[usize]) -> Vec<(usize, usize)> {
    let (mut cuts, mut at) = (Vec::new(), 0);
    for seed in seeds.iter().cycle() {
        if at == len {
            break;
        }
        let piece = (seed % (len - at).max(1) + 1).min(len - at);
        cuts.push((at, piece));
        at += piece;
    }
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 1 << 16, ..ProptestConfig::default() })]

    #[test]
    fn sizes_and_bounds_are_those_of_the_type_map(made in made()) {
        let (datatype, naive) = (&made.datatype, &made.naive);
        prop_assert_eq!(datatype.size(), naive.size());
        prop_assert_eq!(datatype.elements(), naive.map.len() as u64);
        prop_assert_eq!((datatype.lb(), datatype.extent()), (naive.lb(), naive.extent()));
        let (low, high) = naive.true_bounds();
        prop_assert_eq!((datatype.true_lb(), datatype.true_extent()), (low, high - low));
    }

    #[test]
    fn packing_in_any_pieces_yields_the_bytes_of_the_type_map(
        made in made(), count in 0u64..5, seeds in prop::collection::vec(0usize..500, 1..6),
    ) {
        let arena = TestArena::new(&made, count, 11);
        let data = made.datatype.data(arena.mem(), count).unwrap();
        let expected = arena.expected(&made, count);
        prop_assert_eq!(data.len as usize, expected.len());
        let mut packed = vec![0; expected.len()];
        for (at, len) in pieces(expected.len(), &seeds) {
            data.pack(at as u64, &mut packed[at..at + len]);
        }
        prop_assert_eq!(packed, expected);
    }

    #[test]
    fn unpacking_in_any_pieces_fills_the_bytes_of_the_type_map_and_no_others(
        made in made(), count in 0u64..5, seeds in prop::collection::vec(0usize..500, 1..6),
    ) {
        prop_assume!(!made.naive.overlaps(count));
        let arena = TestArena::new(&made, count, 0);
        let data = made.datatype.data(arena.mem(), count).unwrap();
        let mut expected = arena.contents();
        let stream: Vec<u8> = (0..data.len).map(|i| 255 - i as u8).collect();
        for (value, offset) in stream.iter().zip(made.naive.bytes(count)) {
            expected[(arena.origin + offset) as usize] = *value;
        }
        let mut cuts = pieces(stream.len(), &seeds);
        cuts.reverse();
        for (at, len) in cuts {
            data.unpack(at as u64, &stream[at..at + len]);
        }
        prop_assert_eq!(arena.contents(), expected);
    }

    #[test]
    fn blocks_list_the_same_bytes_merged_and_within_the_limit(
        made in made(), count in 0u64..5, from in 0usize..200, len in 0usize..400, max in 1usize..20,
    ) {
        let arena = TestArena::new(&made, count, 5);
        let data = made.datatype.data(arena.mem(), count).unwrap();
        let expected = arena.expected(&made, count);
        let Some(layout) = data.layout else { return Ok(()) };
        let from = from.min(expected.len());
        let len = len.min(expected.len() - from);
        let mut blocks = Vec::new();
        let covered = layout.blocks(from as u64, len as u64, max, &mut blocks) as usize;
        prop_assert!(blocks.len() <= max);
        prop_assert!(covered == len || blocks.len() == max);
        prop_assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 as isize != pair[1].0));
        let listed = blocks.iter().flat_map(|&(at, len)| (at..at + len as isize).map(|o| arena.at(o as i64)));
        prop_assert_eq!(listed.collect::<Vec<u8>>(), &expected[from..from + covered]);
    }

    #[test]
    fn copies_between_two_shapes_move_the_packed_stream(a in made(), b in made(), count in 1u64..4) {
        prop_assume!(a.naive.size() > 0 && b.naive.size() > 0 && !b.naive.overlaps(count));
        let (from, to) = (TestArena::new(&a, count, 1), TestArena::new(&b, count, 2));
        let (src, dst) = (a.datatype.data(from.mem(), count).unwrap(), b.datatype.data(to.mem(), count).unwrap());
        let mut expected = to.contents();
        for (value, offset) in from.expected(&a, count).iter().zip(b.naive.bytes(count)) {
            expected[(to.origin + offset) as usize] = *value;
        }
        let moved = garonne_sync::user::copy(&src, &dst);
        prop_assert_eq!(moved, src.len.min(dst.len));
        prop_assert_eq!(to.contents(), expected);
    }

    #[test]
    fn signatures_and_element_counts_follow_the_type_map(made in made(), bytes in 0u64..600) {
        let expected: Vec<BasicType> = made.naive.map.iter().map(|entry| entry.1).collect();
        let signature = made.datatype.signature(usize::MAX);
        let flat: Vec<BasicType> = signature.iter().flat_map(|&(leaf, count)| match leaf {
            LeafType::Basic(basic) => vec![basic; count as usize],
            LeafType::Pair { value, index } => [value, index].repeat(count as usize),
        }).collect();
        prop_assert_eq!(flat, expected);

        prop_assume!(made.naive.size() > 0);
        let (mut left, mut elements) = (bytes, 0);
        for (_, basic) in made.naive.map.iter().cycle() {
            if left < basic.size() { break }
            left -= basic.size();
            elements += 1;
        }
        prop_assert_eq!(made.datatype.elements_in(bytes), (left == 0).then_some(elements));
        prop_assert_eq!(made.datatype.bytes_of_elements(elements), Some(bytes - left));
    }

    #[test]
    fn the_canonical_form_is_the_type_maps_values_and_comes_back_as_it_went(made in made(), count in 0u64..4) {
        prop_assume!(!made.naive.overlaps(count));
        let (from, to) = (TestArena::new(&made, count, 3), TestArena::new(&made, count, 99));
        // Values that the canonical form can hold: small ones.
        for offset in made.naive.bytes(count) {
            from.mem().write(offset as isize, &[0]);
        }
        for (i, (offset, basic)) in made.naive.values(count).into_iter().enumerate() {
            from.mem().write(offset as isize, &model::sample(basic, i as u8));
            to.mem().write(offset as isize, &vec![0; basic.size() as usize]);
        }
        let size = made.datatype.external_size(count).unwrap();
        let expected: u64 = made.naive.map.iter().map(|entry| entry.1.external_size()).sum();
        prop_assert_eq!(size, expected * count);
        let scratch = Scratch::new(size as usize + 1).unwrap();
        let mut buffer = PackBuffer { mem: scratch.mem(), size, position: 0 };
        buffer.pack_external(PackElements { mem: from.mem(), count, datatype: &made.datatype }).unwrap();
        prop_assert_eq!(buffer.position, size);
        let values = made.naive.values(count).into_iter().enumerate();
        let stream: Vec<u8> = values.flat_map(|(i, (_, basic))| model::canonical(basic, i as u8)).collect();
        let mut packed = vec![0; size as usize];
        scratch.mem().read(0, &mut packed);
        prop_assert_eq!(packed, stream);
        buffer.position = 0;
        buffer.unpack_external(PackElements { mem: to.mem(), count, datatype: &made.datatype }).unwrap();
        prop_assert_eq!(from.expected(&made, count), to.expected(&made, count));
    }
}
