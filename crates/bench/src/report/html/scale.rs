//! From values to positions, and where the ticks stand.

/// One axis of a chart: a domain of values laid over a range of positions.
#[derive(Debug, Clone)]
pub struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// On a logarithmic axis zero has no place: it gets one of its own, this far before `from`.
    zero: Option<f64>,
}

const MOST_LINEAR_TICKS: f64 = 7.0;
/// Over more decades the lines between them would only be grey.
const MOST_DECADES_WITH_PARTS: f64 = 3.5;
/// Room between a logarithmic axis and its place for zero.
const ZERO_ROOM: f64 = 22.0;

impl Scale {
    /// Linear from zero (or the lowest negative value) to a round number; logarithmic between whole or half decades.
    pub fn over(values: impl IntoIterator<Item = f64>, log: bool, from: f64, to: f64) -> Scale {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        if log && values.iter().any(|value| *value > 0.0) {
            logarithmic(&values, from, to)
        } else {
            linear(&values, from, to)
        }
    }

    /// A domain that is already round.
    pub fn fixed(low: f64, high: f64, from: f64, to: f64) -> Scale {
        Scale { log: false, low, high, from, to, zero: None }
    }

    /// Logarithmic, exactly as wide as it is told.
    pub fn fixed_log(low: f64, high: f64, from: f64, to: f64) -> Scale {
        Scale { log: true, low, high, from, to, zero: None }
    }

    pub fn at(&self, value: f64) -> f64 {
        let share = if !self.log {
            (value - self.low) / (self.high - self.low)
        } else if value > 0.0 {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            return self.zero.unwrap_or(self.from);
        };
        self.from + share.clamp(-0.02, 1.02) * (self.to - self.from)
    }

    /// (value, position, label); minor ticks have no label.
    pub fn ticks(&self) -> Vec<(f64, f64, String)> {
        let mut ticks: Vec<(f64, String)> = if self.log { self.log_ticks() } else { self.linear_ticks() };
        if self.zero.is_some() {
            ticks.insert(0, (0.0, "0".to_owned()));
        }
        ticks.into_iter().map(|(value, label)| (value, self.at(value), label)).collect()
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_step((self.high - self.low) / MOST_LINEAR_TICKS);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).map(|value| (value, label(value, step))).collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let decades = (self.high / self.low).log10();
        let labelled: &[u32] = if decades <= 1.2 {
            &[1, 2, 3, 5, 7]
        } else if decades <= 2.5 {
            &[1, 2, 5]
        } else {
            &[1]
        };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let mut ticks = vec![];
        for decade in first..=last {
            for digit in 1..10u32 {
                let value = f64::from(digit) * 10f64.powi(decade);
                if value >= self.low * 0.999 && value <= self.high * 1.001 {
                    let sparse = decades > 6.5 && decade.rem_euclid(2) != 0;
                    let named = labelled.contains(&digit) && !sparse;
                    if named || decades <= MOST_DECADES_WITH_PARTS {
                        ticks.push((value, if named { label(value, value) } else { String::new() }));
                    }
                }
            }
        }
        ticks
    }
}

fn linear(values: &[f64], from: f64, to: f64) -> Scale {
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(0.0, f64::min);
    let (least, most) = if most > least { (least, most) } else { (0.0, 1.0) };
    let step = nice_step((most - least) / MOST_LINEAR_TICKS);
    let high = (most / step).ceil() * step;
    let low = (least / step).floor() * step;
    Scale { log: false, low, high, from, to, zero: None }
}

fn logarithmic(values: &[f64], from: f64, to: f64) -> Scale {
    let positive = || values.iter().copied().filter(|value| *value > 0.0);
    let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    let (mut low, mut high) = (round_down(least), round_up(most));
    if high / low < 5.0 {
        (low, high) = (low / 2.0, high * 2.0);
    }
    let zero = values.contains(&0.0);
    let towards = (to - from).signum();
    let (start, zero) = if zero { (from + towards * ZERO_ROOM, Some(from)) } else { (from, None) };
    Scale { log: true, low, high, from: start, to, zero }
}

/// 1, 2 or 5 times a power of ten at or below.
fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let digit = [5.0, 2.0, 1.0].into_iter().find(|digit| digit * decade <= value * 1.000_001);
    digit.unwrap_or(1.0) * decade
}

fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * decade >= value * 0.999_999);
    digit.unwrap_or(10.0) * decade
}

fn nice_step(rough: f64) -> f64 {
    let decade = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * decade >= rough * 0.999_999);
    digit.unwrap_or(10.0) * decade
}

/// As short as the step allows: 0.25, 40, 1.5k, 2M.
fn label(value: f64, step: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    let (divisor, suffix) = match magnitude {
        m if m >= 1e9 => (1e9, "G"),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e4 => (1e3, "k"),
        m if m < 0.999e-3 => return format!("{value:.0e}"),
        _ => (1.0, ""),
    };
    let step = step / divisor;
    let digits = (0..6).find(|digits| {
        (step * 10f64.powi(*digits)).fract() < 1e-6 || (step * 10f64.powi(*digits)).fract() > 1.0 - 1e-6
    });
    format!("{:.*}{suffix}", digits.unwrap_or(3) as usize, value / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, _, label)| label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_round() {
        let scale = Scale::over([3.2, 6.85], false, 0.0, 100.0);
        assert_eq!(labels(&scale), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!((scale.at(0.0), scale.at(7.0)), (0.0, 100.0));
        assert_eq!(labels(&Scale::over([0.9], false, 0.0, 1.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&Scale::over([-4.0, 9.0], false, 0.0, 1.0)).first().unwrap(), "-4");
    }

    #[test]
    fn logarithmic_axes_name_decades_and_their_parts() {
        let scale = Scale::over([1.0, 1_000_000.0], true, 0.0, 60.0);
        assert_eq!(labels(&scale), ["1", "10", "100", "1000", "10k", "100k", "1M"]);
        assert!((scale.at(1000.0) - 30.0).abs() < 1e-9);
        assert_eq!(labels(&Scale::over([21.0, 460.0], true, 0.0, 1.0)), ["20", "50", "100", "200", "500"]);
    }

    #[test]
    fn zero_has_a_place_of_its_own_on_a_logarithmic_axis() {
        let scale = Scale::over([0.0, 1e-6, 0.1], true, 100.0, 0.0);
        assert_eq!(scale.at(0.0), 100.0);
        assert_eq!(scale.at(1e-6), 100.0 - ZERO_ROOM);
        assert_eq!(labels(&scale).first().unwrap(), "0");
    }

    #[test]
    fn degenerate_data_makes_a_chart_all_the_same() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![5.0]] {
            for log in [false, true] {
                let scale = Scale::over(values.clone(), log, 0.0, 100.0);
                assert!(scale.ticks().iter().all(|(_, at, _)| at.is_finite()), "{values:?}");
                assert!(scale.ticks().len() >= 2, "{values:?} {log}");
            }
        }
    }
}
