//! One-way times, in buckets of which each is 6 % wide.

use crate::generator::layouts::{WIRE_BUCKETS, WIRE_SUB_BITS};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    buckets: Vec<u64>,
}

impl Latency {
    pub fn new() -> Latency {
        Latency { buckets: vec![0; WIRE_BUCKETS as usize] }
    }

    pub fn add(&mut self, bucket: usize, count: u64) {
        self.buckets[bucket] += count;
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The value below which `percent` of all lie, nanoseconds; NaN when there are none.
    pub fn percentile(&self, percent: f64) -> f64 {
        let wanted = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle(bucket);
            }
        }
        f64::NAN
    }

    /// Percentile and nanoseconds, for a chart: denser towards the end.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let percents =
            [0.0, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];
        percents.iter().map(|percent| (*percent, self.percentile(*percent))).collect()
    }
}

/// The middle of a bucket, nanoseconds.
fn middle(bucket: usize) -> f64 {
    let sub = 1usize << WIRE_SUB_BITS;
    if bucket < 2 * sub {
        return bucket as f64;
    }
    let octave = (bucket >> WIRE_SUB_BITS) - 1;
    let first = ((bucket - (octave << WIRE_SUB_BITS)) as u64) << octave;
    first as f64 + ((1u64 << octave) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the program does it.
    fn bucket_of(ns: u64) -> usize {
        let octave = (64 - ns.leading_zeros()).saturating_sub(WIRE_SUB_BITS + 1);
        ((octave as usize) << WIRE_SUB_BITS) + (ns >> octave) as usize
    }

    #[test]
    fn buckets_are_narrow_and_have_no_gaps() {
        for ns in [0, 1, 31, 32, 33, 100, 1000, 12_345, 1_000_000, 999_999_999] {
            let found = middle(bucket_of(ns));
            assert!((found - ns as f64).abs() <= 0.04 * ns as f64 + 0.5, "{ns}: {found}");
        }
        assert!((1..100_000).all(|ns| bucket_of(ns) - bucket_of(ns - 1) <= 1));
        assert!(bucket_of(1 << 40) < WIRE_BUCKETS as usize);
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut latency = Latency::new();
        for ns in 1..=1000u64 {
            latency.add(bucket_of(ns * 1000), 1);
        }
        for (percent, ns) in [(50.0, 500_000.0), (99.0, 990_000.0), (100.0, 1_000_000.0)] {
            assert!((latency.percentile(percent) / ns - 1.0).abs() < 0.05, "{percent}");
        }
        assert!(Latency::new().percentile(50.0).is_nan());
    }
}
