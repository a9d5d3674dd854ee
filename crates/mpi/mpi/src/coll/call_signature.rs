//! What a rank says of a collective before it takes part: which call, from which root, how many
//! bytes, combined how.
//!
//! Every barrier of [`super::shm_sync`] compares signatures through a word mixed from them. If the
//! words differ, the members show each other their signatures, so that each names its own call and
//! one that differs. What two ranks may rightly see differently is not part of a signature: the
//! blocks of `MPI_Alltoallv`, or a derived type here and its parts there.

use crate::datatype::basic_type::BasicType;
use crate::datatype::{Datatype, LeafType};
use crate::op::{Op, PredefinedOp};
use garonne_coll::call_tag::CollectiveKind;
use std::fmt;

/// The properties of a collective that must be equal on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSignature {
    kind: CollectiveKind,
    /// The root of a rooted call; unused otherwise.
    root: u32,
    /// Packed bytes: of the whole, or of a block in calls with one per rank; 0 where ranks may
    /// differ.
    bytes: u64,
    /// Way in which elements are combined.
    combine: ReductionSignature,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReductionSignature {
    /// Code of the operation; 0: none, or the program's own.
    op: u16,
    class: ElementClass,
    /// Bytes of an element.
    element: u32,
}

/// The class of combined elements. Names of one C type (`MPI_LONG`, `MPI_INT64_T`) are one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum ElementClass {
    /// Nothing is combined.
    #[default]
    Nothing = 0,
    Signed,
    Unsigned,
    Real,
    Complex,
    Truth,
    Bytes,
    Pairs,
    /// Elements that only the program's own operation knows.
    Own,
}

const ELEMENT_CLASSES: [(ElementClass, &str); 9] = [
    (ElementClass::Nothing, "nothing"),
    (ElementClass::Signed, "signed integers"),
    (ElementClass::Unsigned, "unsigned integers"),
    (ElementClass::Real, "floating-point numbers"),
    (ElementClass::Complex, "complex numbers"),
    (ElementClass::Truth, "truth values"),
    (ElementClass::Bytes, "bytes"),
    (ElementClass::Pairs, "pairs"),
    (ElementClass::Own, "elements"),
];

impl ElementClass {
    fn of(datatype: &Datatype) -> Self {
        match datatype.leaf() {
            None => ElementClass::Own,
            Some(LeafType::Pair { .. }) => ElementClass::Pairs,
            Some(LeafType::Basic(BasicType::Byte)) => ElementClass::Bytes,
            Some(LeafType::Basic(basic)) if basic.is_logical() => ElementClass::Truth,
            Some(LeafType::Basic(basic)) if basic.is_real() => ElementClass::Real,
            Some(LeafType::Basic(basic)) if basic.real_part().is_some() => ElementClass::Complex,
            Some(LeafType::Basic(basic))
                if BasicType::signed(basic.size()) == Some(basic) || basic == BasicType::Long =>
            {
                ElementClass::Signed
            }
            Some(LeafType::Basic(_)) => ElementClass::Unsigned,
        }
    }
}

/// Bytes of a signature as ranks show it to each other.
pub(crate) const SIGNATURE_BYTES: usize = 20;

impl CallSignature {
    pub fn of(kind: CollectiveKind) -> Self {
        Self {
            kind,
            root: 0,
            bytes: 0,
            combine: ReductionSignature::default(),
        }
    }

    pub fn root(self, root: i32) -> Self {
        Self {
            root: root.max(0) as u32,
            ..self
        }
    }

    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub fn combining(self, op: &Op, datatype: &Datatype) -> Self {
        let (op, class) = match op {
            Op::Predefined(op) => (*op as u16, ElementClass::of(datatype)),
            Op::User { .. } => (0, ElementClass::Own),
        };
        let element = u32::try_from(datatype.size()).unwrap_or(u32::MAX);
        Self {
            combine: ReductionSignature { op, class, element },
            ..self
        }
    }

    /// Packs the signature into three words, kind first.
    fn packed(&self) -> [u64; 3] {
        let ReductionSignature { op, class, element } = self.combine;
        let first = self.kind as u64
            | (class as u64) << 8
            | u64::from(op) << 16
            | u64::from(self.root) << 32;
        [first, self.bytes, element.into()]
    }

    /// A word that is the same for equal statements, and for different ones only by chance.
    #[inline]
    pub fn word(&self) -> u32 {
        // Multiplication, and folding of the high half: every bit reaches all others.
        let mix = |state: u64, word: u64| {
            let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15;
            (product >> 64) as u64 ^ product as u64
        };
        let all = self.packed().into_iter().fold(0x2545_f491_4f6c_dd1d, mix);
        (all ^ all >> 32) as u32
    }

    pub fn to_bytes(self) -> [u8; SIGNATURE_BYTES] {
        let [first, second, element] = self.packed();
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes[..8].copy_from_slice(&first.to_ne_bytes());
        bytes[8..16].copy_from_slice(&second.to_ne_bytes());
        bytes[16..].copy_from_slice(&(element as u32).to_ne_bytes());
        bytes
    }

    /// Decodes the signature of another process. Returns `None` for bytes that no rank of this
    /// version writes.
    pub fn from_bytes(bytes: &[u8; SIGNATURE_BYTES]) -> Option<Self> {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_ne_bytes(word)
        };
        let first = word(0);
        let combine = ReductionSignature {
            op: (first >> 16) as u16,
            class: ELEMENT_CLASSES.get(usize::from((first >> 8) as u8))?.0,
            element: u32::from_ne_bytes(*bytes.last_chunk()?),
        };
        Some(Self {
            kind: CollectiveKind::from_code(first as u8)?,
            root: (first >> 32) as u32,
            bytes: word(1),
            combine,
        })
    }
}

impl fmt::Display for CallSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CollectiveKind::*;
        write!(f, "{}(", self.kind)?;
        let mut before = "";
        let bytes = match self.kind {
            kind if kind.is_constructor() => None,
            Barrier | Internal | Gatherv | Scatterv | Alltoallv | Alltoallw => None,
            Gather | Scatter | Allgather | Alltoall | ReduceScatterBlock => Some("B for each rank"),
            Allgatherv | ReduceScatter => Some("B for all ranks together"),
            _ => Some("B"),
        };
        if let Some(unit) = bytes {
            write!(f, "{} {unit}", self.bytes)?;
            before = ", ";
        }
        let ReductionSignature { op, class, element } = self.combine;
        if class != ElementClass::Nothing {
            let name = PredefinedOp::from_code(op)
                .map_or("an operation of the program", PredefinedOp::name);
            write!(
                f,
                "{before}{name} on {} of {element} B",
                ELEMENT_CLASSES[class as usize].1
            )?;
            before = ", ";
        }
        if matches!(
            self.kind,
            Bcast | Gather | Gatherv | Scatter | Scatterv | Reduce
        ) {
            write!(f, "{before}root {}", self.root)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::codes;

    fn some() -> Vec<CallSignature> {
        let sum = Op::Predefined(PredefinedOp::Sum);
        let word = |code| Datatype::predefined(code).unwrap();
        let mut all = Vec::new();
        for kind in CollectiveKind::ALL {
            for bytes in [0, 4, 8, 1 << 20] {
                for root in [0, 1, 63] {
                    let plain = CallSignature::of(kind).bytes(bytes).root(root);
                    all.extend([
                        plain,
                        plain.combining(&sum, &word(codes::INT32_T)),
                        plain.combining(&sum, &word(codes::FLOAT)),
                        plain.combining(&sum, &word(codes::INT64_T)),
                        plain.combining(&Op::Predefined(PredefinedOp::Max), &word(codes::INT32_T)),
                    ]);
                }
            }
        }
        all
    }

    #[test]
    fn different_statements_have_different_words_and_come_back_from_their_bytes() {
        let all = some();
        let words: std::collections::HashSet<u32> = all.iter().map(CallSignature::word).collect();
        assert_eq!(words.len(), all.len());
        for statement in all {
            assert_eq!(
                CallSignature::from_bytes(&statement.to_bytes()),
                Some(statement)
            );
        }
        assert_eq!(CallSignature::from_bytes(&[0xff; SIGNATURE_BYTES]), None);
    }

    #[test]
    fn a_statement_reads_as_the_call_would() {
        let int = Datatype::predefined(codes::INT32_T).unwrap();
        let sum = Op::Predefined(PredefinedOp::Sum);
        let bcast = CallSignature::of(CollectiveKind::Bcast).bytes(8).root(2);
        assert_eq!(bcast.to_string(), "MPI_Bcast(8 B, root 2)");
        assert_eq!(
            CallSignature::of(CollectiveKind::Barrier).to_string(),
            "MPI_Barrier()"
        );
        assert_eq!(
            CallSignature::of(CollectiveKind::Reduce)
                .bytes(8)
                .combining(&sum, &int)
                .to_string(),
            "MPI_Reduce(8 B, MPI_SUM on signed integers of 4 B, root 0)"
        );
    }
}
