//! Known answers: examples of the standard, limits, decoding.

use super::super::*;
use proptest::prelude::*;

fn named(code: u16) -> Datatype {
    Datatype::predefined(code).unwrap()
}

#[test]
fn a_vector_of_a_thousand_million_blocks_costs_nothing() {
    let vector = named(codes::DOUBLE).vector(1_000_000_000, 1, 2).unwrap();
    assert_eq!(
        (vector.size(), vector.extent()),
        (8_000_000_000, 15_999_999_992)
    );
    let both = Datatype::structure(&[1, 1], &[0, 8], &[vector.clone(), vector]).unwrap();
    assert_eq!(both.elements(), 2_000_000_000);
    let data = both.data(UserMem::null(), 3).unwrap();
    let mut blocks = Vec::new();
    assert_eq!(
        data.layout
            .unwrap()
            .blocks(8_000_000_000 - 12, 1 << 40, 3, &mut blocks),
        20
    );
    let at = 15_999_999_984;
    assert_eq!(blocks, [(at - 16 + 4, 4), (at, 8), (8, 8)]);
}

#[test]
fn sizes_and_extents_of_pairs_are_those_of_c_structures() {
    let expected = [
        (codes::FLOAT_INT, 8, 8),
        (codes::DOUBLE_INT, 12, 16),
        (codes::LONG_INT, 12, 16),
        (codes::TWOINT, 8, 8),
        (codes::SHORT_INT, 6, 8),
        (codes::LONG_DOUBLE_INT, 20, 32),
        (codes::TWODOUBLE_PRECISION, 16, 16),
    ];
    for (code, size, extent) in expected {
        assert_eq!(
            (named(code).size(), named(code).extent()),
            (size, extent),
            "{}",
            named(code)
        );
    }
}

#[test]
fn every_code_of_the_abi_has_its_size_in_its_bits_where_it_is_fixed() {
    let mut found = 0;
    for code in 0x200..0x300 {
        let Some(datatype) = Datatype::predefined(code) else {
            continue;
        };
        found += 1;
        assert_eq!(datatype.code(), Some(code));
        assert!(datatype.name().starts_with("MPI"), "{datatype}");
        assert!(datatype.is_committed() && datatype.is_predefined());
        if code & 0x40 != 0 {
            assert_eq!(datatype.size(), 1 << ((code >> 3) & 7), "{datatype}");
        }
    }
    assert_eq!(found, 71);
    assert!(
        Datatype::predefined(0x200).is_none(),
        "MPI_DATATYPE_NULL is no datatype"
    );
    assert!(Datatype::predefined(0x1ff).is_none() && Datatype::predefined(0x300).is_none());
}

#[test]
fn set_bounds_win_over_data_also_in_enclosing_types() {
    // MPI 5.0, section 5.1.7: bounds that were set stay in effect in types built from the resized
    // one.
    let inner = named(codes::INT).resized(-3, 9).unwrap();
    let twice = inner.contiguous(2).unwrap();
    assert_eq!(
        (twice.lb(), twice.ub(), twice.true_lb(), twice.true_extent()),
        (-3, 15, 0, 13)
    );
    let wide = Datatype::structure(&[1, 1], &[0, 100], &[inner, named(codes::INT)]).unwrap();
    assert_eq!((wide.lb(), wide.ub()), (-3, 6));
}

#[test]
fn equal_neighbours_become_one_run() {
    let int = named(codes::INT);
    let contiguous = [
        int.vector(5, 3, 3).unwrap(),
        int.indexed(&[2, 1, 4], &[0, 2, 3]).unwrap(),
        Datatype::structure(&[1, 2], &[0, 4], &[int.clone(), int.clone()]).unwrap(),
    ];
    for datatype in contiguous {
        assert!(datatype.is_contiguous(), "{datatype:?}");
        assert!(datatype.data(UserMem::null(), 7).unwrap().layout.is_none());
    }
}

#[test]
fn what_does_not_fit_64_bits_is_refused() {
    let double = named(codes::DOUBLE);
    assert_eq!(double.contiguous(i64::MAX).unwrap_err().class, Class::Arg);
    assert_eq!(
        double.vector(2, 1, i64::MAX / 4).unwrap_err().class,
        Class::Arg
    );
    assert_eq!(double.resized(i64::MAX, 1).unwrap_err().class, Class::Arg);
    assert_eq!(double.contiguous(-1).unwrap_err().class, Class::Count);
    assert_eq!(
        double
            .data(UserMem::null(), u64::MAX / 4)
            .unwrap_err()
            .class,
        Class::Count
    );
    let gaps = double.vector(2, 1, 2).unwrap();
    assert_eq!(
        gaps.data(UserMem::null(), u64::MAX / 4).unwrap_err().class,
        Class::Count
    );
}

#[test]
fn long_chains_of_constructors_neither_overflow_the_stack_nor_nest_without_limit() {
    let mut chain = named(codes::INT).vector(2, 1, 2).unwrap();
    for _ in 0..200_000 {
        chain = chain.dup().unwrap();
    }
    assert_eq!(
        chain.signature(4),
        [(LeafType::Basic(basic_type::BasicType::I32), 2)]
    );
    drop(chain);
}

#[test]
fn constructors_nest_as_deep_as_the_limit_says() {
    type Wrap = fn(&Datatype) -> Result<Datatype>;
    let wraps: [Wrap; 2] = [
        |inner| inner.vector(1, 1, 1),
        |inner| Datatype::structure(&[1, 1], &[0, 8], &[named(codes::CHAR), inner.clone()]),
    ];
    for wrap in wraps {
        let mut nested = named(codes::INT);
        for _ in 0..NESTING_MAX {
            nested = wrap(&nested).unwrap();
        }
        // Their elements can be told, by a walk as deep as they are.
        assert!(!nested.signature(1).is_empty());
        for wrap in wraps {
            let error = wrap(&nested).unwrap_err();
            assert_eq!(error.class, Class::Type);
            assert!(
                error.detail.contains(&NESTING_MAX.to_string()),
                "{}",
                error.detail
            );
        }
        nested.dup().unwrap();
        nested.contiguous(1).unwrap();
    }
}

#[test]
fn contents_return_the_arguments_in_the_form_of_the_call() {
    let int = named(codes::INT);
    let vector = int.hvector(3, 2, 40).unwrap();
    let contents = vector.contents();
    assert_eq!(
        (contents.integers, contents.addresses),
        (vec![3, 2], vec![40])
    );
    assert_eq!(contents.types, std::slice::from_ref(&int));
    assert_eq!(vector.envelope().combiner as i32, 105);
    let constructor = Constructor::Hvector {
        count: 3,
        blocklength: 2,
        stride: 40,
        old: int.clone(),
    };
    let large = Datatype::construct(constructor, ContentsForm::Large).unwrap();
    assert_eq!(large.contents().large_counts, [3, 2, 40]);
    let envelope = large.envelope();
    assert_eq!(
        (
            envelope.integers,
            envelope.addresses,
            envelope.large_counts,
            envelope.types
        ),
        (0, 0, 3, 1)
    );
    let indexed = int.indexed(&[1, 2], &[5, 9]).unwrap();
    assert_eq!(indexed.contents().integers, [2, 1, 2, 5, 9]);
}

#[test]
fn parametric_types_are_found_by_their_properties() {
    let real = Datatype::f90_real(10, -32766).unwrap();
    assert_eq!((real.size(), real.envelope().integers), (8, 2));
    assert_eq!(Datatype::f90_integer(9).unwrap().size(), 4);
    assert_eq!(Datatype::f90_complex(15, 307).unwrap().size(), 16);
    assert_eq!(Datatype::f90_real(40, 10).unwrap_err().class, Class::Arg);
    assert_eq!(
        Datatype::match_size(TypeClass::Real, 8).unwrap(),
        named(codes::REAL8)
    );
    assert_eq!(
        Datatype::value_index(&named(codes::FLOAT), &named(codes::INT)),
        Datatype::predefined(codes::FLOAT_INT)
    );
    assert!(Datatype::value_index(&named(codes::DOUBLE), &named(codes::LONG)).is_none());
}

#[test]
fn names_can_be_changed_and_default_to_the_standards() {
    let vector = named(codes::INT).vector(2, 1, 2).unwrap();
    assert_eq!(&*vector.name(), "");
    vector.set_name("column");
    assert_eq!(
        (&*vector.name(), &*named(codes::TWOINT).name()),
        ("column", "MPI_2INT")
    );
}

#[test]
fn illegal_arrays_are_refused() {
    let int = named(codes::INT);
    let subarray = |size, subsize, start| {
        let constructor = Constructor::Subarray {
            sizes: vec![size],
            subsizes: vec![subsize],
            starts: vec![start],
            order: ArrayOrder::C,
            old: int.clone(),
        };
        Datatype::construct(constructor, ContentsForm::Int).map_err(|error| error.class)
    };
    assert!(subarray(4, 2, 2).is_ok());
    for (size, subsize, start) in [(4, 2, 3), (4, 0, 0), (4, 5, 0), (0, 0, 0), (4, 1, -1)] {
        assert_eq!(subarray(size, subsize, start), Err(Class::Arg));
    }
}

/// Packs one element in `external32`.
fn external(datatype: &Datatype, native: &[u8]) -> Result<Vec<u8>> {
    let memory = garonne_sync::user::Scratch::new(64).unwrap();
    let packed = garonne_sync::user::Scratch::new(64).unwrap();
    memory.mem().write(0, native);
    let mut buffer = PackBuffer {
        mem: packed.mem(),
        size: 64,
        position: 0,
    };
    buffer.pack_external(PackElements {
        mem: memory.mem(),
        count: 1,
        datatype,
    })?;
    let mut out = vec![0; buffer.position as usize];
    packed.mem().read(0, &mut out);
    Ok(out)
}

#[test]
fn the_canonical_form_is_big_endian_and_has_the_standards_sizes() {
    let of = |code, native: &[u8]| external(&named(code), native);
    assert_eq!(of(codes::INT, &1i32.to_ne_bytes()).unwrap(), [0, 0, 0, 1]);
    assert_eq!(
        of(codes::DOUBLE, &1f64.to_ne_bytes()).unwrap(),
        [0x3f, 0xf0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        of(codes::LONG, &(-2i64).to_ne_bytes()).unwrap(),
        [0xff, 0xff, 0xff, 0xfe]
    );
    assert_eq!(
        of(codes::LONG, &(1i64 << 40).to_ne_bytes())
            .unwrap_err()
            .class,
        Class::Conversion
    );
    assert_eq!(
        of(codes::WCHAR, &0x20acu32.to_ne_bytes()).unwrap(),
        [0x20, 0xac]
    );
    assert_eq!(
        of(codes::WCHAR, &0x1f600u32.to_ne_bytes())
            .unwrap_err()
            .class,
        Class::Conversion
    );
    assert_eq!(
        of(codes::LOGICAL, &7i32.to_ne_bytes()).unwrap(),
        [0, 0, 0, 1]
    );
    let double_int = [&1f64.to_ne_bytes()[..], &3i32.to_ne_bytes()[..]].concat();
    assert_eq!(
        of(codes::DOUBLE_INT, &double_int).unwrap(),
        [0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    );
}

proptest! {
    #[test]
    fn what_narrows_in_the_canonical_form_is_converted_exactly_or_refused(wide: i64, shift in 0u32..64) {
        let (signed, unsigned) = (wide >> shift, wide as u64 >> shift);
        let of = |code, native: &[u8]| external(&named(code), native).map_err(|error| error.class);
        let fits = |bytes: Option<Vec<u8>>| bytes.ok_or(Class::Conversion);
        prop_assert_eq!(
            of(codes::LONG, &signed.to_ne_bytes()),
            fits(i32::try_from(signed).ok().map(|value| value.to_be_bytes().to_vec()))
        );
        prop_assert_eq!(
            of(codes::UNSIGNED_LONG, &unsigned.to_ne_bytes()),
            fits(u32::try_from(unsigned).ok().map(|value| value.to_be_bytes().to_vec()))
        );
        let letter = unsigned as u32;
        prop_assert_eq!(
            of(codes::WCHAR, &letter.to_ne_bytes()),
            fits(u16::try_from(letter).ok().map(|value| value.to_be_bytes().to_vec()))
        );
        prop_assert_eq!(of(codes::INT64_T, &wide.to_ne_bytes()), Ok(wide.to_be_bytes().to_vec()));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn extended_precision_becomes_quadruple_precision() {
    // -1.5 in x87 form: sign and exponent 0xbfff, significand 0xc000...
    let native = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xbf, 0, 0, 0, 0, 0, 0];
    let quad = external(&named(codes::LONG_DOUBLE), &native).unwrap();
    assert_eq!(quad[..3], [0xbf, 0xff, 0x80]);
    assert_eq!(quad[3..], [0; 13]);
}

#[test]
fn packing_stops_at_the_end_of_the_buffer_without_moving_the_position() {
    let memory = garonne_sync::user::Scratch::new(64).unwrap();
    let int = named(codes::INT);
    let two = PackElements {
        mem: memory.mem(),
        count: 2,
        datatype: &int,
    };
    let mut buffer = PackBuffer {
        mem: memory.mem().offset(32),
        size: 12,
        position: 0,
    };
    buffer.pack(two).unwrap();
    assert_eq!(buffer.position, 8);
    assert_eq!(buffer.pack(two).unwrap_err().class, Class::Truncate);
    assert_eq!(buffer.position, 8);
    assert_eq!(
        (int.pack_size(3).unwrap(), int.pack_size(u64::MAX).is_err()),
        (12, true)
    );
}

#[test]
fn only_structures_are_padded_and_padding_of_parts_counts() {
    let (char, double) = (named(codes::CHAR), named(codes::DOUBLE));
    let pair = |at, first: &Datatype, second: &Datatype| {
        Datatype::structure(&[1, 1], &[0, at], &[first.clone(), second.clone()]).unwrap()
    };
    assert_eq!(
        (
            pair(8, &double, &char).extent(),
            pair(1, &char, &double).extent()
        ),
        (16, 16)
    );
    let padded = pair(8, &double, &char);
    assert_eq!(
        (
            padded.hvector(2, 1, 12).unwrap().extent(),
            pair(3, &char, &padded).extent()
        ),
        (28, 24)
    );
    assert_eq!(
        named(codes::INT)
            .hindexed(&[1, 1], &[0, 3])
            .unwrap()
            .extent(),
        7
    );
    assert_eq!(named(codes::LONG_INT).extent(), 16);
}

#[test]
fn markers_win_over_data_and_stand_beside_others() {
    let form = ContentsForm::Int;
    let ints = Datatype::structure(&[2], &[8], &[named(codes::INT)]).unwrap();
    let marked = ints.with_markers(Some(-4), Some(40), form).unwrap();
    assert_eq!((marked.lb(), marked.ub(), marked.size()), (-4, 40, 8));
    assert_eq!((marked.true_lb(), marked.true_extent()), (8, 8));
    let only_upper = ints.with_markers(None, Some(12), form).unwrap();
    assert_eq!((only_upper.lb(), only_upper.ub()), (8, 12));
    // A second marker counts where it lies further out than that of the part.
    let outer = Datatype::structure(&[1], &[100], &[marked]).unwrap();
    let inside = outer.with_markers(Some(120), Some(130), form).unwrap();
    assert_eq!((inside.lb(), inside.ub()), (96, 140));
    let outside = outer.with_markers(Some(0), Some(200), form).unwrap();
    assert_eq!((outside.lb(), outside.ub()), (0, 200));
    assert!(ints.with_markers(Some(i64::MIN), Some(1), form).is_err());
}
