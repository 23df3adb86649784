//! Interleaved rounds: every contestant runs in every round, in rotating order.

use anyhow::Result;
use sluice_lab::interrupt;

use crate::method::watch;

/// Samples of every contestant, in round order: `samples[contestant][round]`. The machine is watched meanwhile.
pub fn interleave(
    contestants: usize,
    rounds: usize,
    mut run: impl FnMut(usize, usize) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    watch::over(|| {
        let mut samples = vec![Vec::with_capacity(rounds); contestants];
        for round in 0..rounds {
            for position in 0..contestants {
                let contestant = (position + round) % contestants;
                interrupt::check()?;
                watch::walk();
                samples[contestant].push(run(contestant, round)?);
            }
        }
        Ok(samples)
    })
}

/// The samples of one contestant alone.
pub fn alone(rounds: usize, mut run: impl FnMut(usize) -> Result<f64>) -> Result<Vec<f64>> {
    let mut one = |round| {
        interrupt::check()?;
        watch::walk();
        run(round)
    };
    watch::over(|| (0..rounds).map(&mut one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_runs_once_a_round_and_leads_in_turn() {
        let mut order = vec![];
        let samples = interleave(3, 3, |contestant, round| {
            order.push(contestant);
            Ok((10 * contestant + round) as f64)
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(samples[2], [20.0, 21.0, 22.0]);
    }
}
