//! Numbers that nobody foresees, and pauses that no two clients share.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The state is seeded by the kernel and other each time.
pub fn word() -> u32 {
    RandomState::new().hash_one(0u32) as u32
}

/// A name behind this that nobody foresees.
pub fn name(prefix: &str) -> String {
    format!("{prefix}-{:08x}{:08x}", word(), word())
}

/// Evenly between nothing and this.
pub fn up_to(longest: Duration) -> Duration {
    longest.mul_f64(f64::from(word()) / f64::from(u32::MAX))
}

/// RFC 2131, section 4.1: by up to a second, either way.
pub fn shifted(pause: Duration) -> Duration {
    (pause + up_to(Duration::from_secs(2)))
        .saturating_sub(Duration::from_secs(1))
        .max(Duration::from_millis(500))
}

/// RFC 8415, section 15: a tenth, either way.
pub fn about(pause: Duration) -> Duration {
    pause.mul_f64(0.9) + up_to(pause.mul_f64(0.2))
}

/// Of a unit (RFC 8415, section 4.2, and RFC 4361, section 6.1): the same after every restart.
pub fn iaid(unit: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(unit.as_bytes());
    crc.sum()
}

/// So many lines of a log in a minute: who is on the link must not fill it.
#[derive(Debug, Default)]
pub struct Sparing {
    since: Option<Instant>,
    said: u32,
}

const LINES_A_MINUTE: u32 = 30;

impl Sparing {
    pub fn may_say(&mut self) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= Duration::from_secs(60)) {
            *self = Self { since: Some(Instant::now()), said: 0 };
        }
        self.said += 1;
        self.said <= LINES_A_MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_stays_in_its_bounds() {
        let pause = Duration::from_secs(4);
        for _ in 0..200 {
            assert!((3000..=5000).contains(&shifted(pause).as_millis()));
            assert!((3600..=4400).contains(&about(pause).as_millis()));
        }
        let words: std::collections::BTreeSet<u32> = (0..100).map(|_| word()).collect();
        assert!(words.len() > 95, "{} words of 100", words.len());
        assert_eq!(iaid("wan0.0"), iaid("wan0.0"));
        let mut sparing = Sparing::default();
        assert_eq!((0..1000).filter(|_| sparing.may_say()).count(), 30);
    }
}
