//! Memory by size of the capture: the same channels in a file with sixteen times the frames.

use anyhow::{Context as _, Result};

use super::{CAPTURES, CASES, Run, Shelf, analyse, options};
use crate::method::result::{Better, Check, Figure};
use crate::method::suite::Context;

const NAME: &str = "64 B: memory by size of the capture";
const FLOOR: &str = "a sixteenth of the capture";
const TIMES: u64 = 16;

/// `large`: what the first case's runs came to.
pub fn measure(context: &Context, shelf: &Shelf, large: &[Run]) -> Result<Option<Figure>> {
    if !context.wants(NAME) {
        return Ok(None);
    }
    let capture = &CAPTURES[CASES[0].capture];
    let packets = context.pick(capture.quick, capture.full) / TIMES;
    let file = shelf.capture(FLOOR, options(capture, packets))?;
    let run = || analyse(shelf, &file, &CASES[0]).context(FLOOR);
    let runs = || (0..large.len()).map(|_| run()).collect::<Result<Vec<_>>>();
    // twice (A/A)
    Ok(Some(figure(large, &runs()?, &runs()?)))
}

fn figure(large: &[Run], small: &[Run], again: &[Run]) -> Figure {
    let megabytes = |runs: &[Run]| runs.iter().map(|run| run.memory as f64 / 1e6).collect::<Vec<_>>();
    let (small_mb, again_mb) = (megabytes(small), megabytes(again));
    let figure = Figure::new(NAME, "MB", Better::Lower, megabytes(large));
    figure.against(FLOOR, &small_mb).same(&small_mb, &again_mb).check(only_the_file_grows(large, small))
}

/// Memory is by channels: files of as many channels are compared, one of which is so much larger.
fn only_the_file_grows(large: &[Run], small: &[Run]) -> Check {
    let as_meant = |(large, small): (&Run, &Run)| {
        large.channels == small.channels && large.frames >= TIMES * small.frames && small.memory > 0
    };
    let words = |run: Option<&Run>| {
        run.map_or("nothing".to_owned(), |run| format!("{} frames, {} channels", run.frames, run.channels))
    };
    let detail = format!("{} beside {}", words(large.first()), words(small.first()));
    Check::new("only the file grows", large.iter().zip(small).all(as_meant), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_larger_and_other_channels_are_seen() {
        let run = |frames, channels, memory| Run {
            seconds: 1.0,
            frames,
            channels,
            memory,
            seen_before: 0,
            copies: 0,
        };
        let small = [run(1000, 10, 20_000_000)];
        let judged = |large| figure(&[large], &small, &small);
        let good = judged(run(16_000, 10, 24_000_000));
        assert!(good.checks[0].passed && good.ratio.unwrap().value == 1.2);
        for wrong in [run(15_999, 10, 20_000_000), run(16_000, 11, 20_000_000)] {
            assert!(!judged(wrong).checks[0].passed);
        }
    }
}
