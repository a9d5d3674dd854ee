//! The copy primitives by themselves: every length, overlap and spacing.

use super::*;

#[test]
fn gathering_and_scattering_strided_blocks_are_inverse() {
    for block in [1usize, 3, 8, 16, 32, 64, 65] {
        let scratch = Scratch::new(block * 3 * 5).unwrap();
        let shape = Strided {
            offset: 0,
            block,
            stride: 3 * block as isize,
            count: 5,
        };
        let bytes: Vec<u8> = (0..block * 5).map(|i| i as u8).collect();
        scratch.mem().scatter(shape, Packed::of(&bytes));
        let mut back = vec![0; block * 5];
        scratch.mem().gather(shape, Packed::over(&mut back));
        assert_eq!(back, bytes);
    }
}

/// Memory of `len` bytes that count up.
fn counting(len: usize) -> Scratch {
    let scratch = Scratch::new(len).unwrap();
    scratch
        .mem()
        .write(0, &(0..len).map(|i| i as u8).collect::<Vec<_>>());
    scratch
}

fn all(scratch: &Scratch) -> Vec<u8> {
    let mut bytes = vec![0; scratch.len()];
    scratch.mem().read(0, &mut bytes);
    bytes
}

#[test]
fn copies_of_any_length_and_overlap_move_exactly_their_bytes() {
    for len in 0..140 {
        for shift in [-70isize, -9, -1, 0, 1, 5, 33, 70] {
            let scratch = counting(300);
            let mut expected = all(&scratch);
            expected.copy_within(75..75 + len, (75 + shift) as usize);
            scratch.mem().copy_from(75 + shift, scratch.mem(), 75, len);
            assert_eq!(all(&scratch), expected, "{len} bytes by {shift}");
        }
    }
}

#[test]
fn blocks_at_irregular_offsets_go_and_come_back() {
    for block in (1..=70).chain([96, 128, 130]) {
        let source = counting(1000);
        let offsets = [400i64, -100, 150, 700 - 130];
        let mut packed = vec![0; 4 * block];
        source
            .mem()
            .offset(100)
            .gather_at(20, &offsets, block, Packed::over(&mut packed));
        let bytes = all(&source);
        for (piece, at) in packed.chunks(block).zip(offsets) {
            assert_eq!(piece, &bytes[(120 + at) as usize..][..block]);
        }
        let target = Scratch::new(1000).unwrap();
        target
            .mem()
            .offset(100)
            .scatter_at(20, &offsets, block, Packed::of(&packed));
        let mut expected = vec![0; 1000];
        offsets
            .iter()
            .zip(packed.chunks(block))
            .for_each(|(at, piece)| {
                expected[(120 + at) as usize..][..block].copy_from_slice(piece);
            });
        assert_eq!(all(&target), expected);
    }
}

#[test]
fn spaced_blocks_interleave_with_others() {
    let source = counting(64);
    let mut packed = vec![0; 4 * 12];
    let field = |offset, block| Strided {
        offset,
        block,
        stride: 16,
        count: 4,
    };
    source
        .mem()
        .gather_spaced(field(0, 8), Packed::over(&mut packed), 12);
    source
        .mem()
        .gather_spaced(field(10, 4), Packed::over(&mut packed[8..]), 12);
    let expected: Vec<u8> = (0..4)
        .flat_map(|i| (0..8).chain(10..14).map(move |k| 16 * i + k))
        .collect();
    assert_eq!(packed, expected);
}

#[test]
#[should_panic(expected = "do not fit")]
fn spaced_blocks_beyond_the_slice_are_refused() {
    let source = counting(64);
    source.mem().gather_spaced(
        Strided {
            offset: 0,
            block: 8,
            stride: 16,
            count: 4,
        },
        Packed::over(&mut [0; 43]),
        12,
    );
}
