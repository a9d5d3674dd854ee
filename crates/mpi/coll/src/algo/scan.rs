//! Prefix reductions over the ranks of the own group.

use super::Reduction;
use crate::plan::{Plan, PlanScratch};

/// Kind of a scan: with or without a rank's own contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// `MPI_Scan`.
    Inclusive,
    /// `MPI_Exscan`; rank 0 gets no result.
    Exclusive,
}

/// Recursive doubling: ranks at distance 1, 2, 4 … exchange the sums of their blocks of ranks; what
/// comes from lower ranks also goes to the result. `ceil(log2 n)` steps for any n, operands in rank
/// order.
pub fn recursive_doubling<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    own: ScanKind,
) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let whole = |typed: &super::TypedBuffer<'_>| typed.data(0, r.count);
    let result = r.output();
    if n > 1 {
        let mut sum = p.scratch_like(&result, r.count)?;
        let mut spare = p.scratch_like(&result, r.count)?;
        p.copy(whole(&r.input()), whole(&sum))?;
        start(p, r, own)?;
        let mut any = own == ScanKind::Inclusive;
        let mut distance = 1;
        while distance < n {
            let partner = me ^ distance;
            if partner < n {
                p.recv(partner, whole(&spare))?;
                p.send(partner, whole(&sum))?;
                p.fence()?;
                if partner < me {
                    if any {
                        p.fold(r.fold, spare.mem, result.mem, r.count)?;
                    } else {
                        p.copy(whole(&spare), whole(&result))?;
                        any = true;
                    }
                    p.fold(r.fold, spare.mem, sum.mem, r.count)?;
                } else {
                    p.fold(r.fold, sum.mem, spare.mem, r.count)?;
                    std::mem::swap(&mut sum, &mut spare);
                }
            }
            distance <<= 1;
        }
        return Ok(());
    }
    start(p, r, own)
}

fn start<P: Plan>(p: &mut P, r: &Reduction<'_>, own: ScanKind) -> Result<(), P::Error> {
    if own == ScanKind::Inclusive && !r.in_place() {
        p.copy(r.whole(r.input), r.whole(r.output))
    } else {
        Ok(())
    }
}

/// Each rank waits for the one before it and passes the sum on, in segments of `segment` elements,
/// so that many segments are under way at once: every element is combined once per rank. For large
/// data.
pub fn chain<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    own: ScanKind,
    segment: u64,
) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let (input, result) = (r.input(), r.output());
    let segment = segment.clamp(1, r.count.max(1));
    let spare = if me > 0 {
        Some(p.scratch_like(&result, segment)?)
    } else {
        None
    };
    let passing = if own == ScanKind::Exclusive && me + 1 < n {
        Some([
            p.scratch_like(&result, segment)?,
            p.scratch_like(&result, segment)?,
        ])
    } else {
        None
    };
    let mut sent = [None; 2];
    let mut first = 0;
    let mut turn = 0;
    while first < r.count {
        let count = segment.min(r.count - first);
        let at = first as i64;
        let before = match &spare {
            Some(spare) => {
                let token = p.recv(me - 1, spare.data(0, count))?;
                p.wait(token)?;
                Some(spare)
            }
            None => None,
        };
        match (own, &passing) {
            (ScanKind::Inclusive, _) => {
                if !r.in_place() {
                    p.copy(input.data(at, count), result.data(at, count))?;
                }
                if let Some(before) = before {
                    p.fold(r.fold, before.mem, result.at(at), count)?;
                }
                if me + 1 < n {
                    p.send(me + 1, result.data(at, count))?;
                }
            }
            (ScanKind::Exclusive, Some(passing)) => {
                if let Some(token) = sent[turn] {
                    p.wait(token)?;
                }
                p.copy(input.data(at, count), passing[turn].data(0, count))?;
                if let Some(before) = before {
                    p.fold(r.fold, before.mem, passing[turn].mem, count)?;
                    p.copy(before.data(0, count), result.data(at, count))?;
                }
                sent[turn] = Some(p.send(me + 1, passing[turn].data(0, count))?);
                turn = 1 - turn;
            }
            (ScanKind::Exclusive, None) => {
                if let Some(before) = before {
                    p.copy(before.data(0, count), result.data(at, count))?;
                }
            }
        }
        first += count;
    }
    Ok(())
}
