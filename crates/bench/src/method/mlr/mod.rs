//! Multiple Loss Ratio search (RFC 9971): the highest loads that keep given loss ratios, found with few trials.
//!
//! A device under test is a function from (load, seconds) to a trial. `classify` says what trials prove about a load,
//! `search` chooses the loads. Loads are whole packets a second, so that a load measured again is the same load.

mod classify;
mod search;

pub use classify::{Bounds, Database, Standing};
pub use search::{Config, Found, GoalResult, search};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is searched for (RFC 9971, Search Goal).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// A trial that loses a larger share than this is bad.
    pub loss_ratio: f64,
    /// Share of the seconds at a load that bad trials may make up before the load counts as too high.
    pub exceed_ratio: f64,
    /// (upper - lower) / upper at which the search ends.
    pub width: f64,
    /// Length of the first, coarse trials, and of those that count in the end.
    pub initial_trial_s: f64,
    /// Length of the trials that count in the end.
    pub final_trial_s: f64,
    /// Seconds of trials at one load that decide about it.
    pub sum_s: f64,
    /// Coarser searches before the last one.
    pub coarse_phases: u32,
}

/// A goal as one phase of the search applies it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// As [`Goal::loss_ratio`].
    pub loss_ratio: f64,
    /// As [`Goal::exceed_ratio`].
    pub exceed_ratio: f64,
    /// As [`Goal::width`], or wider in a coarse phase.
    pub width: f64,
    /// Shorter trials only count against a load.
    pub trial_s: f64,
    /// As [`Goal::sum_s`], or less in a coarse phase.
    pub sum_s: f64,
}

/// One trial as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Offered, packets a second.
    pub load_pps: u64,
    /// As ordered.
    pub seconds: f64,
    /// Packets that left the generator.
    pub sent: u64,
    /// Packets that arrived at the receiver.
    pub received: u64,
}

impl Goal {
    /// No loss in most trials: half of the seconds may see loss, which forgives a disturbance from outside.
    pub fn no_drop(trial_s: f64, sum_s: f64, width: f64) -> Goal {
        Goal {
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width,
            initial_trial_s: trial_s,
            final_trial_s: trial_s,
            sum_s,
            coarse_phases: 2,
        }
    }

    /// The same with a share of loss that is let pass ("partial drop rate").
    pub fn partial_drop(self, loss_ratio: f64) -> Goal {
        Goal { loss_ratio, ..self }
    }

    /// RFC 2544 section 26.1: one long trial without any loss.
    pub fn strict(trial_s: f64, width: f64) -> Goal {
        Goal {
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width,
            initial_trial_s: 1.0f64.min(trial_s),
            final_trial_s: trial_s,
            sum_s: trial_s,
            coarse_phases: 2,
        }
    }

    /// The last one included.
    pub fn phases(&self) -> u32 {
        self.coarse_phases + 1
    }

    /// Phase 0 is the coarsest: shortest sum, widest interval; the last one is the goal itself.
    pub fn target(&self, phase: u32) -> Target {
        let left = self.coarse_phases.saturating_sub(phase);
        let sum_s = match left {
            0 => self.sum_s,
            left => {
                let shrink =
                    (self.initial_trial_s / self.sum_s).powf(f64::from(left) / f64::from(self.coarse_phases));
                self.sum_s * shrink
            }
        };
        Target {
            loss_ratio: self.loss_ratio,
            exceed_ratio: self.exceed_ratio,
            width: (self.width * f64::from(1u32 << left)).min(0.5),
            trial_s: self.final_trial_s.min(sum_s),
            sum_s,
        }
    }
}

impl Trial {
    /// Lost of sent, 0 to 1.
    pub fn loss_ratio(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => sent.saturating_sub(self.received) as f64 / sent as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_from_one_short_trial_to_the_goal() {
        let goal = Goal::no_drop(1.0, 16.0, 0.005);
        let sums: Vec<f64> = (0..goal.phases()).map(|phase| goal.target(phase).sum_s).collect();
        assert_eq!(sums, [1.0, 4.0, 16.0]);
        let widths: Vec<f64> = (0..goal.phases()).map(|phase| goal.target(phase).width).collect();
        assert_eq!(widths, [0.02, 0.01, 0.005]);
        assert_eq!(Goal::strict(60.0, 0.01).target(2).trial_s, 60.0);
        assert!(Goal::strict(60.0, 0.01).target(0).trial_s - 1.0 < 1e-9);
    }

    #[test]
    fn nothing_sent_is_nothing_lost() {
        let trial = Trial { load_pps: 10, seconds: 1.0, sent: 0, received: 0 };
        assert_eq!(trial.loss_ratio(), 0.0);
        assert_eq!(Trial { sent: 10, received: 9, ..trial }.loss_ratio(), 0.1);
    }
}
