//! Atomic operations on elements of user memory, for one-sided communication.
//!
//! All processes and threads that update an element use the machine's atomic instructions, so
//! updates by the owner's engine and by peers that map the memory are atomic towards each other.
//! Elements are naturally aligned. Values travel as the low bytes of a `u64`.

use super::UserMem;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Type of an element that an atomic operation updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicType {
    /// Signed, 8 bits.
    I8 = 0,
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 16 bits.
    I16 = 2,
    /// Unsigned, 16 bits.
    U16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Unsigned, 32 bits.
    U32 = 5,
    /// Signed, 64 bits.
    I64 = 6,
    /// Unsigned, 64 bits.
    U64 = 7,
    /// Floating point, 32 bits.
    F32 = 8,
    /// Floating point, 64 bits.
    F64 = 9,
}

/// Operation that combines an element with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicOp {
    /// Leaves the element: an atomic read.
    NoOp = 0,
    /// Stores the operand.
    Replace = 1,
    /// Adds the operand; integers wrap.
    Sum = 2,
    /// Multiplies by the operand; integers wrap.
    Prod = 3,
    /// Stores the operand if it is less.
    Min = 4,
    /// Stores the operand if it is greater.
    Max = 5,
    /// Bitwise and; integers only.
    And = 6,
    /// Bitwise or; integers only.
    Or = 7,
    /// Bitwise exclusive or; integers only.
    Xor = 8,
}

impl AtomicType {
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 10] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// Returns the type with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Bytes of an element; also its alignment.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl AtomicOp {
    /// Every operation, in the order of the codes.
    pub const ALL: [Self; 9] = [
        Self::NoOp,
        Self::Replace,
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// Returns the operation with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns whether the operation is defined for elements of type `kind`.
    pub fn is_defined(self, kind: AtomicType) -> bool {
        !kind.is_float() || !matches!(self, Self::And | Self::Or | Self::Xor)
    }

    /// Returns what an element of type `kind` with the value `old` becomes. Bitwise operations on
    /// floating-point elements leave them.
    pub fn combine(self, kind: AtomicType, old: u64, operand: u64) -> u64 {
        macro_rules! integer {
            ($t:ty) => {{
                let (a, b) = (old as $t, operand as $t);
                (match self {
                    Self::NoOp => a,
                    Self::Replace => b,
                    Self::Sum => a.wrapping_add(b),
                    Self::Prod => a.wrapping_mul(b),
                    Self::Min => a.min(b),
                    Self::Max => a.max(b),
                    Self::And => a & b,
                    Self::Or => a | b,
                    Self::Xor => a ^ b,
                }) as u64
            }};
        }
        macro_rules! float {
            ($t:ty, $bits:ty) => {{
                let (a, b) = (
                    <$t>::from_bits(old as $bits),
                    <$t>::from_bits(operand as $bits),
                );
                // A NaN's bits survive where nothing is computed.
                match self {
                    Self::NoOp | Self::And | Self::Or | Self::Xor => old,
                    Self::Replace => operand,
                    Self::Sum => u64::from((a + b).to_bits()),
                    Self::Prod => u64::from((a * b).to_bits()),
                    Self::Min => u64::from(a.min(b).to_bits()),
                    Self::Max => u64::from(a.max(b).to_bits()),
                }
            }};
        }
        match kind {
            AtomicType::I8 => integer!(i8),
            AtomicType::U8 => integer!(u8),
            AtomicType::I16 => integer!(i16),
            AtomicType::U16 => integer!(u16),
            AtomicType::I32 => integer!(i32),
            AtomicType::U32 => integer!(u32),
            AtomicType::I64 => integer!(i64),
            AtomicType::U64 => integer!(u64),
            AtomicType::F32 => float!(f32, u32),
            AtomicType::F64 => float!(f64, u64),
        }
    }
}

/// Calls `$body` with `$word` being the atomic word of `$kind`'s size at `$ptr`, and `$t` its
/// integer type.
macro_rules! with_word {
    ($kind:expr, $ptr:expr, |$word:ident: $t:ident| $body:expr) => {{
        macro_rules! sized {
            ($atomic:ty, $int:ty) => {{
                type $t = $int;
                // SAFETY: `UserMem::new` promised valid memory, the caller checked the alignment,
                // and elements of atomic operations are accessed by atomic instructions only.
                let $word = unsafe { <$atomic>::from_ptr($ptr.cast()) };
                $body
            }};
        }
        match $kind.size() {
            1 => sized!(AtomicU8, u8),
            2 => sized!(AtomicU16, u16),
            4 => sized!(AtomicU32, u32),
            _ => sized!(AtomicU64, u64),
        }
    }};
}

impl UserMem {
    /// Returns whether the byte at `offset` may begin an element of type `kind`.
    pub fn is_aligned(self, offset: isize, kind: AtomicType) -> bool {
        self.addr(offset).is_multiple_of(kind.size())
    }

    /// Combines the element at `offset` with `operand` in one atomic step. Returns its old value;
    /// `None`, and nothing happened, if the element is misaligned or the operation is not defined
    /// for its type.
    pub fn fetch_atomic(
        self,
        offset: isize,
        kind: AtomicType,
        op: AtomicOp,
        operand: u64,
    ) -> Option<u64> {
        if !self.is_aligned(offset, kind) || !op.is_defined(kind) {
            return None;
        }
        Some(with_word!(kind, self.ptr(offset), |word: Word| {
            let integer = operand as Word;
            let old = match op {
                AtomicOp::NoOp => word.load(Ordering::Acquire),
                AtomicOp::Replace => word.swap(integer, Ordering::AcqRel),
                AtomicOp::Sum if !kind.is_float() => word.fetch_add(integer, Ordering::AcqRel),
                AtomicOp::And => word.fetch_and(integer, Ordering::AcqRel),
                AtomicOp::Or => word.fetch_or(integer, Ordering::AcqRel),
                AtomicOp::Xor => word.fetch_xor(integer, Ordering::AcqRel),
                _ => {
                    let mut old = word.load(Ordering::Relaxed);
                    loop {
                        let new = op.combine(kind, u64::from(old), operand) as Word;
                        match word.compare_exchange_weak(
                            old,
                            new,
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        ) {
                            Ok(old) => break old,
                            Err(now) => old = now,
                        }
                    }
                }
            };
            u64::from(old)
        }))
    }

    /// Stores `value` in the element at `offset` if its bits equal `compare`, in one atomic step.
    /// Returns its old value; `None`, and nothing happened, if the element is misaligned.
    pub fn compare_and_swap(
        self,
        offset: isize,
        kind: AtomicType,
        compare: u64,
        value: u64,
    ) -> Option<u64> {
        if !self.is_aligned(offset, kind) {
            return None;
        }
        Some(with_word!(kind, self.ptr(offset), |word: Word| {
            let done = word.compare_exchange(
                compare as Word,
                value as Word,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            u64::from(done.unwrap_or_else(|old| old))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Scratch;

    fn low(kind: AtomicType, value: u64) -> u64 {
        match kind.size() {
            8 => value,
            size => value & ((1 << (8 * size)) - 1),
        }
    }

    #[test]
    fn every_operation_on_every_type_stores_what_it_combines_and_touches_nothing_else() {
        let memory = Scratch::new(32).unwrap();
        for kind in AtomicType::ALL {
            for op in AtomicOp::ALL {
                for (old, operand) in [(3u64, 5u64), (u64::MAX - 1, 7), (0x8080_8080_8080_8080, 1)]
                {
                    let (old, operand) = (low(kind, old), low(kind, operand));
                    memory.mem().write(0, &[0xee; 32]);
                    memory.mem().write(8, &old.to_le_bytes()[..kind.size()]);
                    let got = memory.mem().fetch_atomic(8, kind, op, operand);
                    assert_eq!(got.is_some(), op.is_defined(kind));
                    let want = low(kind, op.combine(kind, old, operand));
                    let mut bytes = [0; 32];
                    memory.mem().read(0, &mut bytes);
                    let (head, rest) = bytes.split_at(8);
                    let (element, tail) = rest.split_at(kind.size());
                    if let Some(got) = got {
                        assert_eq!(got, old);
                    }
                    assert_eq!(
                        element,
                        &want.to_le_bytes()[..kind.size()],
                        "{kind:?} {op:?}"
                    );
                    assert!(head.iter().chain(tail).all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn signed_and_floating_comparisons_are_of_their_type() {
        let less = |kind, a: u64, b: u64| AtomicOp::Min.combine(kind, a, b);
        assert_eq!(less(AtomicType::I8, 0xff, 1), u64::MAX);
        assert_eq!(less(AtomicType::U8, 0xff, 1), 1);
        let (minus, plus) = ((-1.5f32).to_bits(), 2f32.to_bits());
        assert_eq!(
            less(AtomicType::F32, minus.into(), plus.into()),
            u64::from(minus)
        );
        let sum = AtomicOp::Sum.combine(AtomicType::F64, 1.5f64.to_bits(), 2.25f64.to_bits());
        assert_eq!(f64::from_bits(sum), 3.75);
    }

    #[test]
    fn misaligned_elements_are_refused() {
        let memory = Scratch::new(16).unwrap();
        assert_eq!(
            memory
                .mem()
                .fetch_atomic(4, AtomicType::U64, AtomicOp::Sum, 1),
            None
        );
        assert_eq!(
            memory.mem().compare_and_swap(1, AtomicType::U16, 0, 1),
            None
        );
        assert_eq!(
            memory.mem().compare_and_swap(8, AtomicType::U64, 0, 9),
            Some(0)
        );
        assert_eq!(
            memory.mem().compare_and_swap(8, AtomicType::U64, 0, 4),
            Some(9)
        );
    }

    #[test]
    fn updates_by_many_threads_are_all_counted() {
        let memory = Scratch::new(16).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let one = 1f64.to_bits();
                        memory
                            .mem()
                            .fetch_atomic(0, AtomicType::F64, AtomicOp::Sum, one);
                        memory
                            .mem()
                            .fetch_atomic(8, AtomicType::I16, AtomicOp::Sum, 1);
                    }
                });
            }
        });
        assert_eq!(memory.mem().read_array(0), 4000f64.to_le_bytes());
        assert_eq!(memory.mem().read_array(8), 4000i16.to_le_bytes());
    }
}
