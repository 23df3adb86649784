//! The chi-square test of equal shares, and how small an unfairness a number of packets can show.

/// Counts that should be equal, judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    pub statistic: f64,
    pub freedom: u32,
    /// How likely equal chances are to give counts at least as unequal.
    pub p: f64,
    /// Largest relative deviation from an equal share.
    pub worst: f64,
}

/// Pearson's test of `counts` against equal shares. Every share must expect at least five (Cochran's rule).
pub fn equal_shares(counts: &[u64]) -> Option<Fit> {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    if counts.len() < 2 || expected < 5.0 {
        return None;
    }
    let deviation = |count: &u64| *count as f64 - expected;
    let statistic: f64 = counts.iter().map(|count| deviation(count).powi(2) / expected).sum();
    let worst = counts.iter().map(|count| (deviation(count) / expected).abs()).fold(0.0, f64::max);
    let freedom = counts.len() as u32 - 1;
    Some(Fit { statistic, freedom, p: upper_tail(f64::from(freedom) / 2.0, statistic / 2.0), worst })
}

/// Regularised upper incomplete gamma function Q(a, x): DLMF 8.11.4 below a + 1, 8.9.2 above.
fn upper_tail(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - scale * sum;
    }
    scale * continued_fraction(a, x)
}

/// By the modified Lentz method.
fn continued_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut value = d;
    for i in 1..10_000 {
        let numerator = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        let nonzero = |y: f64| if y.abs() < TINY { TINY } else { y };
        d = 1.0 / nonzero(numerator * d + b);
        c = nonzero(b + numerator / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// Stirling's series (DLMF 5.11.1) after shifting the argument above 10.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::stats::Rng;

    #[test]
    fn tails_are_those_of_the_tables() {
        // Critical values of the chi-square distribution at 5 %, 1 % and 50 %.
        for (freedom, statistic, p) in [
            (1.0, 3.841_459, 0.05),
            (3.0, 7.814_728, 0.05),
            (3.0, 11.344_867, 0.01),
            (10.0, 18.307_038, 0.05),
            (100.0, 124.342_113, 0.05),
            (4.0, 3.356_694, 0.5),
        ] {
            let found = upper_tail(freedom / 2.0, statistic / 2.0);
            assert!((found - p).abs() < 1e-5, "{freedom} {statistic}: {found}");
        }
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn chance_is_not_called_unfair_and_a_planted_tenth_is() {
        let mut rng = Rng::new(1);
        let mut alarms = 0;
        for _ in 0..400 {
            let mut counts = [0; 4];
            (0..5000).for_each(|_| counts[rng.below(4)] += 1);
            alarms += u32::from(equal_shares(&counts).unwrap().p < 0.05);
        }
        assert!((6..=36).contains(&alarms), "{alarms} of 400 at 5 %");
        let planted = equal_shares(&[13_750, 12_084, 12_083, 12_083]).unwrap();
        assert!(planted.p < 1e-9 && (planted.worst - 0.1).abs() < 1e-3, "{planted:?}");
    }

    #[test]
    fn ninety_packets_prove_no_fairness() {
        // 36, 27, 27: one receiver gets a fifth more than its share, and chance would do as much.
        assert!(equal_shares(&[36, 27, 27]).unwrap().p > 0.3);
        assert!(equal_shares(&[4, 4, 4]).is_none());
    }
}
