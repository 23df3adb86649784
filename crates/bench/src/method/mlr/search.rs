//! Which loads to try: coarse phases first, each beginning where the one before ended, all goals on one database.

use anyhow::{Result, ensure};

use super::{Bounds, Database, Goal, Standing, Target, Trial};

/// What a search is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The lowest load that is tried.
    pub min_pps: u64,
    /// The highest load that is tried: the ceiling of generator or link.
    pub max_pps: u64,
    /// All are searched for with the same trials.
    pub goals: Vec<Goal>,
    /// Seconds of trials after which the search gives up.
    pub most_s: f64,
}

/// What was found for a goal.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalResult {
    /// As it was asked for.
    pub goal: Goal,
    /// Highest load that keeps the goal; None: not even the lowest does.
    pub lower: Option<u64>,
    /// Lowest load that breaks it; None: not even the highest does, so the device was not brought to its limit.
    pub upper: Option<u64>,
    /// RFC 9971 Conditional Throughput.
    pub throughput_pps: Option<f64>,
}

/// What a search came to.
#[derive(Debug, Clone)]
pub struct Found {
    /// In the order of [`Config::goals`].
    pub goals: Vec<GoalResult>,
    /// In the order in which they were made.
    pub trials: Vec<Trial>,
    /// The trials took longer than allowed; the bounds are what was known by then.
    pub gave_up: bool,
}

/// `measure` makes one trial; it fails when the trial proves nothing (generator too slow, clock stretched).
pub fn search(config: &Config, measure: impl FnMut(u64, f64) -> Result<Trial>) -> Result<Found> {
    ensure!(
        0 < config.min_pps && config.min_pps < config.max_pps,
        "a search needs 0 < lowest load < highest load, not {} and {}",
        config.min_pps,
        config.max_pps
    );
    let mut search = Search { config, measure, known: Database::default(), trials: vec![], spent_s: 0.0 };
    let start = search.first_guess()?;
    let phases = config.goals.iter().map(Goal::phases).max().unwrap_or(0);
    let mut bounds = vec![start; config.goals.len()];
    for phase in 0..phases {
        for (goal, bounds) in config.goals.iter().zip(&mut bounds) {
            *bounds = search.narrow(&goal.target(phase.min(goal.coarse_phases)), *bounds)?;
        }
    }
    let goals = config.goals.iter().map(|goal| search.result(goal)).collect();
    Ok(Found { goals, gave_up: search.is_late(), trials: search.trials })
}

struct Search<'a, M> {
    config: &'a Config,
    measure: M,
    known: Database,
    trials: Vec<Trial>,
    spent_s: f64,
}

impl<M: FnMut(u64, f64) -> Result<Trial>> Search<'_, M> {
    fn is_late(&self) -> bool {
        self.spent_s >= self.config.most_s
    }

    fn clamp(&self, load: f64) -> u64 {
        (load.round() as u64).clamp(self.config.min_pps, self.config.max_pps)
    }

    fn trial(&mut self, load: u64, seconds: f64) -> Result<Trial> {
        let trial = (self.measure)(load, seconds)?;
        self.spent_s += seconds;
        self.known.add(trial);
        self.trials.push(trial);
        Ok(trial)
    }

    /// What gets through at the highest load is a good guess of what can get through, and the same again there.
    fn first_guess(&mut self) -> Result<Bounds> {
        let goals = &self.config.goals;
        let seconds = goals.iter().map(|goal| goal.initial_trial_s).fold(0.0, f64::max);
        let ratio = goals.iter().map(|goal| goal.loss_ratio).fold(1.0, f64::min);
        let mut upper = self.config.max_pps;
        for _ in 0..2 {
            let trial = self.trial(upper, seconds)?;
            let passed = self.clamp(upper as f64 * (1.0 - trial.loss_ratio()) / (1.0 - ratio));
            if trial.loss_ratio() <= ratio || passed >= upper {
                break;
            }
            upper = passed;
        }
        Ok(Bounds { lower: Some(upper), upper: None })
    }

    /// Brings the bounds of a target as close together as it asks, beginning where a coarser one ended.
    fn narrow(&mut self, target: &Target, start: Bounds) -> Result<Bounds> {
        let mut step = 1.0 - target.width;
        for load in [start.lower, start.upper].into_iter().flatten() {
            // A bound that turned over makes the other one useless.
            if self.known.bounds(target).upper.is_none_or(|upper| load < upper) {
                self.settle(load, target)?;
            }
        }
        loop {
            let bounds = self.known.bounds(target);
            let next = match (bounds.lower, bounds.upper) {
                _ if self.is_late() => return Ok(bounds),
                (Some(lower), Some(upper)) => match middle(lower, upper, target.width) {
                    Some(load) => load,
                    None => return Ok(bounds),
                },
                (Some(lower), None) if lower < self.config.max_pps => self.clamp(lower as f64 / step),
                (None, Some(upper)) if upper > self.config.min_pps => self.clamp(upper as f64 * step),
                _ => return Ok(bounds),
            };
            self.settle(next, target)?;
            // Outside a closed interval the steps double.
            step *= step;
        }
    }

    /// Tries a load until nothing can change what it is.
    fn settle(&mut self, load: u64, target: &Target) -> Result<()> {
        while self.known.standing(load, target) == Standing::Open && !self.is_late() {
            self.trial(load, target.trial_s)?;
        }
        Ok(())
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let target = goal.target(goal.coarse_phases);
        let Bounds { lower, upper } = self.known.bounds(&target);
        let throughput_pps = lower.map(|load| self.known.conditional_throughput(load, &target));
        GoalResult { goal: *goal, lower, upper, throughput_pps }
    }
}

/// The geometric middle, or None when the interval is narrow enough or nothing lies between.
fn middle(lower: u64, upper: u64, width: f64) -> Option<u64> {
    if (upper - lower) as f64 <= width * upper as f64 {
        return None;
    }
    let load = (lower as f64 * upper as f64).sqrt().round() as u64;
    (lower < load && load < upper).then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(goals: Vec<Goal>) -> Config {
        Config { min_pps: 1000, max_pps: 10_000_000, goals, most_s: 10_000.0 }
    }

    fn trial(load_pps: u64, seconds: f64, loss: f64) -> Trial {
        let sent = (load_pps as f64 * seconds) as u64;
        Trial { load_pps, seconds, sent, received: sent - (sent as f64 * loss).ceil() as u64 }
    }

    /// Forwards `capacity` packets a second and loses the rest.
    fn device(capacity: f64) -> impl FnMut(u64, f64) -> Result<Trial> {
        move |load, seconds| Ok(trial(load, seconds, (1.0 - capacity / load as f64).max(0.0)))
    }

    #[test]
    fn a_hard_limit_is_found_within_the_width_and_from_below() {
        for capacity in [1_234.0, 56_789.0, 1_000_000.0, 9_990_000.0] {
            let found = search(&config(vec![Goal::no_drop(1.0, 5.0, 0.005)]), device(capacity)).unwrap();
            let (lower, upper) = (found.goals[0].lower.unwrap() as f64, found.goals[0].upper.unwrap() as f64);
            assert!(lower <= capacity && capacity <= upper, "{capacity}: {lower} {upper}");
            assert!((upper - lower) / upper <= 0.005, "{capacity}: {lower} {upper}");
            assert_eq!(found.goals[0].throughput_pps, Some(lower));
            assert!(found.trials.len() < 60, "{} trials for {capacity}", found.trials.len());
        }
    }

    #[test]
    fn a_device_beyond_the_highest_load_has_no_upper_bound() {
        let found = search(&config(vec![Goal::strict(10.0, 0.01)]), device(1e9)).unwrap();
        assert_eq!((found.goals[0].lower, found.goals[0].upper), (Some(10_000_000), None));
    }

    #[test]
    fn a_device_that_always_loses_has_no_lower_bound() {
        let found = search(&config(vec![Goal::strict(10.0, 0.01)]), device(1.0)).unwrap();
        assert_eq!((found.goals[0].lower, found.goals[0].throughput_pps), (None, None));
        assert!(found.goals[0].upper.is_some());
    }

    #[test]
    fn rare_loss_is_forgiven_by_a_goal_with_an_exceed_ratio_and_not_by_a_strict_one() {
        let mut n = 0;
        let hiccups = |load: u64, seconds: f64| {
            n += 1;
            let loss = if load > 2_000_000 { 1.0 - 2e6 / load as f64 } else { f64::from(n % 5 == 0) * 1e-4 };
            Ok(trial(load, seconds, loss))
        };
        let goals = vec![
            Goal::no_drop(1.0, 11.0, 0.005),
            Goal { exceed_ratio: 0.0, ..Goal::no_drop(1.0, 11.0, 0.005) },
        ];
        let found = search(&config(goals), hiccups).unwrap();
        let lower = found.goals[0].lower.unwrap();
        assert!((1_980_000..=2_000_000).contains(&lower), "{lower}");
        assert!(found.goals[1].lower.is_none_or(|strict| strict < 1_000_000), "{:?}", found.goals[1]);
    }

    #[test]
    fn goals_share_trials() {
        let soft = |load: u64, seconds: f64| {
            let over = (load as f64 / 1e6 - 1.0).max(0.0);
            Ok(trial(load, seconds, (over * 0.05).min(1.0)))
        };
        let no_drop = Goal::no_drop(1.0, 5.0, 0.01);
        let both = search(&config(vec![no_drop, no_drop.partial_drop(0.005)]), soft).unwrap();
        let (ndr, pdr) = (both.goals[0].lower.unwrap(), both.goals[1].lower.unwrap());
        assert!((985_000..=1_000_000).contains(&ndr), "{ndr}");
        assert!((1_085_000..=1_100_000).contains(&pdr), "{pdr}");
    }

    #[test]
    fn a_search_that_takes_too_long_says_so() {
        let config = Config { most_s: 3.0, ..config(vec![Goal::no_drop(1.0, 20.0, 0.005)]) };
        let found = search(&config, device(77_777.0)).unwrap();
        assert!(found.gave_up && found.trials.len() <= 4);
    }

    #[test]
    fn a_trial_that_proves_nothing_ends_the_search() {
        let refuse = |_: u64, _: f64| anyhow::bail!("the generator sent half of it");
        assert!(search(&config(vec![Goal::strict(1.0, 0.01)]), refuse).is_err());
    }
}
