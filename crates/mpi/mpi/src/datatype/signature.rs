//! Type signatures: the basic elements of a datatype, in order, without building a list of them.
//!
//! Used by the canonical representation, by reductions on derived types, by the element counts of
//! statuses and by error messages. Walks the constructors, not the byte layout; recursion is
//! bounded by the limit on nesting.

use super::Datatype;
use super::constructors::{Constructor, lower};
use super::typemap::{LeafType, Typemap, summarise};
use crate::limits::NESTING_MAX;
use std::ops::ControlFlow;

/// Elements of one predefined kind that follow one another in memory without padding other than
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRun {
    /// Offset in bytes of the first.
    pub at: i64,
    /// Kind of the elements.
    pub leaf: LeafType,
    /// How many.
    pub count: u64,
}

type WalkFlow = ControlFlow<()>;

impl Datatype {
    /// Calls `visit` for the elements of `count` elements of this type, in the order of the type
    /// signature, until it breaks.
    pub fn visit_leaves(&self, count: u64, visit: &mut dyn FnMut(LeafRun) -> WalkFlow) -> WalkFlow {
        visit_copies(
            ElementCopies {
                old: self,
                count,
                at: 0,
            },
            visit,
        )
    }

    /// The type signature in runs of equal kinds, at most `max_runs` of them.
    pub fn signature(&self, max_runs: usize) -> Vec<(LeafType, u64)> {
        let mut runs: Vec<(LeafType, u64)> = Vec::new();
        let _ = self.visit_leaves(1, &mut |run| {
            if let Some((leaf, count)) = runs.last_mut()
                && *leaf == run.leaf
            {
                *count += run.count;
            } else if runs.len() < max_runs {
                runs.push((run.leaf, run.count));
            } else {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        runs
    }

    /// Returns how many basic elements `bytes` packed bytes of this type hold; `None` if they end
    /// within one.
    pub fn elements_in(&self, bytes: u64) -> Option<u64> {
        advance(self, PositionUnit::Bytes, bytes).map(|(_, elements)| elements)
    }

    /// Returns how many packed bytes the first `elements` basic elements take; `None` if that does
    /// not fit 64 bits.
    pub fn bytes_of_elements(&self, elements: u64) -> Option<u64> {
        advance(self, PositionUnit::Elements, elements).map(|(bytes, _)| bytes)
    }

    /// Levels of constructors, not counting those that change nothing about the elements.
    pub(super) fn nesting_of(constructor: &Constructor) -> u32 {
        let below = constructor.types().iter().map(|old| old.0.nesting).max();
        let Some(below) = below else {
            // A predefined type has no constructor.
            return 0;
        };
        if is_transparent(constructor) {
            below
        } else {
            below + 1
        }
    }
}

/// Returns whether the constructed type has the very type map of its only old type, bounds aside.
fn is_transparent(constructor: &Constructor) -> bool {
    matches!(
        constructor,
        Constructor::Dup { .. }
            | Constructor::Resized { .. }
            | Constructor::Contiguous { count: 1, .. }
    )
}

/// The type below all constructors that change nothing about the elements.
fn essential(mut datatype: &Datatype) -> &Datatype {
    while is_transparent(datatype.constructor()) {
        match datatype.constructor().types().first() {
            Some(old) => datatype = old,
            None => break,
        }
    }
    datatype
}

/// The type map of a constructed type; `None` for predefined ones.
fn tree_of(datatype: &Datatype) -> Option<Typemap> {
    debug_assert!(datatype.0.nesting <= NESTING_MAX);
    // Lowering succeeded when the type was constructed, and its input is immutable.
    if datatype.is_predefined() {
        None
    } else {
        lower(datatype.constructor()).ok()
    }
}

/// `count` elements of a type, the first at `at`.
struct ElementCopies<'a> {
    old: &'a Datatype,
    count: u64,
    at: i64,
}

fn visit_copies(copies: ElementCopies<'_>, visit: &mut dyn FnMut(LeafRun) -> WalkFlow) -> WalkFlow {
    let ElementCopies { old, count, at } = copies;
    if old.size() == 0 {
        return ControlFlow::Continue(());
    }
    let extent = old.extent();
    let inner = essential(old);
    let Some(tree) = tree_of(inner) else {
        let Some(leaf) = inner.leaf() else {
            return ControlFlow::Continue(());
        };
        if count == 1 || extent == leaf.extent() as i64 {
            return visit(LeafRun { at, leaf, count });
        }
        return (0..count).try_for_each(|i| {
            visit(LeafRun {
                at: at + i as i64 * extent,
                leaf,
                count: 1,
            })
        });
    };
    (0..count).try_for_each(|i| visit_tree(&tree, at + i as i64 * extent, visit))
}

fn visit_tree(tree: &Typemap, at: i64, visit: &mut dyn FnMut(LeafRun) -> WalkFlow) -> WalkFlow {
    match tree {
        Typemap::Type(old) => visit_copies(ElementCopies { old, count: 1, at }, visit),
        Typemap::Bounded { body, .. } | Typemap::Padded(body) => visit_tree(body, at, visit),
        Typemap::Repeat {
            count,
            stride,
            body,
        } => match &**body {
            Typemap::Type(old) if *stride == old.extent() => visit_copies(
                ElementCopies {
                    old,
                    count: *count,
                    at,
                },
                visit,
            ),
            body => (0..*count).try_for_each(|i| visit_tree(body, at + i as i64 * stride, visit)),
        },
        Typemap::Blocks { blocks, types } => blocks.iter().try_for_each(|block| {
            let old = &types[block.index as usize];
            visit_copies(
                ElementCopies {
                    old,
                    count: block.count,
                    at: at + block.displacement,
                },
                visit,
            )
        }),
        Typemap::List(list) => list
            .iter()
            .try_for_each(|(by, body)| visit_tree(body, at + by, visit)),
    }
}

/// The unit of a position in the signature.
#[derive(Clone, Copy)]
enum PositionUnit {
    Bytes,
    Elements,
}

impl PositionUnit {
    fn pick(self, bytes: u64, elements: u64) -> u64 {
        match self {
            PositionUnit::Bytes => bytes,
            PositionUnit::Elements => elements,
        }
    }
}

/// Bytes and elements of the signature's beginning that measures exactly `goal`, repeating the type
/// as needed.
fn advance(datatype: &Datatype, measure: PositionUnit, goal: u64) -> Option<(u64, u64)> {
    let datatype = essential(datatype);
    let (bytes, elements) = (datatype.size(), datatype.elements());
    if goal == 0 {
        return Some((0, 0));
    }
    let one = measure.pick(bytes, elements);
    if one == 0 {
        return None;
    }
    let (whole, rest) = (goal / one, goal % one);
    let (more_bytes, more_elements) = match (rest, tree_of(datatype)) {
        (0, _) => (0, 0),
        (rest, Some(tree)) => advance_tree(&tree, measure, rest)?,
        (rest, None) => advance_leaf(datatype.leaf()?, measure, rest)?,
    };
    let total = |one: u64, more: u64| whole.checked_mul(one)?.checked_add(more);
    Some((total(bytes, more_bytes)?, total(elements, more_elements)?))
}

/// Within one predefined element only a pair has a position that is not an end.
fn advance_leaf(leaf: LeafType, measure: PositionUnit, rest: u64) -> Option<(u64, u64)> {
    match leaf {
        LeafType::Pair { value, .. } if rest == measure.pick(value.size(), 1) => {
            Some((value.size(), 1))
        }
        _ => None,
    }
}

fn advance_tree(tree: &Typemap, measure: PositionUnit, rest: u64) -> Option<(u64, u64)> {
    match tree {
        Typemap::Type(old) => advance(old, measure, rest),
        Typemap::Bounded { body, .. } | Typemap::Padded(body) => advance_tree(body, measure, rest),
        Typemap::Repeat { body, .. } => {
            let one = summarise(body).ok()?;
            let (bytes, elements) = (one.size as u64, one.elements as u64);
            let weight = measure.pick(bytes, elements);
            let (whole, rest) = (rest.checked_div(weight)?, rest % weight);
            let (more_bytes, more_elements) = if rest == 0 {
                (0, 0)
            } else {
                advance_tree(body, measure, rest)?
            };
            Some((whole * bytes + more_bytes, whole * elements + more_elements))
        }
        Typemap::Blocks { blocks, types } => {
            let items = blocks.iter().map(|block| {
                let old = &types[block.index as usize];
                (
                    block.count * old.size(),
                    block.count * old.elements(),
                    SignatureItem::Copies(old),
                )
            });
            advance_list(items, measure, rest)
        }
        Typemap::List(list) => {
            let items = list.iter().filter_map(|(_, body)| {
                let one = summarise(body).ok()?;
                Some((
                    one.size as u64,
                    one.elements as u64,
                    SignatureItem::Tree(body),
                ))
            });
            advance_list(items, measure, rest)
        }
    }
}

enum SignatureItem<'a> {
    Copies(&'a Datatype),
    Tree(&'a Typemap),
}

fn advance_list<'a>(
    items: impl Iterator<Item = (u64, u64, SignatureItem<'a>)>,
    measure: PositionUnit,
    mut rest: u64,
) -> Option<(u64, u64)> {
    let (mut bytes, mut elements) = (0, 0);
    for (item_bytes, item_elements, item) in items {
        let weight = measure.pick(item_bytes, item_elements);
        if rest < weight {
            let (more_bytes, more_elements) = match item {
                SignatureItem::Copies(old) => advance(old, measure, rest)?,
                SignatureItem::Tree(tree) => advance_tree(tree, measure, rest)?,
            };
            return Some((bytes + more_bytes, elements + more_elements));
        }
        (rest, bytes, elements) = (rest - weight, bytes + item_bytes, elements + item_elements);
    }
    (rest == 0).then_some((bytes, elements))
}
