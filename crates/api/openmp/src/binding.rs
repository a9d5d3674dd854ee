//! Which places the threads of a new team get.

use crate::icv::ProcBind;

/// Places of `count` threads under a binding, and the partition of each.
pub(crate) fn distribute(
    bind: ProcBind,
    own: usize,
    partition: (usize, usize),
    count: usize,
) -> Vec<(usize, (usize, usize))> {
    let (first, places) = partition;
    let places = places.max(1);
    let offset = own.saturating_sub(first) % places;
    let at = |step: usize| first + (offset + step) % places;
    match bind {
        ProcBind::False | ProcBind::True | ProcBind::Close => (0..count)
            .map(|thread| {
                let step = if count <= places {
                    thread
                } else {
                    // The first places have one thread more.
                    let (each, rest) = (count / places, count % places);
                    let large = rest * (each + 1);
                    if thread < large {
                        thread / (each + 1)
                    } else {
                        rest + (thread - large) / each
                    }
                };
                (at(step), partition)
            })
            .collect(),
        ProcBind::Primary => vec![(own, partition); count],
        ProcBind::Spread if count <= places => {
            // Parts of the partition, the larger ones first.
            let (each, rest) = (places / count, places % count);
            let start = |part: usize| part * each + part.min(rest);
            let own_part = (0..count).rfind(|part| start(*part) <= offset).unwrap_or(0);
            (0..count)
                .map(|thread| {
                    let part = (own_part + thread) % count;
                    let size = each + usize::from(part < rest);
                    let place = if thread == 0 {
                        own
                    } else {
                        first + start(part)
                    };
                    (place, (first + start(part), size))
                })
                .collect()
        }
        ProcBind::Spread => {
            let close = distribute(ProcBind::Close, own, partition, count);
            close
                .into_iter()
                .map(|(place, _)| (place, (place, 1)))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(bind: ProcBind, own: usize, count: usize) -> Vec<usize> {
        let found = distribute(bind, own, (0, 4), count);
        found.into_iter().map(|(place, _)| place).collect()
    }

    #[test]
    fn threads_are_bound_as_asked() {
        assert_eq!(places(ProcBind::Close, 1, 3), [1, 2, 3]);
        assert_eq!(places(ProcBind::Close, 0, 6), [0, 0, 1, 1, 2, 3]);
        assert_eq!(places(ProcBind::Primary, 2, 3), [2, 2, 2]);
        assert_eq!(places(ProcBind::Spread, 0, 2), [0, 2]);
        assert_eq!(places(ProcBind::Spread, 3, 2), [3, 0]);
        let parts = distribute(ProcBind::Spread, 0, (0, 4), 2);
        assert_eq!(parts, [(0, (0, 2)), (2, (2, 2))]);
    }
}
