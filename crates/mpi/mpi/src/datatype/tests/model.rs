//! The naive model and a generator of nested datatypes with their models.

use super::super::basic_type::BasicType;
use super::super::*;
use proptest::prelude::*;

/// Elements beyond which a generated type is not nested further.
const ELEMENTS_MAX: usize = 600;

/// A type map as the standard writes it.
#[derive(Clone, Debug, Default)]
pub struct NaiveTypemap {
    pub map: Vec<(i64, BasicType)>,
    /// Bounds that follow from those of the parts.
    natural: Option<(i64, i64)>,
    /// Bounds that were set.
    marks: Option<(i64, i64)>,
}

impl NaiveTypemap {
    fn of(datatype: &Datatype) -> Self {
        let map = match datatype.leaf().unwrap() {
            LeafType::Basic(basic) => vec![(0, basic)],
            LeafType::Pair { value, index } => {
                vec![
                    (0, value),
                    (value.size().next_multiple_of(index.size()) as i64, index),
                ]
            }
        };
        let mut naive = Self {
            map,
            natural: None,
            marks: None,
        };
        naive.natural = Some(naive.true_bounds());
        naive.padded()
    }

    pub fn size(&self) -> u64 {
        self.map.iter().map(|entry| entry.1.size()).sum()
    }

    pub fn true_bounds(&self) -> (i64, i64) {
        let low = self.map.iter().map(|entry| entry.0).min().unwrap_or(0);
        let high = self
            .map
            .iter()
            .map(|entry| entry.0 + entry.1.size() as i64)
            .max()
            .unwrap_or(0);
        (low, high)
    }

    fn bounds(&self) -> (i64, i64) {
        self.marks.or(self.natural).unwrap_or((0, 0))
    }

    pub fn lb(&self) -> i64 {
        self.bounds().0
    }

    pub fn extent(&self) -> i64 {
        self.bounds().1 - self.bounds().0
    }

    /// With the extent of a C structure.
    fn padded(mut self) -> Self {
        let align = self
            .map
            .iter()
            .map(|entry| entry.1.align())
            .max()
            .unwrap_or(1);
        self.natural = self
            .natural
            .map(|(lb, ub)| (lb, lb + ((ub - lb) as u64).next_multiple_of(align) as i64));
        self
    }

    /// Offsets of all bytes of `count` elements in packed order.
    pub fn bytes(&self, count: u64) -> Vec<i64> {
        let copies = (0..count as i64).map(|i| i * self.extent());
        copies
            .flat_map(|by| {
                self.map
                    .iter()
                    .flat_map(move |(at, b)| (0..b.size() as i64).map(move |k| at + by + k))
            })
            .collect()
    }

    /// Offset and kind of all basic elements of `count` elements.
    pub fn values(&self, count: u64) -> Vec<(i64, BasicType)> {
        let copies = (0..count as i64).map(|i| i * self.extent());
        copies
            .flat_map(|by| self.map.iter().map(move |entry| (entry.0 + by, entry.1)))
            .collect()
    }

    pub fn overlaps(&self, count: u64) -> bool {
        let mut all = self.bytes(count);
        all.sort_unstable();
        all.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Appends `count` consecutive elements of `old` at `at`.
    fn add(&mut self, old: &NaiveTypemap, count: i64, at: i64) {
        for by in (0..count).map(|i| at + i * old.extent()) {
            self.map
                .extend(old.map.iter().map(|entry| (entry.0 + by, entry.1)));
            let join = |mine: &mut Option<(i64, i64)>, theirs: Option<(i64, i64)>| {
                if let Some((lb, ub)) = theirs {
                    let (low, high) = mine.unwrap_or((i64::MAX, i64::MIN));
                    *mine = Some((low.min(lb + by), high.max(ub + by)));
                }
            };
            join(&mut self.natural, old.natural);
            join(&mut self.marks, old.marks);
        }
    }

    fn blocks(
        old: &NaiveTypemap,
        lengths: &[i64],
        displacements: impl Iterator<Item = i64>,
    ) -> NaiveTypemap {
        let mut naive = NaiveTypemap::default();
        lengths
            .iter()
            .zip(displacements)
            .for_each(|(&length, at)| naive.add(old, length, at));
        naive
    }

    fn bounded(mut self, lb: i64, ub: i64) -> NaiveTypemap {
        self.marks = Some((lb, ub));
        self
    }
}

/// A value of a kind, in its memory form, that the canonical form can hold.
pub fn sample(basic: BasicType, seed: u8) -> Vec<u8> {
    let small = i16::from(seed) - 100;
    match basic {
        BasicType::Char | BasicType::Byte => vec![seed],
        BasicType::I16 => small.to_ne_bytes().to_vec(),
        BasicType::I32 => i32::from(small).to_ne_bytes().to_vec(),
        BasicType::WideChar => u32::from(seed).to_ne_bytes().to_vec(),
        BasicType::F64 => (f64::from(small) / 3.0).to_ne_bytes().to_vec(),
        BasicType::C32 => [f32::from(small), -0.5]
            .iter()
            .flat_map(|part| part.to_ne_bytes())
            .collect(),
        // 1.x, times a power of two: explicit leading bit, fraction, biased exponent, then padding.
        BasicType::X87 => {
            let mut bytes = vec![seed, 1, 2, 3, 4, 5, 6, 0x80, seed, 0x40];
            bytes.resize(16, 0);
            bytes
        }
        BasicType::F128 => (0x3fff_u128 << 112 | u128::from(seed))
            .to_ne_bytes()
            .to_vec(),
        other => unreachable!("the generator does not make {other:?}"),
    }
}

/// Value of `seed` in the canonical form, worked out by hand for each kind.
pub fn canonical(basic: BasicType, seed: u8) -> Vec<u8> {
    let small = i16::from(seed) - 100;
    match basic {
        BasicType::Char | BasicType::Byte => vec![seed],
        BasicType::I16 => small.to_be_bytes().to_vec(),
        BasicType::I32 => i32::from(small).to_be_bytes().to_vec(),
        BasicType::WideChar => u16::from(seed).to_be_bytes().to_vec(),
        BasicType::F64 => (f64::from(small) / 3.0).to_be_bytes().to_vec(),
        BasicType::C32 => [f32::from(small), -0.5]
            .iter()
            .flat_map(|part| part.to_be_bytes())
            .collect(),
        // The exponent stays; the leading bit is implied; the 63 others begin the fraction of 112.
        BasicType::X87 => {
            let fraction = 0x0006_0504_0302_0100_u128 | u128::from(seed);
            let exponent = 0x4000_u128 | u128::from(seed);
            (exponent << 112 | fraction << 49).to_be_bytes().to_vec()
        }
        BasicType::F128 => (0x3fff_u128 << 112 | u128::from(seed))
            .to_be_bytes()
            .to_vec(),
        other => unreachable!("the generator does not make {other:?}"),
    }
}

/// A datatype and its model.
#[derive(Clone, Debug)]
pub struct ModelledType {
    pub datatype: Datatype,
    pub naive: NaiveTypemap,
}

/// Any nesting of constructors over predefined types.
pub fn made() -> impl Strategy<Value = ModelledType> {
    use codes::*;
    let named = [
        BYTE,
        CHAR,
        SHORT,
        INT,
        DOUBLE,
        LONG_DOUBLE,
        C_FLOAT_COMPLEX,
        DOUBLE_INT,
        SHORT_INT,
        WCHAR,
    ];
    let leaf = prop::sample::select(named.to_vec()).prop_map(|code| {
        let datatype = Datatype::predefined(code).unwrap();
        ModelledType {
            naive: NaiveTypemap::of(&datatype),
            datatype,
        }
    });
    leaf.prop_recursive(4, 24, 3, |inner| {
        let one = (inner.clone(), step()).prop_map(|(old, step)| apply(old, step));
        let many = prop::collection::vec((inner, 0i64..3, -40i64..80), 1..4).prop_map(structure);
        prop_oneof![3 => one, 1 => many]
    })
}

fn structure(fields: Vec<(ModelledType, i64, i64)>) -> ModelledType {
    let lengths: Vec<i64> = fields.iter().map(|field| field.1).collect();
    let displacements: Vec<i64> = fields.iter().map(|field| field.2).collect();
    let types: Vec<Datatype> = fields
        .iter()
        .map(|field| field.0.datatype.clone())
        .collect();
    let mut naive = NaiveTypemap::default();
    fields
        .iter()
        .for_each(|(made, length, at)| naive.add(&made.naive, *length, *at));
    ModelledType {
        datatype: Datatype::structure(&lengths, &displacements, &types).unwrap(),
        naive: naive.padded(),
    }
}

/// One constructor over one old type, with its numbers.
#[derive(Clone, Debug)]
enum ConstructorStep {
    Dup,
    Contiguous(i64),
    Vector(i64, i64, i64),
    Hvector(i64, i64, i64),
    Indexed(Vec<(i64, i64)>),
    Hindexed(Vec<(i64, i64)>),
    IndexedBlock(i64, Vec<i64>),
    HindexedBlock(i64, Vec<i64>),
    Resized(i64, i64),
    Subarray(Vec<(i64, i64, i64)>, ArrayOrder),
    Darray(
        Vec<(i64, Distribution, Option<i32>, i32)>,
        usize,
        ArrayOrder,
    ),
}

fn step() -> impl Strategy<Value = ConstructorStep> {
    let list = || prop::collection::vec((0i64..4, -6i64..12), 0..6);
    let order = || prop::sample::select(vec![ArrayOrder::C, ArrayOrder::Fortran]);
    let dim = (1i64..5)
        .prop_flat_map(|size| (Just(size), 1..=size))
        .prop_flat_map(|(size, subsize)| (Just(size), Just(subsize), 0..=size - subsize));
    let distribution = prop::sample::select(vec![
        Distribution::Block,
        Distribution::Cyclic,
        Distribution::None,
    ]);
    let ddim = (1i64..9, distribution, prop::option::of(1i32..4), 1i32..4);
    prop_oneof![
        Just(ConstructorStep::Dup),
        (0i64..5).prop_map(ConstructorStep::Contiguous),
        (0i64..5, 0i64..4, -6i64..7).prop_map(|(c, b, s)| ConstructorStep::Vector(c, b, s)),
        (0i64..5, 0i64..4, -50i64..70).prop_map(|(c, b, s)| ConstructorStep::Hvector(c, b, s)),
        list().prop_map(ConstructorStep::Indexed),
        list().prop_map(ConstructorStep::Hindexed),
        (0i64..4, prop::collection::vec(-6i64..12, 0..6))
            .prop_map(|(b, d)| ConstructorStep::IndexedBlock(b, d)),
        (0i64..4, prop::collection::vec(-60i64..90, 0..6))
            .prop_map(|(b, d)| ConstructorStep::HindexedBlock(b, d)),
        (-30i64..30, 0i64..120).prop_map(|(lb, extent)| ConstructorStep::Resized(lb, extent)),
        (prop::collection::vec(dim, 1..4), order())
            .prop_map(|(dims, order)| ConstructorStep::Subarray(dims, order)),
        (prop::collection::vec(ddim, 1..4), any::<usize>(), order())
            .prop_map(|(dims, rank, order)| ConstructorStep::Darray(dims, rank, order)),
    ]
}

fn apply(old: ModelledType, step: ConstructorStep) -> ModelledType {
    if old.naive.map.len() > ELEMENTS_MAX / 20 {
        return old;
    }
    let (d, n) = (&old.datatype, &old.naive);
    let extent = n.extent();
    let split = |list: &[(i64, i64)]| -> (Vec<i64>, Vec<i64>) { list.iter().copied().unzip() };
    let construct = |constructor| Datatype::construct(constructor, ContentsForm::Int).unwrap();
    let (datatype, naive) = match step {
        ConstructorStep::Dup => (d.dup().unwrap(), n.clone()),
        ConstructorStep::Contiguous(count) => (
            d.contiguous(count).unwrap(),
            NaiveTypemap::blocks(n, &[count], [0].into_iter()),
        ),
        ConstructorStep::Vector(count, length, stride) => {
            let lengths = vec![length; count as usize];
            let naive = NaiveTypemap::blocks(n, &lengths, (0..count).map(|i| i * stride * extent));
            (d.vector(count, length, stride).unwrap(), naive)
        }
        ConstructorStep::Hvector(count, length, stride) => {
            let lengths = vec![length; count as usize];
            let naive = NaiveTypemap::blocks(n, &lengths, (0..count).map(|i| i * stride));
            (d.hvector(count, length, stride).unwrap(), naive)
        }
        ConstructorStep::Indexed(list) => {
            let (lengths, at) = split(&list);
            let naive = NaiveTypemap::blocks(n, &lengths, at.iter().map(|at| at * extent));
            (d.indexed(&lengths, &at).unwrap(), naive)
        }
        ConstructorStep::Hindexed(list) => {
            let (lengths, at) = split(&list);
            let at: Vec<i64> = at.iter().map(|at| at * 7).collect();
            let naive = NaiveTypemap::blocks(n, &lengths, at.iter().copied());
            (d.hindexed(&lengths, &at).unwrap(), naive)
        }
        ConstructorStep::IndexedBlock(blocklength, displacements) => {
            let lengths = vec![blocklength; displacements.len()];
            let naive =
                NaiveTypemap::blocks(n, &lengths, displacements.iter().map(|at| at * extent));
            (
                construct(Constructor::IndexedBlock {
                    blocklength,
                    displacements,
                    old: d.clone(),
                }),
                naive,
            )
        }
        ConstructorStep::HindexedBlock(blocklength, displacements) => {
            let lengths = vec![blocklength; displacements.len()];
            let naive = NaiveTypemap::blocks(n, &lengths, displacements.iter().copied());
            (
                construct(Constructor::HindexedBlock {
                    blocklength,
                    displacements,
                    old: d.clone(),
                }),
                naive,
            )
        }
        ConstructorStep::Resized(lb, extent) => (
            d.resized(lb, extent).unwrap(),
            n.clone().bounded(lb, lb + extent),
        ),
        ConstructorStep::Subarray(dims, order) => subarray(&old, &dims, order),
        ConstructorStep::Darray(dims, rank, order) => darray(&old, &dims, rank, order),
    };
    ModelledType { datatype, naive }
}

/// Visits the index vectors of an array in memory order, with their linear position.
fn each_index(sizes: &[i64], order: ArrayOrder, mut visit: impl FnMut(&[i64], i64)) {
    let total: i64 = sizes.iter().product();
    for linear in 0..total {
        let (mut rest, mut index) = (linear, vec![0; sizes.len()]);
        let mut assign = |d: usize| {
            index[d] = rest % sizes[d];
            rest /= sizes[d];
        };
        match order {
            ArrayOrder::C => (0..sizes.len()).rev().for_each(&mut assign),
            ArrayOrder::Fortran => (0..sizes.len()).for_each(&mut assign),
        }
        visit(&index, linear);
    }
}

fn subarray(
    old: &ModelledType,
    dims: &[(i64, i64, i64)],
    order: ArrayOrder,
) -> (Datatype, NaiveTypemap) {
    let sizes: Vec<i64> = dims.iter().map(|dim| dim.0).collect();
    let mut naive = NaiveTypemap::default();
    each_index(&sizes, order, |index, linear| {
        if index
            .iter()
            .zip(dims)
            .all(|(i, dim)| (dim.2..dim.2 + dim.1).contains(i))
        {
            naive.add(&old.naive, 1, linear * old.naive.extent());
        }
    });
    let whole = sizes.iter().product::<i64>() * old.naive.extent();
    let constructor = Constructor::Subarray {
        subsizes: dims.iter().map(|dim| dim.1).collect(),
        starts: dims.iter().map(|dim| dim.2).collect(),
        sizes,
        order,
        old: old.datatype.clone(),
    };
    (
        Datatype::construct(constructor, ContentsForm::Int).unwrap(),
        naive.bounded(0, whole),
    )
}

fn darray(
    old: &ModelledType,
    dims: &[(i64, Distribution, Option<i32>, i32)],
    rank: usize,
    order: ArrayOrder,
) -> (Datatype, NaiveTypemap) {
    // Arguments made legal: no grid dimension where nothing is distributed, blocks large enough.
    let dims: Vec<DarrayDim> = dims
        .iter()
        .map(|&(gsize, distribution, darg, psize)| {
            let psize = if distribution == Distribution::None {
                1
            } else {
                psize
            };
            let least = (gsize as u64).div_ceil(psize as u64) as i32;
            let darg = match distribution {
                Distribution::Block => darg.map(|darg| darg.max(least)),
                _ => darg,
            };
            DarrayDim {
                gsize,
                distribution,
                darg,
                psize,
            }
        })
        .collect();
    let size: i32 = dims.iter().map(|dim| dim.psize).product();
    let rank = (rank % size as usize) as i32;
    let (mut coordinates, mut rest) = (vec![0; dims.len()], rank);
    for (d, dim) in dims.iter().enumerate().rev() {
        coordinates[d] = rest % dim.psize;
        rest /= dim.psize;
    }
    let owner = |dim: &DarrayDim, i: i64| -> i64 {
        let psize = i64::from(dim.psize);
        let block = match (dim.distribution, dim.darg) {
            (Distribution::None, _) => dim.gsize,
            (Distribution::Block, None) => (dim.gsize + psize - 1) / psize,
            (Distribution::Cyclic, None) => 1,
            (_, Some(darg)) => i64::from(darg),
        };
        i / block % psize
    };
    let sizes: Vec<i64> = dims.iter().map(|dim| dim.gsize).collect();
    let mut naive = NaiveTypemap::default();
    each_index(&sizes, order, |index, linear| {
        if (0..dims.len()).all(|d| owner(&dims[d], index[d]) == i64::from(coordinates[d])) {
            naive.add(&old.naive, 1, linear * old.naive.extent());
        }
    });
    let whole = sizes.iter().product::<i64>() * old.naive.extent();
    let constructor = Constructor::Darray {
        size,
        rank,
        dims,
        order,
        old: old.datatype.clone(),
    };
    (
        Datatype::construct(constructor, ContentsForm::Int).unwrap(),
        naive.bounded(0, whole),
    )
}
