//! Points in time that survive both a jump of the system clock and a restart.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment to come, by both clocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// By the system clock (CLOCK_REALTIME): what counts after a reboot.
    pub unix_ms: u64,
    /// Since this boot of the machine: what counts until then, whatever is done to the system clock.
    boot_ms: u64,
    boot_id: String,
    /// How far away it was at first. It is never further, even if the system clock is set back over a reboot.
    span_ms: u64,
}

impl Deadline {
    pub fn after(span: Duration) -> Self {
        let span_ms = span.as_millis() as u64;
        Self { unix_ms: unix_ms() + span_ms, boot_ms: boot_ms() + span_ms, boot_id: boot_id(), span_ms }
    }

    /// How long it is until then; zero when it has passed.
    pub fn left(&self) -> Duration {
        self.left_at(&boot_id(), boot_ms(), unix_ms())
    }

    pub fn has_passed(&self) -> bool {
        self.left().is_zero()
    }

    fn left_at(&self, boot_id: &str, boot_ms: u64, unix_ms: u64) -> Duration {
        let left = match self.boot_id == boot_id {
            true => self.boot_ms.saturating_sub(boot_ms),
            false => self.unix_ms.saturating_sub(unix_ms),
        };
        Duration::from_millis(left.min(self.span_ms))
    }
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Time that the machine slept counts.
fn boot_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| Duration::from(time).as_millis() as u64)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn the_wall_clock_may_jump_and_the_machine_restart() {
        let deadline =
            Deadline { unix_ms: 1_000_000, boot_ms: 500_000, boot_id: "a".to_owned(), span_ms: MINUTE };
        let left = |boot: &str, boot_ms, unix_ms| deadline.left_at(boot, boot_ms, unix_ms).as_millis() as u64;
        assert_eq!(left("a", 470_000, 970_000), 30_000);
        assert_eq!(left("a", 470_000, 0), 30_000, "the clock was put back");
        assert_eq!(left("a", 470_000, u64::MAX), 30_000, "or forward");
        assert_eq!(left("a", 500_000, 0), 0);
        assert_eq!(left("b", 3, 970_000), 30_000, "another boot");
        assert_eq!(left("b", 3, 1_000_001), 0);
        assert_eq!(left("b", 3, 0), MINUTE, "put back over a reboot: never longer than it was asked for");
    }

    #[test]
    fn one_to_come_is_as_far_as_it_was_made() {
        let deadline = Deadline::after(Duration::from_secs(60));
        assert!(deadline.left() > Duration::from_secs(58) && deadline.left() <= Duration::from_secs(60));
        assert!(!deadline.has_passed() && Deadline::after(Duration::ZERO).has_passed());
    }
}
