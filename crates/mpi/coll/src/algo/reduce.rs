//! Reductions to one rank of the own group.

use super::{BinomialTree, Reduction, minus, part, plus, reduce_scatter, run};
use crate::plan::{Plan, PlanScratch};
use garonne_sync::user::UserMem;

/// Up a tree, `ceil(log2 n)` steps. An operation that does not commute goes up a tree rooted at
/// rank 0, whose subtrees are runs of ranks, and from there to the root.
pub fn binomial<P: Plan>(p: &mut P, root: u32, r: &Reduction<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let top = if r.fold.commutative() { root } else { 0 };
    let place = BinomialTree::new(minus(me, top, n), n);
    let children = place.children().count();
    let mut buffers = ReduceBuffers::new(r, me == root && me == top, children);
    let mut sum = r.input;
    for (child, _) in place.children() {
        let right = buffers.next(p, r, sum)?;
        let token = p.recv(plus(child, top, n), r.whole(right))?;
        p.wait(token)?;
        if buffers.in_place {
            p.fold(r.fold, right, sum, r.count)?;
        } else {
            p.fold(r.fold, sum, right, r.count)?;
            sum = right;
        }
    }
    if let Some(parent) = place.parent() {
        p.send(plus(parent, top, n), r.whole(sum))?;
    } else if me != root {
        p.send(root, r.whole(sum))?;
    } else if sum != r.output {
        p.copy(r.whole(sum), r.whole(r.output))?;
    }
    if me == root && me != top {
        p.fence()?;
        p.recv(top, r.whole(r.output))?;
    }
    Ok(())
}

/// Place where the contributions of children are received, so that the sum ends in the root's
/// output without copying where that is possible: the sum moves to the buffer it was last combined
/// into.
struct ReduceBuffers {
    /// The root's own buffer holds the sum all the time.
    in_place: bool,
    /// Receives still to come.
    left: usize,
    /// The result, when it may be received into.
    output: Option<UserMem>,
    spare: [Option<UserMem>; 2],
}

impl ReduceBuffers {
    fn new(r: &Reduction<'_>, keeps_result: bool, children: usize) -> Self {
        let in_place = keeps_result && r.in_place() && r.fold.commutative();
        let output = (keeps_result && !r.in_place()).then_some(r.output);
        Self {
            in_place,
            left: children,
            output,
            spare: [None; 2],
        }
    }

    /// A buffer other than the one that holds `sum`. The last one handed out is the output.
    fn next<P: Plan>(
        &mut self,
        p: &mut P,
        r: &Reduction<'_>,
        sum: UserMem,
    ) -> Result<UserMem, P::Error> {
        self.left -= 1;
        if let Some(output) = self.output.filter(|_| self.left.is_multiple_of(2)) {
            return Ok(output);
        }
        let index = usize::from(self.spare[0] == Some(sum));
        match self.spare[index] {
            Some(mem) => Ok(mem),
            None => {
                let mem = p.scratch_for(r.shape(), r.count)?;
                self.spare[index] = Some(mem);
                Ok(mem)
            }
        }
    }
}

/// Every rank reduces one slice of the elements, taking it from all others directly, and the root
/// collects the slices. For large data.
pub fn sliced<P: Plan>(p: &mut P, root: u32, r: &Reduction<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let slice_of = |rank: u32| part(r.count, n, rank);
    let mine = slice_of(me);
    if me == root {
        reduce_scatter::direct(p, r, &slice_of, r.output().at(mine.start as i64))?;
        // In place, slices are received over contributions that others may still be reading.
        if r.in_place() {
            p.fence()?;
        }
        for distance in 1..n {
            let rank = plus(me, distance, n);
            let theirs = run(&r.output(), &slice_of(rank));
            if theirs.len > 0 {
                p.recv(rank, theirs)?;
            }
        }
        return Ok(());
    }
    let slice = p.scratch_like(&r.input(), super::len(&mine))?;
    reduce_scatter::direct(p, r, &slice_of, slice.mem)?;
    if !mine.is_empty() {
        p.send(root, slice.data(0, super::len(&mine)))?;
    }
    Ok(())
}
