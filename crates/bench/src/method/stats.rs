//! Medians, paired ratios and bootstrap intervals. Everything is seeded: the same samples give the same interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// SplitMix64: enough for resampling and shuffling, and reproducible everywhere.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Any of 2^64.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..bound, by multiplication; the bias is below bound / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Every order equally likely (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Which change of a figure is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, losses.
    Lower,
    /// Rates.
    Higher,
}

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Median of the samples.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many samples it is made of.
    pub n: usize,
}

impl Estimate {
    /// The most of them, which is no matter of chance. Of no samples: NaN.
    pub fn worst(samples: &[f64]) -> Estimate {
        let most = samples.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
        Estimate { value: most, low: most, high: most, n: samples.len() }
    }
}

const RESAMPLES: usize = 10_000;
const SEED: u64 = 0x51_1c_e0;

/// Of no samples: NaN.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    median_of(&mut sorted)
}

fn median_of(samples: &mut [f64]) -> f64 {
    if samples.is_empty() {
        return f64::NAN;
    }
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    if samples.len() % 2 == 1 { samples[middle] } else { (samples[middle - 1] + samples[middle]) / 2.0 }
}

/// Median with the percentile bootstrap's 95 % interval.
pub fn estimate(samples: &[f64]) -> Estimate {
    let mut rng = Rng::new(SEED);
    let mut resample = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| samples[rng.below(samples.len())]);
            median_of(&mut resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize];
    let (low, high) = if samples.is_empty() { (f64::NAN, f64::NAN) } else { (at(0.025), at(0.975)) };
    Estimate { value: median(samples), low, high, n: samples.len() }
}

/// Median of the ratios taken within each round; what a round has in common (clock, neighbours) cancels.
pub fn paired_ratio(numerators: &[f64], denominators: &[f64]) -> Estimate {
    assert_eq!(numerators.len(), denominators.len(), "pairs are taken in the same rounds");
    let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(a, b)| a / b).collect();
    estimate(&ratios)
}

/// Ratio of the medians of two runs that share no rounds; each is resampled by itself.
pub fn ratio_of_medians(numerators: &[f64], denominators: &[f64]) -> Estimate {
    let n = numerators.len().min(denominators.len());
    if n == 0 {
        return Estimate { value: f64::NAN, low: f64::NAN, high: f64::NAN, n };
    }
    let mut rng = Rng::new(SEED);
    let mut resampled = |samples: &[f64]| {
        let mut resample: Vec<f64> = samples.iter().map(|_| samples[rng.below(samples.len())]).collect();
        median_of(&mut resample)
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled(numerators) / resampled(denominators)).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * (RESAMPLES - 1) as f64).round() as usize];
    Estimate { value: median(numerators) / median(denominators), low: at(0.025), high: at(0.975), n }
}

/// Half the interquartile range over the median, whatever its sign: how far the rounds are apart. Around nothing any spread
/// is infinite. Of fewer than four rounds nothing can be left out.
pub fn dispersion(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() < 2 {
        return 0.0;
    }
    let (low, high) = (sorted[sorted.len() / 4], sorted[sorted.len() - 1 - sorted.len() / 4]);
    if high == low { 0.0 } else { (high - low) / 2.0 / median(&sorted).abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_no_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_outlier_moves_the_median_little() {
        assert_eq!(median(&[10.0, 11.0, 12.0, 13.0, 900.0]), 12.0);
    }

    #[test]
    fn the_generator_is_the_published_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[rng.below(5)] += 1);
        assert!(seen.iter().all(|count| (140..260).contains(count)), "{seen:?}");
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<usize> = (0..1000).collect();
        Rng::new(3).shuffle(&mut items);
        assert!(items.iter().enumerate().filter(|(i, item)| i == *item).count() < 20);
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_interval_holds_the_median_and_is_reproducible() {
        let samples: Vec<f64> = (0..15).map(|i| 100.0 + f64::from(i * 7 % 15)).collect();
        let first = estimate(&samples);
        assert_eq!(first, estimate(&samples));
        assert!(first.low <= first.value && first.value <= first.high);
        assert!(first.low >= 100.0 && first.high <= 114.0);
    }

    #[test]
    fn the_interval_covers_the_true_median_about_95_times_in_100() {
        let mut rng = Rng::new(11);
        let uniform = |rng: &mut Rng| rng.below(1_000_000) as f64;
        let covered = (0..200)
            .filter(|_| {
                let samples: Vec<f64> = (0..15).map(|_| uniform(&mut rng)).collect();
                let estimate = estimate(&samples);
                estimate.low <= 500_000.0 && 500_000.0 <= estimate.high
            })
            .count();
        assert!((178..=200).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn pairing_cancels_what_a_round_has_in_common() {
        let speed = [1.0, 3.0, 0.5, 2.0, 1.5, 0.7, 9.0, 1.1, 1.0];
        let floor: Vec<f64> = speed.iter().map(|s| 50.0 * s).collect();
        let target: Vec<f64> = speed.iter().map(|s| 90.0 * s).collect();
        let ratio = paired_ratio(&target, &floor);
        assert!((ratio.value - 1.8).abs() < 1e-9 && ratio.high - ratio.low < 1e-9);
    }

    #[test]
    fn equal_contestants_differ_by_nothing_significant() {
        let mut rng = Rng::new(5);
        let mut noise = || 100.0 + rng.below(1000) as f64 / 100.0;
        let (a, b): (Vec<f64>, Vec<f64>) = (0..15).map(|_| (noise(), noise())).unzip();
        let ratio = paired_ratio(&a, &b);
        assert!(ratio.low <= 1.0 && 1.0 <= ratio.high, "{ratio:?}");
    }

    #[test]
    fn dispersion_of_equal_rounds_and_of_others() {
        assert_eq!(dispersion(&[10.0; 9]), 0.0);
        assert_eq!(dispersion(&[10.0]), 0.0);
        assert!(dispersion(&[10.0, 14.0, 10.0]) > 0.15, "three rounds are judged whole");
        assert!(dispersion(&[10.0, 10.0, 15.0, 15.0, 10.0, 15.0, 10.0, 15.0]) > 0.15);
        assert!(dispersion(&[-10.0, -14.0, -10.0]) > 0.15, "differences may be negative");
        assert!(dispersion(&[-1.0, 0.0, 1.0]).is_infinite() && dispersion(&[0.0; 5]) == 0.0);
    }
}
