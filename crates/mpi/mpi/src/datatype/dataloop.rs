//! Shapes: which bytes one or many elements of a datatype occupy, as a normalised program of nested
//! loops.
//!
//! A shape is built bottom up by [`NbcLayout::repeat`] and [`concat`] and normalised while it grows:
//! adjacent runs merge, equal runs at equal distances become strided loops, loops that continue one
//! another fuse. A vector of 10^9 blocks is one node. Used by the constructors (building) and by
//! `walk` (copying); offsets and lengths were checked to fit before a shape is built, so the
//! arithmetic here cannot overflow.

use crate::limits::INLINE_PARTS_MAX;
use std::sync::Arc;

/// The bytes of some data, in packed order.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Where the node's offset 0 lies, from the data's base.
    pub offset: i64,
    /// Packed bytes. 0: nothing at all, and the node is a `PackedBlocks`.
    pub len: u64,
    /// How they lie.
    pub node: Node,
}

/// One node of the program; offsets are relative to the place that its parent gives it.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// As many bytes as the parent says, contiguous from offset 0.
    Run,
    /// `count >= 2` runs of `block` bytes, `stride` apart.
    Strided { block: u64, stride: i64, count: u64 },
    /// `count >= 2` times the body, `stride` apart; the body is not a run.
    Loop {
        count: u64,
        stride: i64,
        body: Arc<Body>,
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
        body: Arc<Body>,
    },
    /// Different things one after the other.
    Seq(Arc<[Part]>),
}

/// What a loop repeats.
#[derive(Debug)]
pub(crate) struct Body {
    /// Packed bytes of one repetition.
    pub len: u64,
    /// Levels of nesting below, itself included.
    pub depth: u32,
    pub node: Node,
}

/// One member of a sequence.
#[derive(Debug)]
pub(crate) struct Part {
    pub offset: i64,
    /// Packed bytes of the part.
    pub len: u64,
    /// Packed position in the sequence at which the part ends.
    pub end: u64,
    pub node: Node,
}

impl Shape {
    /// No bytes.
    pub fn empty() -> Self {
        Self {
            offset: 0,
            len: 0,
            node: Node::Run,
        }
    }

    /// `len` bytes at offset 0.
    pub fn run(len: u64) -> Self {
        Self {
            offset: 0,
            len,
            node: Node::Run,
        }
    }

    /// The same bytes, moved.
    pub fn moved(mut self, by: i64) -> Self {
        self.offset += by;
        self
    }

    /// Whether all bytes are one run.
    pub fn is_run(&self) -> bool {
        matches!(self.node, Node::Run)
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
            Node::Run if stride as i128 == self.len as i128 => Node::Run,
            Node::Run => Node::Strided {
                block: self.len,
                stride,
                count,
            },
            Node::Strided {
                block,
                stride: inner,
                count: times,
            } if continues(inner, times) => Node::Strided {
                block,
                stride: inner,
                count: times * count,
            },
            Node::Loop {
                count: times,
                stride: inner,
                ref body,
            } if continues(inner, times) => Node::Loop {
                count: times * count,
                stride: inner,
                body: body.clone(),
            },
            node => Node::Loop {
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

fn body(len: u64, node: Node) -> Arc<Body> {
    Arc::new(Body {
        len,
        depth: depth(&node),
        node,
    })
}

fn depth(node: &Node) -> u32 {
    match node {
        Node::Run | Node::Strided { .. } | Node::Runs { .. } | Node::Equal { .. } => 1,
        Node::Loop { body, .. } | Node::Many { body, .. } => body.depth + 1,
        Node::Seq(parts) => {
            1 + parts
                .iter()
                .map(|part| depth(&part.node))
                .max()
                .unwrap_or(0)
        }
    }
}

/// Shapes one after the other in packed order.
pub(crate) fn concat(shapes: impl IntoIterator<Item = Shape>) -> Shape {
    let mut builder = Builder::default();
    for shape in shapes {
        builder.push(shape);
    }
    builder.finish()
}

/// Collects a sequence. While it consists of runs only (an indexed type may have millions), it is
/// kept as pairs.
#[derive(Default)]
struct Builder {
    runs: Vec<(i64, u64)>,
    /// Everything so far, once something that is not a run has come; `runs` is empty then.
    mixed: Option<Vec<Shape>>,
}

impl Builder {
    fn push(&mut self, shape: Shape) {
        if shape.len == 0 {
            return;
        }
        match &shape.node {
            Node::Run => self.push_run(shape.offset, shape.len),
            Node::Runs { offsets, ends } if offsets.len() <= INLINE_PARTS_MAX => {
                let mut start = 0;
                for (&offset, &end) in offsets.iter().zip(ends.iter()) {
                    self.push_run(shape.offset + offset, end - start);
                    start = end;
                }
            }
            Node::Equal { offsets, block } if offsets.len() <= INLINE_PARTS_MAX => {
                for &offset in offsets.iter() {
                    self.push_run(shape.offset + offset, *block);
                }
            }
            Node::Seq(parts) if parts.len() <= INLINE_PARTS_MAX => {
                for part in parts.iter() {
                    self.push(Shape {
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
                _ => mixed.push(Shape {
                    offset,
                    len,
                    node: Node::Run,
                }),
            },
        }
    }

    fn mixed(&mut self) -> &mut Vec<Shape> {
        let runs = std::mem::take(&mut self.runs);
        self.mixed.get_or_insert_with(|| {
            runs.into_iter()
                .map(|(offset, len)| Shape {
                    offset,
                    len,
                    node: Node::Run,
                })
                .collect()
        })
    }

    fn finish(self) -> Shape {
        match self.mixed {
            None => finish_runs(self.runs),
            Some(mixed) => finish_mixed(mixed),
        }
    }
}

fn finish_runs(runs: Vec<(i64, u64)>) -> Shape {
    let Some(&(first, block)) = runs.first() else {
        return Shape::empty();
    };
    let len = runs.iter().map(|run| run.1).sum();
    let offsets = || runs.iter().map(|run| run.0 - first).collect::<Arc<[i64]>>();
    let node = if runs.len() == 1 {
        Node::Run
    } else if runs.iter().all(|run| run.1 == block) {
        match equal_steps(runs.iter().map(|run| run.0)) {
            Some(stride) => Node::Strided {
                block,
                stride,
                count: runs.len() as u64,
            },
            None => Node::Equal {
                offsets: offsets(),
                block,
            },
        }
    } else {
        let ends = runs.iter().scan(0, |end, run| {
            *end += run.1;
            Some(*end)
        });
        Node::Runs {
            offsets: offsets(),
            ends: ends.collect(),
        }
    };
    Shape {
        offset: first,
        len,
        node,
    }
}

fn finish_mixed(mut shapes: Vec<Shape>) -> Shape {
    if shapes.len() == 1 {
        return shapes.pop().unwrap_or_else(Shape::empty);
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
            None => Node::Many {
                offsets: shapes.iter().map(|shape| shape.offset - first).collect(),
                body: one,
            },
        };
        return Shape {
            offset: first,
            len,
            node,
        };
    }
    let mut end = 0;
    let parts = shapes.into_iter().map(|shape| {
        end += shape.len;
        Part {
            offset: shape.offset - first,
            len: shape.len,
            end,
            node: shape.node,
        }
    });
    Shape {
        offset: first,
        len,
        node: Node::Seq(parts.collect()),
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

/// Whether two nodes are known to be the same program without comparing their lists.
fn same(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Run, Node::Run) => true,
        (
            Node::Strided {
                block,
                stride,
                count,
            },
            Node::Strided {
                block: block_b,
                stride: stride_b,
                count: count_b,
            },
        ) => (block, stride, count) == (block_b, stride_b, count_b),
        (
            Node::Loop {
                count,
                stride,
                body,
            },
            Node::Loop {
                count: count_b,
                stride: stride_b,
                body: body_b,
            },
        ) => {
            (count, stride) == (count_b, stride_b)
                && (Arc::ptr_eq(body, body_b) || same(&body.node, &body_b.node))
        }
        (
            Node::Runs { offsets, .. },
            Node::Runs {
                offsets: offsets_b, ..
            },
        )
        | (
            Node::Equal { offsets, .. },
            Node::Equal {
                offsets: offsets_b, ..
            },
        ) => Arc::ptr_eq(offsets, offsets_b),
        (
            Node::Many { offsets, body },
            Node::Many {
                offsets: offsets_b,
                body: body_b,
            },
        ) => Arc::ptr_eq(offsets, offsets_b) && Arc::ptr_eq(body, body_b),
        (Node::Seq(parts), Node::Seq(parts_b)) => Arc::ptr_eq(parts, parts_b),
        _ => false,
    }
}
