//! Whether the last cache is ours: guests of one host share it, and no counter of a guest says so. A walk over more memory
//! than the caches of a core hold takes several times as long while others fill what is behind them.

use std::hint::black_box;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use crate::method::stats::Rng;

const LINE: usize = 64;
/// Beyond the second level of today's cores, within the third, and walked in a millisecond.
const LINES: usize = (4 << 20) / LINE;
/// Walks of which the quickest says what an undisturbed one takes.
const FIRST: usize = 20;
/// Walks that bring the circle back, the last of which counts: a victim cache takes a few.
const BACK: usize = 6;
/// So many times the quickest walk.
const MOST: f64 = 1.5;

#[repr(align(64))]
struct Line {
    next: u32,
}

/// One circle through all lines, in an order that nothing can predict.
static CHAIN: LazyLock<Vec<Line>> = LazyLock::new(|| {
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    Rng::new(1).shuffle(&mut order);
    let mut chain: Vec<Line> = (0..LINES).map(|_| Line { next: 0 }).collect();
    for (index, line) in order.iter().enumerate() {
        chain[*line as usize].next = order[(index + 1) % LINES];
    }
    chain
});

static QUICKEST: Mutex<f64> = Mutex::new(f64::INFINITY);

/// Nanoseconds a line.
fn once() -> f64 {
    let chain = &*CHAIN;
    let (began, mut at) = (Instant::now(), 0);
    for _ in 0..LINES {
        at = chain[at as usize].next;
    }
    black_box(at);
    began.elapsed().as_secs_f64() * 1e9 / LINES as f64
}

fn quickest(walk: f64) -> f64 {
    let mut quickest = QUICKEST.lock().unwrap_or_else(PoisonError::into_inner);
    *quickest = quickest.min(walk);
    *quickest
}

/// Nanoseconds a line of one walk now. What was run before has pushed the circle out, so it is brought back first: only who
/// runs beside us takes it away again at once.
pub fn walk() -> f64 {
    if quickest(f64::INFINITY).is_infinite() {
        for _ in 0..FIRST {
            quickest(once());
        }
    }
    for _ in 1..BACK {
        once();
    }
    let walk = once();
    quickest(walk);
    walk
}

/// The same of the quickest walk so far; none without any.
pub fn undisturbed() -> Option<f64> {
    Some(quickest(f64::INFINITY)).filter(|walk| walk.is_finite())
}

/// Begins what [`doubt`] tells.
pub const DOUBT: &str = "others had the last cache";

/// What forbids a verdict where walks like these were seen beside the rounds.
pub fn doubt(walks: &[f64], undisturbed: f64) -> Option<String> {
    let mut sorted = walks.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = *sorted.get(sorted.len() / 2)?;
    (middle > MOST * undisturbed)
        .then(|| format!("{DOUBT}: a line of it took {middle:.0} ns, {undisturbed:.0} when undisturbed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_circle() {
        let (mut at, mut steps) = (0, 0);
        while steps == 0 || at != 0 {
            at = CHAIN[at as usize].next;
            steps += 1;
        }
        assert_eq!(steps, LINES);
    }

    #[test]
    fn walks_are_doubted_by_their_middle() {
        assert_eq!(doubt(&[], 15.0), None);
        assert_eq!(doubt(&[15.0, 16.0, 90.0], 15.0), None);
        assert!(doubt(&[15.0, 60.0, 90.0], 15.0).unwrap().contains("60 ns, 15"));
        let walk = walk();
        assert!(walk > 0.5 && undisturbed().unwrap() <= walk, "{walk}");
    }
}
