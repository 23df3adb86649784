//! Delays with a sign: clocks of two taps seldom agree.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Distribution of delays, nanoseconds. Percentiles are exact to 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// How many were measured.
    pub packets: u64,
    /// The shortest; negative where clocks disagree.
    pub min_ns: i64,
    /// Arithmetic mean.
    pub mean_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 90 % were not longer.
    pub p90_ns: i64,
    /// 99 % were not longer.
    pub p99_ns: i64,
    /// 99.9 % were not longer.
    pub p999_ns: i64,
    /// The longest.
    pub max_ns: i64,
    /// Packets that seem to have come before they went: the clocks differ.
    pub negative: u64,
}

/// Delays from tap A to tap B as they come in.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
    /// Magnitudes of those below zero, and of the others.
    parts: [Option<Box<Histogram<u64>>>; 2],
}

impl Delays {
    pub fn record(&mut self, delay_ns: i64) {
        if self.count == 0 {
            (self.min, self.max) = (delay_ns, delay_ns);
        }
        self.count += 1;
        self.sum += i128::from(delay_ns);
        self.min = self.min.min(delay_ns);
        self.max = self.max.max(delay_ns);
        let part = &mut self.parts[usize::from(delay_ns >= 0)];
        let part = part.get_or_insert_with(|| Box::new(Histogram::new(2).expect("two digits are allowed")));
        part.record(delay_ns.unsigned_abs()).expect("it resizes itself");
    }

    pub fn add(&mut self, other: &Delays) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        for (part, more) in self.parts.iter_mut().zip(&other.parts) {
            match (part.as_mut(), more) {
                (Some(part), Some(more)) => part.add(&**more).expect("both resize themselves"),
                (None, Some(more)) => *part = Some(more.clone()),
                (_, None) => {}
            }
        }
    }

    /// Shortest and longest, from A to B.
    pub fn range(&self) -> Option<(i64, i64)> {
        (self.count > 0).then_some((self.min, self.max))
    }

    pub fn mean(&self) -> Option<i64> {
        (self.count > 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }

    /// The delay that `share` of the packets do not exceed.
    fn quantile(&self, share: f64) -> i64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let below = self.parts[0].as_ref().map_or(0, |part| part.len());
        let at = |part: &Option<Box<Histogram<u64>>>, rank: u64| {
            let part = part.as_ref().expect("a rank within its count");
            part.value_at_quantile(rank as f64 / part.len() as f64) as i64
        };
        let value = match rank <= below {
            // The longest magnitude below zero is the shortest delay.
            true => -at(&self.parts[0], below - rank + 1),
            false => at(&self.parts[1], rank - below),
        };
        value.clamp(self.min, self.max)
    }

    /// In the direction that packets took.
    pub fn summary(&self, backwards: bool) -> Option<Delay> {
        let (shortest, longest) = self.range()?;
        let below = self.parts[0].as_ref().map_or(0, |part| part.len());
        let zero = self.parts[1].as_ref().map_or(0, |part| part.count_between(0, 0));
        let of = |share: f64| {
            if backwards { -self.quantile(1.0 - share + f64::EPSILON) } else { self.quantile(share) }
        };
        let mean_ns = self.mean()?;
        Some(Delay {
            packets: self.count,
            min_ns: if backwards { -longest } else { shortest },
            mean_ns: if backwards { -mean_ns } else { mean_ns },
            p50_ns: of(0.5),
            p90_ns: of(0.9),
            p99_ns: of(0.99),
            p999_ns: of(0.999),
            max_ns: if backwards { -shortest } else { longest },
            negative: if backwards { self.count - below - zero } else { below },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_cross_zero_and_turn_round() {
        let mut delays = Delays::default();
        (-50..50).for_each(|delay| delays.record(delay));
        let there = delays.summary(false).unwrap();
        assert_eq!((there.packets, there.min_ns, there.max_ns, there.negative), (100, -50, 49, 50));
        assert_eq!((there.p50_ns, there.p90_ns, there.p99_ns), (-1, 39, 48));
        let back = delays.summary(true).unwrap();
        assert_eq!((back.min_ns, back.max_ns, back.negative), (-49, 50, 49));
        assert!((39..=41).contains(&back.p90_ns), "{}", back.p90_ns);
    }

    #[test]
    fn sums_are_as_if_recorded_together() {
        let (mut one, mut other, mut all) = (Delays::default(), Delays::default(), Delays::default());
        for delay in 0..1000i64 {
            if delay % 3 == 0 { &mut one } else { &mut other }.record(delay * 1000 - 20_000);
            all.record(delay * 1000 - 20_000);
        }
        one.add(&other);
        assert_eq!(one.summary(false), all.summary(false));
    }
}
