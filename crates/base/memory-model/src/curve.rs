//! Times by size: a curve through measured points.

use serde::{Deserialize, Serialize};

/// Time of one access to a block of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    /// Bytes of the block.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: f64,
}

/// Times of accesses to blocks, by size, from small to large.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CostCurve {
    points: Vec<CostPoint>,
}

impl CostCurve {
    /// Makes a curve. `None`: sizes do not grow, or a time is not a positive number.
    pub fn new(points: Vec<CostPoint>) -> Option<Self> {
        let grows = points.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        let is_sound =
            |point: &CostPoint| point.bytes > 0 && point.ns.is_finite() && point.ns > 0.0;
        (grows && points.iter().all(is_sound)).then_some(Self { points })
    }

    /// Returns whether the curve obeys what [`CostCurve::new`] asks for: one from a file may not.
    pub fn is_sound(&self) -> bool {
        !self.points.is_empty() && Self::new(self.points.clone()).is_some()
    }

    /// Measured points.
    pub fn points(&self) -> &[CostPoint] {
        &self.points
    }

    /// Nanoseconds per byte for a block of `bytes`: between two points in proportion to the
    /// logarithm of the size, beyond the ends as at the ends. `None`: there is no point.
    pub fn ns_per_byte(&self, bytes: u64) -> Option<f64> {
        let rate = |point: &CostPoint| point.ns / point.bytes as f64;
        let after = self.points.partition_point(|point| point.bytes < bytes);
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return None;
        };
        if after == 0 {
            return Some(rate(first));
        }
        let Some(upper) = self.points.get(after) else {
            return Some(rate(last));
        };
        let lower = &self.points[after - 1];
        let span = (upper.bytes as f64 / lower.bytes as f64).ln();
        let share = (bytes as f64 / lower.bytes as f64).ln() / span;
        Some(rate(lower) + share * (rate(upper) - rate(lower)))
    }

    /// Nanoseconds for `bytes` of a block. `None`: there is no point.
    pub fn ns(&self, bytes: u64) -> Option<f64> {
        Some(self.ns_per_byte(bytes)? * bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Option<CostCurve> {
        let points = points.iter().map(|&(bytes, ns)| CostPoint { bytes, ns });
        CostCurve::new(points.collect())
    }

    #[test]
    fn a_curve_goes_through_its_points_and_between_them() {
        let curve = curve(&[(1024, 1024.0), (4096, 8192.0), (8192, 16384.0)]).unwrap();
        assert_eq!(curve.ns(1024), Some(1024.0));
        assert_eq!(curve.ns(4096), Some(8192.0));
        assert_eq!(curve.ns_per_byte(2048), Some(1.5));
        assert_eq!(
            (curve.ns(64), curve.ns(1 << 20)),
            (Some(64.0), Some(2.0 * f64::from(1 << 20)))
        );
        assert_eq!(CostCurve::default().ns(1), None);
    }

    #[test]
    fn what_is_no_time_makes_no_curve() {
        for points in [
            &[(1, f64::NAN)][..],
            &[(1, 0.0)],
            &[(1, -1.0)],
            &[(1, f64::INFINITY)],
            &[(0, 1.0)],
            &[(2, 1.0), (2, 1.0)],
            &[(4, 1.0), (2, 1.0)],
        ] {
            assert_eq!(curve(points), None, "{points:?}");
        }
        assert!(!CostCurve::default().is_sound());
    }
}
