//! Reductions against scalars computed one by one.

use super::*;
use crate::datatype::codes;
use garonne_sync::user::Scratch;
use proptest::prelude::*;

fn named(code: u16) -> Datatype {
    Datatype::predefined(code).unwrap()
}

fn apply(op: PredefinedOp, code: u16, src: &[u8], dst: &[u8]) -> Vec<u8> {
    let mut out = dst.to_vec();
    Op::Predefined(op)
        .apply_bytes(src, &mut out, &named(code))
        .unwrap();
    out
}

macro_rules! integer_tests {
    ($($name:ident, $t:ty, $code:ident;)*) => {proptest! {$(
        #[test]
        fn $name(pairs in prop::collection::vec((any::<$t>(), prop_oneof![any::<$t>(), Just(0)]), 0..50)) {
            use PredefinedOp::*;
            let bytes = |pick: fn(&($t, $t)) -> $t| -> Vec<u8> {
                pairs.iter().flat_map(|pair| pick(pair).to_ne_bytes()).collect()
            };
            let (src, dst) = (bytes(|pair| pair.0), bytes(|pair| pair.1));
            let expect: [(PredefinedOp, fn($t, $t) -> $t); 10] = [
                (Sum, |a, b| a.wrapping_add(b)),
                (Prod, |a, b| a.wrapping_mul(b)),
                (Max, |a, b| a.max(b)),
                (Min, |a, b| a.min(b)),
                (Band, |a, b| a & b),
                (Bor, |a, b| a | b),
                (Bxor, |a, b| a ^ b),
                (Land, |a, b| (a != 0 && b != 0) as $t),
                (Lor, |a, b| (a != 0 || b != 0) as $t),
                (Lxor, |a, b| ((a != 0) != (b != 0)) as $t),
            ];
            for (op, f) in expect {
                let naive: Vec<u8> = pairs.iter().flat_map(|pair| f(pair.0, pair.1).to_ne_bytes()).collect();
                prop_assert_eq!(apply(op, codes::$code, &src, &dst), naive, "{:?}", op);
            }
        }
    )*}};
}

integer_tests! {
    chars_reduce_as_scalars, std::ffi::c_char, CHAR;
    signed_chars_reduce_as_scalars, i8, SIGNED_CHAR;
    shorts_reduce_as_scalars, i16, SHORT;
    ints_reduce_as_scalars, i32, INT;
    longs_reduce_as_scalars, i64, LONG;
    addresses_reduce_as_scalars, i64, AINT;
    unsigned_chars_reduce_as_scalars, u8, UNSIGNED_CHAR;
    sixteen_bit_unsigned_reduce_as_scalars, u16, UINT16_T;
    unsigned_reduce_as_scalars, u32, UNSIGNED;
    unsigned_long_longs_reduce_as_scalars, u64, UNSIGNED_LONG_LONG;
    sixteen_byte_integers_reduce_as_scalars, i128, INTEGER16;
}

macro_rules! real_tests {
    ($($name:ident, $t:ty, $code:ident;)*) => {proptest! {$(
        #[test]
        fn $name(pairs in prop::collection::vec((any::<$t>(), any::<$t>()), 0..50)) {
            use PredefinedOp::*;
            let expect: [(PredefinedOp, fn($t, $t) -> $t); 4] = [
                (Sum, |a, b| a + b),
                (Prod, |a, b| a * b),
                (Max, |a, b| if a > b { a } else { b }),
                (Min, |a, b| if a < b { a } else { b }),
            ];
            let src: Vec<u8> = pairs.iter().flat_map(|pair| pair.0.to_ne_bytes()).collect();
            let dst: Vec<u8> = pairs.iter().flat_map(|pair| pair.1.to_ne_bytes()).collect();
            for (op, f) in expect {
                let naive: Vec<u8> = pairs.iter().flat_map(|pair| f(pair.0, pair.1).to_ne_bytes()).collect();
                prop_assert_eq!(apply(op, codes::$code, &src, &dst), naive, "{:?}", op);
            }
        }
    )*}};
}

real_tests! {
    floats_reduce_as_scalars, f32, FLOAT;
    doubles_reduce_as_scalars, f64, DOUBLE;
    fortran_reals_reduce_as_scalars, f32, REAL;
}

/// A double as x87 extended precision in 16 bytes, padding set.
fn extended(value: f64) -> Vec<u8> {
    let bits = value.to_bits();
    let (sign, exponent, fraction) = (bits >> 63, (bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let (exponent, significand) = match exponent {
        0 => (0, 0),
        _ => (exponent + 16383 - 1023, 1 << 63 | fraction << 11),
    };
    let head = (sign << 15 | exponent) as u16;
    [
        &significand.to_le_bytes()[..],
        &head.to_le_bytes()[..],
        &[0xaa; 6],
    ]
    .concat()
}

/// A double as quadruple precision.
fn quad(value: f64) -> Vec<u8> {
    let bits = value.to_bits();
    let (sign, exponent, fraction) = (
        bits >> 63,
        (bits >> 52) & 0x7ff,
        u128::from(bits & ((1 << 52) - 1)),
    );
    let exponent = if exponent == 0 {
        0
    } else {
        exponent + 16383 - 1023
    };
    (u128::from(sign << 15 | exponent) << 112 | fraction << 60)
        .to_ne_bytes()
        .to_vec()
}

/// One of the two pairs of a case: value and index.
type Pick = fn(&((i8, i32), (i8, i32))) -> (i8, i32);

proptest! {
    /// Sums and products of small integers are exact in double precision and must be so in any
    /// wider one.
    #[test]
    fn wide_reals_agree_with_doubles_where_both_are_exact(a in -10_000i32..10_000, b in -10_000i32..10_000) {
        use PredefinedOp::*;
        let (a, b) = (f64::from(a), f64::from(b));
        for (op, exact) in [(Sum, a + b), (Prod, a * b + 0.0), (Max, a.max(b)), (Min, a.min(b))] {
            let exact = if exact == 0.0 { 0.0 } else { exact };
            let strip = |mut bytes: Vec<u8>| { if exact == 0.0 { bytes[9] &= 0x7f; bytes[15] &= 0x7f; } bytes };
            prop_assert_eq!(strip(apply(op, codes::REAL16, &quad(a), &quad(b))), quad(exact));
            if cfg!(target_arch = "x86_64") {
                let reduced = strip(apply(op, codes::LONG_DOUBLE, &extended(a), &extended(b)));
                prop_assert_eq!(&reduced[..10], &extended(exact)[..10]);
            }
        }
    }

    #[test]
    fn complex_products_follow_the_rule(a in -99i32..99, b in -99i32..99, c in -99i32..99, d in -99i32..99) {
        let bytes = |re: i32, im: i32| [f64::from(re).to_ne_bytes(), f64::from(im).to_ne_bytes()].concat();
        let product = apply(PredefinedOp::Prod, codes::C_DOUBLE_COMPLEX, &bytes(a, b), &bytes(c, d));
        let (re, im) = (a * c - b * d, a * d + b * c);
        let read = |at: usize| f64::from_ne_bytes(product[at..at + 8].try_into().unwrap());
        prop_assert_eq!((read(0), read(8)), (f64::from(re), f64::from(im)));
        let sum = apply(PredefinedOp::Sum, codes::DOUBLE_COMPLEX, &bytes(a, b), &bytes(c, d));
        prop_assert_eq!(sum, bytes(a + c, b + d));
    }

    #[test]
    fn locations_of_extremes_prefer_the_smaller_index(
        pairs in prop::collection::vec(((-3i8..3, 0i32..9), (-3i8..3, 0i32..9)), 1..20),
    ) {
        // Double and int with padding between the elements, which must stay as it was.
        let bytes = |fill: u8, pick: Pick| -> Vec<u8> {
            pairs.iter().flat_map(|pair| {
                let (value, index) = pick(pair);
                [&f64::from(value).to_ne_bytes()[..], &index.to_ne_bytes(), &[fill; 4]].concat()
            }).collect()
        };
        let (src, dst) = (bytes(1, |pair| pair.0), bytes(2, |pair| pair.1));
        for (op, sign) in [(PredefinedOp::Maxloc, 1i8), (PredefinedOp::Minloc, -1)] {
            let out = apply(op, codes::DOUBLE_INT, &src, &dst);
            for (pair, got) in pairs.iter().zip(out.chunks(16)) {
                let best = std::cmp::max_by_key(pair.0, pair.1, |&(value, index)| (sign * value, -index));
                let expected = [&f64::from(best.0).to_ne_bytes()[..], &best.1.to_ne_bytes(), &[2; 4]].concat();
                prop_assert_eq!(got, expected);
            }
        }
    }
}

#[test]
fn truth_values_are_normalised() {
    use PredefinedOp::*;
    let bytes = |values: [i32; 4]| values.map(i32::to_ne_bytes).concat();
    let (a, b) = ([0, 0, 5, 7], [0, 3, 0, -1]);
    for (op, expected) in [
        (Land, [0, 0, 0, 1]),
        (Lor, [0, 1, 1, 1]),
        (Lxor, [0, 1, 1, 0]),
    ] {
        assert_eq!(
            apply(op, codes::LOGICAL, &bytes(a), &bytes(b)),
            bytes(expected)
        );
        assert_eq!(
            apply(op, codes::C_BOOL, &[0, 0, 5, 7], &[0, 3, 0, 9]),
            expected.map(|v| v as u8)
        );
    }
}

#[test]
fn half_precision_adds_and_multiplies() {
    // 1.5 and 2.0 in half precision; 3.5 and 3.0.
    assert_eq!(
        apply(PredefinedOp::Sum, codes::REAL2, &[0, 0x3e], &[0, 0x40]),
        [0, 0x43]
    );
    assert_eq!(
        apply(PredefinedOp::Prod, codes::REAL2, &[0, 0x3e], &[0, 0x40]),
        [0, 0x42]
    );
}

#[test]
fn every_legal_combination_of_predefined_type_and_operation_computes_something() {
    for code in 0x200..0x300 {
        let Some(datatype) = Datatype::predefined(code) else {
            continue;
        };
        for op in PredefinedOp::ALL {
            let len = datatype.leaf().unwrap().extent() as usize;
            // Patterns that are normal numbers of every kind: some result differs from the second
            // operand, except where it is the neutral case, which swapping the operands excludes.
            let (ones, other) = (vec![0x81; len], vec![0x82; len]);
            let run = |src: &[u8], dst: &[u8]| {
                let mut out = dst.to_vec();
                Op::Predefined(op)
                    .apply_bytes(src, &mut out, &datatype)
                    .map(|()| out)
            };
            if !op.is_legal_on(datatype.leaf().unwrap()) {
                assert_eq!(
                    run(&ones, &other).unwrap_err().class,
                    Class::Op,
                    "{op:?} on {datatype}"
                );
            } else if op != PredefinedOp::NoOp {
                let changed =
                    run(&ones, &other).unwrap() != other || run(&other, &ones).unwrap() != ones;
                let idempotent = matches!(
                    op,
                    PredefinedOp::Lxor | PredefinedOp::Land | PredefinedOp::Lor
                );
                assert!(changed || idempotent, "{op:?} on {datatype}");
            }
        }
    }
}

#[test]
fn derived_types_of_one_kind_are_reduced_where_their_data_is() {
    let column = named(codes::INT).vector(3, 1, 2).unwrap();
    let (src, dst) = (Scratch::new(24).unwrap(), Scratch::new(24).unwrap());
    let fill = |scratch: &Scratch, values: [i32; 6]| {
        scratch
            .mem()
            .write(0, &values.map(i32::to_ne_bytes).concat())
    };
    fill(&src, [1, 2, 3, 4, 5, 6]);
    fill(&dst, [10; 6]);
    Op::Predefined(PredefinedOp::Sum)
        .apply(src.mem(), dst.mem(), 1, &column)
        .unwrap();
    let mut out = [0; 24];
    dst.mem().read(0, &mut out);
    assert_eq!(
        out.to_vec(),
        [11, 10, 13, 10, 15, 10].map(i32::to_ne_bytes).concat()
    );
    let mixed =
        Datatype::structure(&[1, 1], &[0, 8], &[named(codes::INT), named(codes::DOUBLE)]).unwrap();
    let refused = Op::Predefined(PredefinedOp::Sum)
        .apply(src.mem(), dst.mem(), 1, &mixed)
        .unwrap_err();
    assert_eq!(refused.class, Class::Op);
}

#[test]
fn operations_of_the_program_are_called_with_what_was_given() {
    struct Second;
    impl UserOp for Second {
        fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, datatype: &Datatype) {
            inoutvec.copy_from(0, invec, 0, (count * datatype.size()) as usize);
        }
    }
    let op = Op::user(Arc::new(Second), Commutativity::No);
    assert!(!op.is_commutative() && op.is_user());
    let (src, dst) = (Scratch::new(8).unwrap(), Scratch::new(8).unwrap());
    src.mem().write(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    op.apply(src.mem(), dst.mem(), 4, &named(codes::SHORT))
        .unwrap();
    let mut out = [0; 8];
    dst.mem().read(0, &mut out);
    assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8]);
}
