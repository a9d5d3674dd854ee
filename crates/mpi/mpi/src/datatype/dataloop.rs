//! Dataloops: which bytes one or many elements of a datatype occupy, as a normalised program of
//! nested loops.
//!
//! A dataloop is built bottom up by [`Dataloop::repeat`] and [`concat`], and normalised while it
//! grows: adjacent runs merge, equal runs at equal distances become strided loops, loops that
//! continue one another fuse. A vector of 10^9 blocks is one node. The constructors build
//! dataloops, and [`super::dataloop_walk`] copies by them. Offsets and lengths were checked to fit
//! before a dataloop is built, so the arithmetic here cannot overflow.

use crate::limits::INLINE_PARTS_MAX;
use std::sync::Arc;

/// The bytes of some data, in packed order.
#[derive(Clone, Debug)]
pub(crate) struct Dataloop {
    /// Place where the node's offset 0 lies, from the data's base.
    pub offset: i64,
    /// Packed bytes. 0: nothing at all, and the node is a `Run`.
    pub len: u64,
    /// Way in which they lie.
    pub node: LoopNode,
}

/// One node of the program; offsets are relative to the place that its parent gives it.
#[derive(Clone, Debug)]
pub(crate) enum LoopNode {
    /// Contiguous bytes from offset 0, as many as the parent says.
    Run,
    /// `count >= 2` runs of `block` bytes, `stride` apart.
    Strided { block: u64, stride: i64, count: u64 },
    /// `count >= 2` times the body, `stride` apart; the body is not a run.
    Loop {
        count: u64,
        stride: i64,
        body: Arc<LoopBody>,
    },
    /// Runs of different lengths: offsets, and packed position at which each ends.
    Runs {
        offsets: Arc<[i64]>,
        ends: Arc<[u64]>,
    },
    /// Runs of one length at irregular offsets.
    Equal { offsets: Arc<[i64]>, block: u64 },
    /// One body at irregular offsets; the body is not a run.
    Many {
        offsets: Arc<[i64]>,
        body: Arc<LoopBody>,
    },
    /// Different things one after the other.
    Seq(Arc<[SequencePart]>),
}

/// The body of a loop.
#[derive(Debug)]
pub(crate) struct LoopBody {
    /// Packed bytes of one repetition.
    pub len: u64,
    /// Levels of nesting below, itself included.
    pub depth: u32,
    pub node: LoopNode,
}

/// One member of a sequence.
#[derive(Debug)]
pub(crate) struct SequencePart {
    pub offset: i64,
    /// Packed bytes of the part.
    pub len: u64,
    /// Packed position in the sequence at which the part ends.
    pub end: u64,
    pub node: LoopNode,
}

impl Dataloop {
    /// No bytes.
    pub fn empty() -> Self {
        Self {
            offset: 0,
            len: 0,
            node: LoopNode::Run,
        }
    }

    /// `len` bytes at offset 0.
    pub fn run(len: u64) -> Self {
        Self {
            offset: 0,
            len,
            node: LoopNode::Run,
        }
    }

    /// Returns this dataloop moved by `by` bytes.
    pub fn moved(mut self, by: i64) -> Self {
        self.offset += by;
        self
    }

    /// Returns whether all bytes are one run.
    pub fn is_run(&self) -> bool {
        matches!(self.node, LoopNode::Run)
    }

    /// Levels of nesting.
    pub fn depth(&self) -> u32 {
        depth(&self.node)
    }

    /// `count` copies, `stride` bytes apart.
    pub fn repeat(self, count: u64, stride: i64) -> Self {
        if self.len == 0 || count == 0 {
            return Self::empty();
        }
        if count == 1 {
            return self;
        }
        let continues = |inner: i64, times: u64| stride as i128 == inner as i128 * times as i128;
        let node = match self.node {
            LoopNode::Run if stride as i128 == self.len as i128 => LoopNode::Run,
            LoopNode::Run => LoopNode::Strided {
                block: self.len,
                stride,
                count,
            },
            LoopNode::Strided {
                block,
                stride: inner,
                count: times,
            } if continues(inner, times) => LoopNode::Strided {
                block,
                stride: inner,
                count: times * count,
            },
            LoopNode::Loop {
                count: times,
                stride: inner,
                ref body,
            } if continues(inner, times) => LoopNode::Loop {
                count: times * count,
                stride: inner,
                body: body.clone(),
            },
            node => LoopNode::Loop {
                count,
                stride,
                body: body(self.len, node),
            },
        };
        Self {
            offset: self.offset,
            len: self.len * count,
            node,
        }
    }
}

fn body(len: u64, node: LoopNode) -> Arc<LoopBody> {
    Arc::new(LoopBody {
        len,
        depth: depth(&node),
        node,
    })
}

fn depth(node: &LoopNode) -> u32 {
    match node {
        LoopNode::Run
        | LoopNode::Strided { .. }
        | LoopNode::Runs { .. }
        | LoopNode::Equal { .. } => 1,
        LoopNode::Loop { body, .. } | LoopNode::Many { body, .. } => body.depth + 1,
        LoopNode::Seq(parts) => {
            1 + parts
                .iter()
                .map(|part| depth(&part.node))
                .max()
                .unwrap_or(0)
        }
    }
}

/// Shapes one after the other in packed order.
pub(crate) fn concat(shapes: impl IntoIterator<Item = Dataloop>) -> Dataloop {
    let mut builder = SequenceBuilder::default();
    for shape in shapes {
        builder.push(shape);
    }
    builder.finish()
}

/// Collects a sequence. While it consists of runs only (an indexed type may have millions), it is
/// kept as pairs.
#[derive(Default)]
struct SequenceBuilder {
    runs: Vec<(i64, u64)>,
    /// Everything so far, once something that is not a run has come; `runs` is empty then.
    mixed: Option<Vec<Dataloop>>,
}

impl SequenceBuilder {
    fn push(&mut self, shape: Dataloop) {
        if shape.len == 0 {
            return;
        }
        match &shape.node {
            LoopNode::Run => self.push_run(shape.offset, shape.len),
            LoopNode::Runs { offsets, ends } if offsets.len() <= INLINE_PARTS_MAX => {
                let mut start = 0;
                for (&offset, &end) in offsets.iter().zip(ends.iter()) {
                    self.push_run(shape.offset + offset, end - start);
                    start = end;
                }
            }
            LoopNode::Equal { offsets, block } if offsets.len() <= INLINE_PARTS_MAX => {
                for &offset in offsets.iter() {
                    self.push_run(shape.offset + offset, *block);
                }
            }
            LoopNode::Seq(parts) if parts.len() <= INLINE_PARTS_MAX => {
                for part in parts.iter() {
                    self.push(Dataloop {
                        offset: shape.offset + part.offset,
                        len: part.len,
                        node: part.node.clone(),
                    });
                }
            }
            _ => self.mixed().push(shape),
        }
    }

    fn push_run(&mut self, offset: i64, len: u64) {
        match &mut self.mixed {
            None => match self.runs.last_mut() {
                Some((at, have)) if *at + *have as i64 == offset => *have += len,
                _ => self.runs.push((offset, len)),
            },
            Some(mixed) => match mixed.last_mut() {
                Some(last) if last.is_run() && last.offset + last.len as i64 == offset => {
                    last.len += len
                }
                _ => mixed.push(Dataloop {
                    offset,
                    len,
                    node: LoopNode::Run,
                }),
            },
        }
    }

    fn mixed(&mut self) -> &mut Vec<Dataloop> {
        let runs = std::mem::take(&mut self.runs);
        self.mixed.get_or_insert_with(|| {
            runs.into_iter()
                .map(|(offset, len)| Dataloop {
                    offset,
                    len,
                    node: LoopNode::Run,
                })
                .collect()
        })
    }

    fn finish(self) -> Dataloop {
        match self.mixed {
            None => finish_runs(self.runs),
            Some(mixed) => finish_mixed(mixed),
        }
    }
}

fn finish_runs(runs: Vec<(i64, u64)>) -> Dataloop {
    let Some(&(first, block)) = runs.first() else {
        return Dataloop::empty();
    };
    let len = runs.iter().map(|run| run.1).sum();
    let offsets = || runs.iter().map(|run| run.0 - first).collect::<Arc<[i64]>>();
    let node = if runs.len() == 1 {
        LoopNode::Run
    } else if runs.iter().all(|run| run.1 == block) {
        match equal_steps(runs.iter().map(|run| run.0)) {
            Some(stride) => LoopNode::Strided {
                block,
                stride,
                count: runs.len() as u64,
            },
            None => LoopNode::Equal {
                offsets: offsets(),
                block,
            },
        }
    } else {
        let ends = runs.iter().scan(0, |end, run| {
            *end += run.1;
            Some(*end)
        });
        LoopNode::Runs {
            offsets: offsets(),
            ends: ends.collect(),
        }
    };
    Dataloop {
        offset: first,
        len,
        node,
    }
}

fn finish_mixed(mut shapes: Vec<Dataloop>) -> Dataloop {
    if shapes.len() == 1 {
        return shapes.pop().unwrap_or_else(Dataloop::empty);
    }
    let first = shapes[0].offset;
    let len = shapes.iter().map(|shape| shape.len).sum();
    let alike = shapes
        .iter()
        .all(|shape| shape.len == shapes[0].len && same(&shape.node, &shapes[0].node));
    if alike {
        let one = body(shapes[0].len, shapes[0].node.clone());
        let node = match equal_steps(shapes.iter().map(|shape| shape.offset)) {
            Some(stride) => {
                let count = shapes.len() as u64;
                return shapes.swap_remove(0).repeat(count, stride);
            }
            None => LoopNode::Many {
                offsets: shapes.iter().map(|shape| shape.offset - first).collect(),
                body: one,
            },
        };
        return Dataloop {
            offset: first,
            len,
            node,
        };
    }
    let mut end = 0;
    let parts = shapes.into_iter().map(|shape| {
        end += shape.len;
        SequencePart {
            offset: shape.offset - first,
            len: shape.len,
            end,
            node: shape.node,
        }
    });
    Dataloop {
        offset: first,
        len,
        node: LoopNode::Seq(parts.collect()),
    }
}

/// The distance between all successive offsets, if it is one and the same.
fn equal_steps(mut offsets: impl Iterator<Item = i64>) -> Option<i64> {
    let (first, second) = (offsets.next()?, offsets.next()?);
    let step = second - first;
    let mut last = second;
    offsets
        .all(|offset| {
            let fits = offset - last == step;
            last = offset;
            fits
        })
        .then_some(step)
}

/// Returns whether two nodes are known to be the same program without comparing their lists.
fn same(a: &LoopNode, b: &LoopNode) -> bool {
    match (a, b) {
        (LoopNode::Run, LoopNode::Run) => true,
        (
            LoopNode::Strided {
                block,
                stride,
                count,
            },
            LoopNode::Strided {
                block: block_b,
                stride: stride_b,
                count: count_b,
            },
        ) => (block, stride, count) == (block_b, stride_b, count_b),
        (
            LoopNode::Loop {
                count,
                stride,
                body,
            },
            LoopNode::Loop {
                count: count_b,
                stride: stride_b,
                body: body_b,
            },
        ) => {
            (count, stride) == (count_b, stride_b)
                && (Arc::ptr_eq(body, body_b) || same(&body.node, &body_b.node))
        }
        (
            LoopNode::Runs { offsets, .. },
            LoopNode::Runs {
                offsets: offsets_b, ..
            },
        )
        | (
            LoopNode::Equal { offsets, .. },
            LoopNode::Equal {
                offsets: offsets_b, ..
            },
        ) => Arc::ptr_eq(offsets, offsets_b),
        (
            LoopNode::Many { offsets, body },
            LoopNode::Many {
                offsets: offsets_b,
                body: body_b,
            },
        ) => Arc::ptr_eq(offsets, offsets_b) && Arc::ptr_eq(body, body_b),
        (LoopNode::Seq(parts), LoopNode::Seq(parts_b)) => Arc::ptr_eq(parts, parts_b),
        _ => false,
    }
}
