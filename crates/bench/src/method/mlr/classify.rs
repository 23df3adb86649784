//! What trials prove about a load (RFC 9971, Load Classification and Conditional Throughput).

use std::collections::BTreeMap;

use super::{Target, Trial};

/// Where a load stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The device keeps the goal here.
    Lower,
    /// It does not.
    Upper,
    /// More seconds could still turn it either way.
    Open,
}

/// The relevant bounds: the lowest load that is too high, and the highest good one below it. Good results above a
/// load that is too high are ignored, so loss that falls with rising load does not improve a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// None = no load keeps the goal.
    pub lower: Option<u64>,
    /// None = no load breaks it.
    pub upper: Option<u64>,
}

/// Every trial, by load.
#[derive(Debug, Clone, Default)]
pub struct Database {
    trials: BTreeMap<u64, Vec<Trial>>,
}

/// Seconds at one load, by what they showed. A long trial is at least as long as the target asks.
#[derive(Debug, Default)]
struct Seconds {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
}

impl Database {
    /// Several at one load are kept all.
    pub fn add(&mut self, trial: Trial) {
        self.trials.entry(trial.load_pps).or_default().push(trial);
    }

    /// By load, rising.
    pub fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values().flatten()
    }

    fn at(&self, load: u64) -> &[Trial] {
        self.trials.get(&load).map_or(&[], Vec::as_slice)
    }

    /// What its trials say of a load.
    pub fn standing(&self, load: u64, target: &Target) -> Standing {
        let seconds = Seconds::of(self.at(load), target);
        match (seconds.at_best(target), seconds.at_worst(target)) {
            (true, true) => Standing::Lower,
            (false, false) => Standing::Upper,
            _ => Standing::Open,
        }
    }

    /// What all trials say of a goal.
    pub fn bounds(&self, target: &Target) -> Bounds {
        let mut bounds = Bounds::default();
        for load in self.trials.keys() {
            match self.standing(*load, target) {
                Standing::Lower => bounds.lower = Some(*load),
                Standing::Upper => {
                    bounds.upper = Some(*load);
                    break;
                }
                Standing::Open => {}
            }
        }
        bounds
    }

    /// Load times what got through in the trial that stands at the goal's quantile of the long ones; seconds that are
    /// missing up to the sum count as lost altogether. `load` must be a lower bound.
    pub fn conditional_throughput(&self, load: u64, target: &Target) -> f64 {
        let mut long: Vec<&Trial> = self.at(load).iter().filter(|trial| target.is_long(trial)).collect();
        long.sort_by(|a, b| a.loss_ratio().total_cmp(&b.loss_ratio()));
        let measured: f64 = long.iter().map(|trial| trial.seconds).sum();
        let mut left = measured.max(target.sum_s) * (1.0 - target.exceed_ratio);
        let mut loss = None;
        for trial in long {
            // A share of zero still asks for the best trial.
            if loss.is_some() && left <= 0.0 {
                break;
            }
            loss = Some(trial.loss_ratio());
            left -= trial.seconds;
        }
        let loss = if left > 1e-9 { 1.0 } else { loss.unwrap_or(1.0) };
        load as f64 * (1.0 - loss)
    }
}

impl Target {
    fn is_long(&self, trial: &Trial) -> bool {
        trial.seconds >= self.trial_s
    }
}

impl Seconds {
    fn of(trials: &[Trial], target: &Target) -> Seconds {
        let mut seconds = Seconds::default();
        for trial in trials {
            let good = trial.loss_ratio() <= target.loss_ratio;
            let sum = match (target.is_long(trial), good) {
                (true, true) => &mut seconds.good_long,
                (true, false) => &mut seconds.bad_long,
                (false, true) => &mut seconds.good_short,
                (false, false) => &mut seconds.bad_short,
            };
            *sum += trial.seconds;
        }
        seconds
    }

    /// Bad seconds that count. Short trials never make a load good; bad ones count as far as good ones do not make up
    /// for them in the proportion that the goal allows.
    fn excess(&self, target: &Target) -> f64 {
        let forgiven = self.good_short * target.exceed_ratio / (1.0 - target.exceed_ratio);
        self.bad_long + (self.bad_short - forgiven).max(0.0)
    }

    fn whole(&self, target: &Target) -> f64 {
        (self.good_long + self.excess(target)).max(target.sum_s)
    }

    /// Is the load good if every missing second turns out good?
    fn at_best(&self, target: &Target) -> bool {
        self.excess(target) <= self.whole(target) * target.exceed_ratio
    }

    /// Is it good even if every missing second turns out bad?
    fn at_worst(&self, target: &Target) -> bool {
        self.whole(target) - self.good_long <= self.whole(target) * target.exceed_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Target = Target { loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.01, trial_s: 1.0, sum_s: 4.0 };

    fn database(trials: &[(u64, f64, f64)]) -> Database {
        let mut database = Database::default();
        for (load, seconds, loss) in trials {
            let sent = 1_000_000;
            let received = sent - (loss * sent as f64) as u64;
            database.add(Trial { load_pps: *load, seconds: *seconds, sent, received });
        }
        database
    }

    #[test]
    fn a_load_is_decided_as_soon_as_missing_seconds_cannot_change_it() {
        let standing = |losses: &[f64]| {
            let trials: Vec<_> = losses.iter().map(|loss| (100, 1.0, *loss)).collect();
            database(&trials).standing(100, &HALF)
        };
        assert_eq!(standing(&[]), Standing::Open);
        assert_eq!(standing(&[0.0]), Standing::Open);
        assert_eq!(standing(&[0.0, 0.0]), Standing::Lower);
        assert_eq!(standing(&[0.1, 0.0, 0.1]), Standing::Open);
        assert_eq!(standing(&[0.1, 0.1, 0.1]), Standing::Upper);
        let strict = Target { exceed_ratio: 0.0, ..HALF };
        assert_eq!(database(&[(5, 1.0, 0.1)]).standing(5, &strict), Standing::Upper);
        assert_eq!(database(&[(5, 1.0, 0.0); 3]).standing(5, &strict), Standing::Open);
        assert_eq!(database(&[(5, 1.0, 0.0); 4]).standing(5, &strict), Standing::Lower);
    }

    #[test]
    fn short_trials_count_only_against_a_load() {
        assert_eq!(database(&[(5, 0.5, 0.0); 20]).standing(5, &HALF), Standing::Open);
        assert_eq!(database(&[(5, 0.5, 0.1); 20]).standing(5, &HALF), Standing::Upper);
        // Good short ones make up for bad short ones.
        let mixed: Vec<_> = (0..20).map(|i| (5, 0.5, f64::from(i % 2) * 0.1)).collect();
        assert_eq!(database(&mixed).standing(5, &HALF), Standing::Open);
    }

    #[test]
    fn good_results_above_a_bad_load_are_ignored() {
        let mut trials = vec![(100, 4.0, 0.0), (200, 4.0, 0.1), (300, 4.0, 0.0)];
        assert_eq!(database(&trials).bounds(&HALF), Bounds { lower: Some(100), upper: Some(200) });
        trials.remove(0);
        assert_eq!(database(&trials).bounds(&HALF), Bounds { lower: None, upper: Some(200) });
    }

    #[test]
    fn throughput_is_what_got_through_at_the_goals_quantile() {
        let pdr = Target { loss_ratio: 0.2, ..HALF };
        let some = database(&[(100, 1.0, 0.0), (100, 1.0, 0.1), (100, 1.0, 0.2), (100, 1.0, 0.5)]);
        assert!((some.conditional_throughput(100, &pdr) - 90.0).abs() < 1e-6);
        let none = database(&[(100, 1.0, 0.0)]);
        assert_eq!(none.conditional_throughput(100, &pdr), 0.0, "missing seconds count as lost");
    }
}
