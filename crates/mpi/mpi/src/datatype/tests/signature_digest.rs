//! Digests tell types apart as far as the standard wants them apart, and never by how a type was
//! made.

use crate::datatype::basic_type::BasicType;
use crate::datatype::{Constructor, ContentsForm, Datatype, LeafType, codes};
use garonne_engine::api::TypeDigest;
use std::collections::HashMap;

fn named(code: u16) -> Datatype {
    Datatype::predefined(code).unwrap()
}

fn make(constructor: Constructor) -> Datatype {
    Datatype::construct(constructor, ContentsForm::Int).unwrap()
}

fn contiguous(count: i64, old: &Datatype) -> Datatype {
    make(Constructor::Contiguous {
        count,
        old: old.clone(),
    })
}

/// A structure of these, with room between them.
fn structure(parts: &[(i64, &Datatype)]) -> Datatype {
    make(Constructor::Struct {
        blocklengths: parts.iter().map(|(count, _)| *count).collect(),
        displacements: (0..).map(|at| at * 64).take(parts.len()).collect(),
        types: parts.iter().map(|(_, old)| (*old).clone()).collect(),
    })
}

#[test]
fn no_two_kinds_of_elements_have_one_digest() {
    let mut seen: HashMap<u16, BasicType> = HashMap::new();
    for datatype in (0..u16::MAX).filter_map(Datatype::predefined) {
        let (Some(LeafType::Basic(basic)), mark) = (datatype.leaf(), datatype.mark(3)) else {
            continue;
        };
        assert_eq!(mark.0 & TypeDigest::SEQUENCE, 0);
        // C's long is an integer of 8 bytes here.
        let basic = match basic {
            BasicType::Long => BasicType::I64,
            BasicType::ULong => BasicType::U64,
            basic => basic,
        };
        assert_eq!(*seen.entry(mark.0).or_insert(basic), basic, "{mark:?}");
    }
    assert!(seen.len() > 20);
}

#[test]
fn how_a_type_was_made_does_not_matter() {
    let (int, double) = (named(codes::INT32_T), named(codes::DOUBLE));
    assert_eq!(contiguous(7, &double).mark(2), double.mark(14));
    let pair = structure(&[(1, &int), (1, &double)]);
    let two = structure(&[(1, &int), (1, &double), (1, &int), (1, &double)]);
    assert_eq!(pair.mark(6), two.mark(3));
    assert_ne!(pair.mark(6), pair.mark(5));
    // The standard says of what the pair types consist.
    assert_eq!(
        named(codes::DOUBLE_INT).mark(3),
        structure(&[(1, &double), (1, &int)]).mark(3)
    );
    assert_eq!(named(codes::TWOINT).mark(3), int.mark(6));
    let turned = structure(&[(1, &double), (1, &int)]);
    assert!(pair.mark(1).contradicts(turned.mark(1), true));
    assert!(!pair.mark(1).contradicts(turned.mark(1), false));
    assert!(double.mark(1).contradicts(int.mark(5), false));
}

#[test]
fn bytes_and_nothing_agree_with_all() {
    let (byte, double) = (named(codes::BYTE), named(codes::DOUBLE));
    assert_eq!(byte.mark(8), TypeDigest::NONE);
    assert_eq!(double.mark(0), TypeDigest::NONE);
    assert_eq!(
        structure(&[(1, &double), (3, &byte)]).mark(1),
        TypeDigest::NONE
    );
    assert!(!TypeDigest::NONE.contradicts(double.mark(1), true));
}
