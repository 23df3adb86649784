//! What of sessions is told of: each time their usage has passed another multiple of a threshold, and when their time is over
//! (TS 29.244 5.2.2.2, 5.2.2.3). Usage itself stands in the data plane alone.

use serde::{Deserialize, Serialize};
use sluice_dataplane::GtpuUsage;
use sluice_language::gtpu::{MobileSession, Thresholds};

/// Seconds since 1970.
pub type Time = u64;

/// Of one session; a line of the journal, so that nothing is told again after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Of the session.
    pub name: String,
    /// From when on its time counts.
    pub since: Time,
    /// Thresholds that `passed` is of: uplink, downlink, both, seconds.
    of: [Option<u64>; 4],
    /// How many times each of them fits into what was told of.
    passed: [u64; 4],
    /// Its time is over, which was told.
    is_over: bool,
    /// How often something was told.
    pub reports: u64,
    /// What was told last.
    pub last: Option<Told>,
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Told {
    /// When.
    pub at: Time,
    /// Why: `volume-threshold`, `time-threshold`, `time-quota`; several with a comma between; or `session-ended`.
    pub trigger: String,
    /// Uplink, downlink.
    pub bytes: [u64; 2],
    /// Uplink, downlink.
    pub packets: [u64; 2],
}

/// Whether there is anything to tell of it, ever.
pub fn is_metered(session: &MobileSession) -> bool {
    session.thresholds != Thresholds::default() || session.time_quota_s.is_some()
}

fn of(session: &MobileSession) -> [Option<u64>; 4] {
    let Thresholds { uplink, downlink, total, time_s } = session.thresholds;
    [uplink, downlink, total, time_s]
}

impl Meter {
    pub fn new(session: &MobileSession, now: Time) -> Meter {
        let name = session.name.clone();
        Meter { name, since: now, of: of(session), passed: [0; 4], is_over: false, reports: 0, last: None }
    }

    /// Of a session that was there before: what has passed by then is what its volume thresholds begin with.
    pub fn later(session: &MobileSession, now: Time) -> Meter {
        let meter = Meter::new(session, now);
        let [.., time_s] = meter.of;
        Meter { of: [None, None, None, time_s], ..meter }
    }

    /// Nothing of it passes any more.
    pub fn is_over(&self, session: &MobileSession, now: Time) -> bool {
        session.time_quota_s.is_some_and(|quota| now.saturating_sub(self.since) >= quota)
    }

    /// Takes note of what has passed. True if that is to be written down; with a report in `last` if `reports` is another number.
    pub fn note(&mut self, session: &MobileSession, usage: &GtpuUsage, now: Time) -> bool {
        let before = self.clone();
        let [up, down] = usage.bytes;
        let values = [up, down, up + down, now.saturating_sub(self.since)];
        let mut triggers = vec![];
        for (which, threshold) in of(session).into_iter().enumerate() {
            let passed = threshold.map_or(0, |threshold| values[which] / threshold.max(1));
            // a threshold that is new begins with what has passed; after a reboot usage begins anew
            if self.of[which] == threshold && passed > self.passed[which] {
                triggers.push(if which == 3 { "time-threshold" } else { "volume-threshold" });
            }
            (self.of[which], self.passed[which]) = (threshold, passed);
        }
        let is_over = self.is_over(session, now);
        if is_over && !self.is_over {
            triggers.push("time-quota");
        }
        self.is_over = is_over;
        triggers.dedup();
        if !triggers.is_empty() {
            let (bytes, packets) = (usage.bytes, usage.packets);
            self.reports += 1;
            self.last = Some(Told { at: now, trigger: triggers.join(","), bytes, packets });
        }
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(thresholds: Thresholds, time_quota_s: Option<u64>) -> MobileSession {
        MobileSession {
            name: "alice".to_owned(),
            teid: 1,
            address: None,
            prefix: None,
            relay: true,
            peer: [192, 0, 2, 1].into(),
            peer_teid: 1,
            local: None,
            rules: None,
            uplink_quota: None,
            downlink_quota: None,
            time_quota_s,
            thresholds,
        }
    }

    fn usage(up: u64, down: u64) -> GtpuUsage {
        GtpuUsage { bytes: [up, down], packets: [up / 100, down / 100] }
    }

    /// Another multiple, each once (TS 29.244 5.2.2.2).
    #[test]
    fn each_multiple_is_told_once() {
        let own = session(Thresholds { uplink: Some(1000), total: Some(5000), ..Default::default() }, None);
        let mut meter = Meter::new(&own, 100);
        for (bytes, reports, trigger) in [
            ((0, 0), 0, None),
            ((999, 0), 0, None),
            ((1000, 0), 1, Some("volume-threshold")),
            ((1999, 0), 1, Some("volume-threshold")),
            ((1999, 3001), 2, Some("volume-threshold")),
            ((4500, 3001), 3, Some("volume-threshold")),
            ((4500, 3001), 3, Some("volume-threshold")),
        ] {
            meter.note(&own, &usage(bytes.0, bytes.1), 101);
            let last = meter.last.as_ref().map(|told| told.trigger.as_str());
            assert_eq!((meter.reports, last), (reports, trigger), "{bytes:?}");
        }
        assert!(!meter.note(&own, &usage(4500, 3001), 200), "nothing new, nothing to write");
        // a machine that started anew counts from zero
        assert!(meter.note(&own, &usage(10, 0), 300));
        assert_eq!(meter.reports, 3);
        meter.note(&own, &usage(1000, 0), 300);
        assert_eq!(meter.reports, 4);
        let other = session(Thresholds { uplink: Some(10), ..Default::default() }, None);
        meter.note(&other, &usage(1005, 0), 300);
        assert_eq!(meter.reports, 4, "a new threshold begins with what has passed");
        meter.note(&other, &usage(1010, 0), 300);
        assert_eq!(meter.reports, 5);
        let timed = session(Thresholds { uplink: Some(1000), time_s: Some(60), ..Default::default() }, None);
        let mut late = Meter::later(&timed, 300);
        late.note(&timed, &usage(5500, 0), 300);
        assert_eq!(late.reports, 0, "it had that before it had a threshold");
        late.note(&timed, &usage(6000, 0), 301);
        late.note(&timed, &usage(6000, 0), 360);
        assert_eq!(late.reports, 2, "another multiple, and its time");
    }

    /// TS 29.244 5.2.2.3: time counts from when the session was made; a time quota ends it.
    #[test]
    fn time_is_told_and_ends() {
        let own = session(Thresholds { time_s: Some(10), ..Default::default() }, Some(25));
        let mut meter = Meter::new(&own, 1000);
        for (now, trigger, is_over) in [
            (1009, None, false),
            (1010, Some("time-threshold"), false),
            (1024, Some("time-threshold"), false),
            (1025, Some("time-quota"), true),
            (1030, Some("time-threshold"), true),
        ] {
            meter.note(&own, &usage(0, 0), now);
            let last = meter.last.as_ref().map(|told| told.trigger.as_str());
            assert_eq!((last, meter.is_over(&own, now)), (trigger, is_over), "{now}");
        }
        assert_eq!(meter.last.as_ref().unwrap().at, 1030);
        let line = serde_json::to_string(&meter).unwrap();
        assert_eq!(serde_json::from_str::<Meter>(&line).unwrap(), meter);
    }
}
