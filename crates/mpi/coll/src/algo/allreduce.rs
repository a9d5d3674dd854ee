//! Reductions whose result every rank of the own group gets.

use super::{Reduction, len, minus, part, parts, plus, power_below, reduce_scatter, run};
use crate::plan::{Plan, PlanScratch};
use crate::typed_buffer::TypedBuffer;

/// Puts the contribution where the result will be.
fn start<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    if r.in_place() {
        Ok(())
    } else {
        p.copy(r.whole(r.input), r.whole(r.output))
    }
}

/// Way in which ranks beyond a power of two take part: of the first `2 * extra` ranks each even one
/// hands its contribution to the odd one after it, which keeps runs of ranks together, and gets the
/// result from it.
#[derive(Clone, Copy)]
struct PowerOfTwoCore {
    /// Ranks that take part in the exchange, a power of two.
    size: u32,
    extra: u32,
}

impl PowerOfTwoCore {
    fn new(n: u32) -> Self {
        let size = power_below(n);
        Self {
            size,
            extra: n - size,
        }
    }

    /// Number of `rank` in the exchange, unless it only hands over.
    fn number(self, rank: u32) -> Option<u32> {
        match rank {
            _ if rank >= 2 * self.extra => Some(rank - self.extra),
            _ if rank % 2 == 1 => Some(rank / 2),
            _ => None,
        }
    }

    /// The rank with this number.
    fn rank(self, number: u32) -> u32 {
        if number < self.extra {
            2 * number + 1
        } else {
            number + self.extra
        }
    }

    /// Takes over the contribution of the even neighbour. `sum` holds the own one, `spare` is room.
    fn enter<P: Plan>(
        self,
        p: &mut P,
        r: &Reduction<'_>,
        sum: &TypedBuffer<'_>,
        spare: &TypedBuffer<'_>,
    ) -> Result<(), P::Error> {
        let me = p.me();
        if me >= 2 * self.extra {
            return Ok(());
        }
        if me.is_multiple_of(2) {
            p.send(me + 1, sum.data(0, r.count))?;
            return p.fence();
        }
        let token = p.recv(me - 1, spare.data(0, r.count))?;
        p.wait(token)?;
        p.fold(r.fold, spare.mem, sum.mem, r.count)
    }

    /// Hands the result to the even neighbour.
    fn leave<P: Plan>(self, p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
        let me = p.me();
        if me < 2 * self.extra {
            let result = r.whole(r.output);
            if me.is_multiple_of(2) {
                p.recv(me + 1, result)?
            } else {
                p.send(me - 1, result)?
            };
        }
        Ok(())
    }
}

/// Exchanges whole vectors with a partner at distances 1, 2, 4 …: `ceil(log2 n)` steps (two more
/// when n is no power of two). Keeps the order of operands. For small data.
pub fn recursive_doubling<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    let core = PowerOfTwoCore::new(p.size());
    start(p, r)?;
    if p.size() == 1 {
        return Ok(());
    }
    let mut sum = r.output();
    let mut spare = p.scratch_like(&sum, r.count)?;
    core.enter(p, r, &sum, &spare)?;
    if let Some(number) = core.number(p.me()) {
        let mut distance = 1;
        while distance < core.size {
            let partner = number ^ distance;
            let rank = core.rank(partner);
            p.recv(rank, spare.data(0, r.count))?;
            p.send(rank, sum.data(0, r.count))?;
            p.fence()?;
            if partner < number || r.fold.commutative() {
                p.fold(r.fold, spare.mem, sum.mem, r.count)?;
            } else {
                p.fold(r.fold, sum.mem, spare.mem, r.count)?;
                std::mem::swap(&mut sum, &mut spare);
            }
            distance <<= 1;
        }
        if sum.mem != r.output {
            p.copy(sum.data(0, r.count), r.whole(r.output))?;
        }
    }
    core.leave(p, r)
}

/// Recursive halving, then recursive doubling of the slices (Rabenseifner): each rank sends and
/// receives about twice the data, in `2 log2 n` steps. The operation commutes.
pub fn halving_doubling<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    let core = PowerOfTwoCore::new(p.size());
    start(p, r)?;
    if p.size() == 1 {
        return Ok(());
    }
    let sum = r.output();
    let spare = p.scratch_like(&sum, r.count)?;
    core.enter(p, r, &sum, &spare)?;
    if let Some(number) = core.number(p.me()) {
        let elements = |low: u32, count: u32| parts(r.count, core.size, low..low + count);
        let mut low = 0;
        let mut half = core.size / 2;
        while half > 0 {
            let rank = core.rank(number ^ half);
            let upper = number & half != 0;
            let (kept, given) = if upper {
                (low + half, low)
            } else {
                (low, low + half)
            };
            let (kept_run, given_run) = (elements(kept, half), elements(given, half));
            if !kept_run.is_empty() {
                p.recv(rank, run(&spare, &kept_run))?;
            }
            if !given_run.is_empty() {
                p.send(rank, run(&sum, &given_run))?;
            }
            p.fence()?;
            let at = kept_run.start as i64;
            p.fold(r.fold, spare.at(at), sum.at(at), len(&kept_run))?;
            low = kept;
            half /= 2;
        }
        let mut have = 1;
        while have < core.size {
            let rank = core.rank(number ^ have);
            let own = number & !(have - 1);
            let (mine, theirs) = (elements(own, have), elements(own ^ have, have));
            if !theirs.is_empty() {
                p.recv(rank, run(&sum, &theirs))?;
            }
            if !mine.is_empty() {
                p.send(rank, run(&sum, &mine))?;
            }
            p.fence()?;
            have <<= 1;
        }
    }
    core.leave(p, r)
}

/// Slices travel round a ring twice, first to be summed, then to be spread: the least traffic for
/// any n, `2 (n - 1)` steps. The operation commutes.
pub fn ring<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    start(p, r)?;
    if n == 1 {
        return Ok(());
    }
    let sum = r.output();
    let (left, right) = (minus(me, 1, n), plus(me, 1, n));
    let slice = |rank: u32| part(r.count, n, rank);
    let spare = p.scratch_like(&sum, len(&slice(0)))?;
    for step in 0..n - 1 {
        let (out, into) = (slice(minus(me, step, n)), slice(minus(me, step + 1, n)));
        if !into.is_empty() {
            p.recv(left, spare.data(0, len(&into)))?;
        }
        if !out.is_empty() {
            p.send(right, run(&sum, &out))?;
        }
        p.fence()?;
        p.fold(r.fold, spare.mem, sum.at(into.start as i64), len(&into))?;
    }
    for step in 0..n - 1 {
        let (out, into) = (slice(minus(me + 1, step, n)), slice(minus(me, step, n)));
        let token = if into.is_empty() {
            None
        } else {
            Some(p.recv(left, run(&sum, &into))?)
        };
        if !out.is_empty() {
            p.send(right, run(&sum, &out))?;
        }
        if let Some(token) = token {
            p.wait(token)?;
        }
    }
    Ok(())
}

/// Every rank reduces one slice, taking it from all others directly, and hands it to all others:
/// two steps of `n - 1` single copies each. For large data on few ranks that share a memory; keeps
/// the order of operands.
pub fn sliced<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let slice = |rank: u32| part(r.count, n, rank);
    let mine = slice(me);
    reduce_scatter::direct(p, r, &slice, r.output().at(mine.start as i64))?;
    // In place, slices are received over contributions that others may still be reading.
    if r.in_place() {
        p.fence()?;
    }
    spread_slices(p, r)
}

/// Every rank hands its slice of the result to all others.
pub fn spread_slices<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let slice = |rank: u32| part(r.count, n, rank);
    let mine = slice(me);
    for distance in 1..n {
        let from = minus(me, distance, n);
        let theirs = run(&r.output(), &slice(from));
        if theirs.len > 0 {
            p.recv(from, theirs)?;
        }
    }
    for distance in 1..n {
        if !mine.is_empty() {
            p.send(plus(me, distance, n), run(&r.output(), &mine))?;
        }
    }
    Ok(())
}
