//! Anomalies as they add up: one entry a channel and kind, within a limit.

use std::collections::HashMap;

use crate::observation::ChannelKey;
use crate::summary::Anomaly;

use super::memory::Words;
use super::plausible::Why;
use crate::anomaly::Kind;

/// Entries kept; beyond that those that have been reported give way.
const LIMIT: usize = 1 << 16;
/// So many give way at once: the search costs next to nothing then.
const SHARE: usize = LIMIT / 8;
/// Changed entries that ask for a report before the interval ends: what has not been reported cannot give way.
const MANY: usize = LIMIT / 2;

/// One occurrence, or several at once.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence {
    /// Capture time, nanoseconds since the epoch.
    pub time_ns: u64,
    /// As shown to operators.
    pub sequence: u64,
    /// Number of the frame in its source.
    pub frame: u64,
    /// How many at once; 1 for a packet.
    pub count: u64,
    /// What the detail text is about: a size, a depth, a rate. The largest is kept.
    pub value: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Option<ChannelKey>,
    first: Occurrence,
    last_ns: u64,
    last_sequence: u64,
    count: u64,
    value: u64,
    /// How much of the count has been reported.
    reported: u64,
    dirty: bool,
}

/// Anomalies by channel and kind, until reports take them.
#[derive(Debug)]
pub struct Alarms {
    entries: HashMap<(u64, u8), Entry, Words>,
    dirty: Vec<(u64, u8)>,
    /// Last reports of channels that are gone.
    gone: Vec<Anomaly>,
    totals: Vec<u64>,
    /// Occurrences that are in the totals only, since nothing could give way.
    unlisted: u64,
}

impl Default for Alarms {
    fn default() -> Self {
        Alarms {
            entries: HashMap::default(),
            dirty: Vec::new(),
            gone: Vec::new(),
            totals: vec![0; Kind::ALL.len()],
            unlisted: 0,
        }
    }
}

impl Alarms {
    /// Notes an occurrence on a channel, or on the link as a whole.
    pub fn note(&mut self, kind: Kind, channel: Option<ChannelKey>, occurrence: Occurrence) {
        self.totals[kind as usize] += occurrence.count;
        let id = (channel.map_or(0, |key| key.channel_id()), kind as u8);
        if let Some(entry) = self.entries.get_mut(&id) {
            if entry.count == 0 {
                (entry.first, entry.value) = (occurrence, 0);
            }
            entry.count += occurrence.count;
            entry.last_ns = entry.last_ns.max(occurrence.time_ns);
            entry.last_sequence = occurrence.sequence;
            entry.value = entry.value.max(occurrence.value);
            if !std::mem::replace(&mut entry.dirty, true) {
                self.dirty.push(id);
            }
        } else if self.has_room() {
            let Occurrence { time_ns, sequence, count, value, .. } = occurrence;
            let entry = Entry {
                name: channel,
                first: occurrence,
                last_ns: time_ns,
                last_sequence: sequence,
                count,
                value,
                reported: 0,
                dirty: true,
            };
            self.entries.insert(id, entry);
            self.dirty.push(id);
        } else {
            self.unlisted += occurrence.count;
        }
    }

    /// Whether there is room for one more, which may have to be made: the least severe and oldest that have been reported
    /// are forgotten. Whoever took the reports has them.
    fn has_room(&mut self) -> bool {
        if self.entries.len() < LIMIT {
            return true;
        }
        if self.dirty.len() >= self.entries.len() {
            return false;
        }
        let reported = self.entries.iter().filter(|(_, entry)| !entry.dirty);
        let mut ids: Vec<_> = reported
            .map(|(id, entry)| (Kind::ALL[usize::from(id.1)].severity(), entry.last_ns, *id))
            .collect();
        if ids.len() > SHARE {
            ids.select_nth_unstable(SHARE);
        }
        for (_, _, id) in ids.into_iter().take(SHARE) {
            self.entries.remove(&id);
        }
        self.entries.len() < LIMIT
    }

    /// Whether so much has changed that it should be reported before the interval ends.
    pub fn is_overflowing(&self) -> bool {
        self.dirty.len() + self.gone.len() >= MANY
    }

    /// Forgets a channel that goes away; what was not reported of it is with the next reports.
    pub fn forget(&mut self, channel: u64) {
        for kind in 0..Kind::ALL.len() as u8 {
            let id = (channel, kind);
            if self.entries.get(&id).is_some_and(|entry| entry.dirty) {
                let report = self.report(id);
                self.gone.extend(report);
            }
            self.entries.remove(&id);
        }
    }

    /// Takes back what was noted of a channel; it is reported once more, with a count of 0.
    pub fn take_back(&mut self, channel: u64, kinds: &[Kind]) {
        for kind in kinds {
            let id = (channel, *kind as u8);
            let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.count > 0) else { continue };
            self.totals[*kind as usize] -= std::mem::take(&mut entry.count);
            if !std::mem::replace(&mut entry.dirty, true) {
                self.dirty.push(id);
            }
        }
    }

    /// Adds what another set has collected about the link, and empties it.
    pub fn absorb(&mut self, other: &mut Alarms) {
        let Alarms { entries, unlisted, .. } = std::mem::take(other);
        self.unlisted += unlisted;
        // The map has an order of its own in every process.
        let entries: std::collections::BTreeMap<_, _> = entries.into_iter().collect();
        for ((channel, kind), mut entry) in entries {
            let id = (channel, kind);
            self.totals[usize::from(kind)] += entry.count;
            if let Some(known) = self.entries.get_mut(&id) {
                if entry.first.frame < known.first.frame {
                    known.first = entry.first;
                }
                known.count += entry.count;
                known.last_ns = known.last_ns.max(entry.last_ns);
                known.value = known.value.max(entry.value);
                if !std::mem::replace(&mut known.dirty, true) {
                    self.dirty.push(id);
                }
            } else {
                entry.dirty = true;
                self.entries.insert(id, entry);
                self.dirty.push(id);
            }
        }
    }

    /// Anomalies that are new or changed since the last call.
    pub fn drain(&mut self) -> Vec<Anomaly> {
        let mut reports = std::mem::take(&mut self.gone);
        let changed = std::mem::take(&mut self.dirty);
        reports.extend(changed.into_iter().filter_map(|id| self.report(id)));
        reports
    }

    /// Occurrences that are in the totals only.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Occurrences by kind, those without an entry included.
    pub fn totals(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.iter().map(|kind| (*kind, self.totals[*kind as usize]))
    }

    /// `None` where it was reported already, since its channel is gone.
    fn report(&mut self, id: (u64, u8)) -> Option<Anomaly> {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.dirty)?;
        entry.dirty = false;
        let added = entry.count.wrapping_sub(std::mem::replace(&mut entry.reported, entry.count)) as i64;
        let kind = Kind::ALL[usize::from(id.1)];
        Some(Anomaly {
            kind,
            channel: id.0,
            channel_name: entry.name.map(|key| key.to_string()).unwrap_or_default(),
            count: entry.count,
            added,
            first_ns: entry.first.time_ns,
            last_ns: entry.last_ns,
            first_sequence: entry.first.sequence,
            last_sequence: entry.last_sequence,
            frame: entry.first.frame,
            detail: detail(kind, entry),
        })
    }
}

fn detail(kind: Kind, entry: &Entry) -> String {
    let Entry { count, value, .. } = entry;
    match kind {
        Kind::Loss => format!("{count} lost, at most {value} in a row"),
        Kind::LateBeyondWindow => format!("up to {value} behind the highest number"),
        Kind::Replay | Kind::Duplicate | Kind::CounterReuse => {
            format!("up to {value} behind the highest number")
        }
        Kind::CounterRestart => format!("the highest number before was {value}"),
        Kind::SequenceJump => format!("{value} numbers skipped at once"),
        Kind::NoCounter => Why::words(*value).to_owned(),
        Kind::RekeyLoss => format!("{count} lost"),
        Kind::RekeyPause => format!("{:.3} s of silence", *value as f64 / 1e9),
        Kind::Exhaustion => format!("{value} numbers are left"),
        Kind::OverMtu => format!("up to {value} bytes"),
        _ => format!("{count} packets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_add_up_and_are_reported_when_they_change() {
        let mut alarms = Alarms::default();
        let key = ChannelKey::macsec(5, 0, crate::observation::Location::default());
        let occurrence =
            |sequence, value| Occurrence { time_ns: sequence, sequence, frame: 9, count: 1, value };
        alarms.note(Kind::Replay, Some(key), occurrence(10, 700));
        alarms.note(Kind::Replay, Some(key), occurrence(20, 600));
        let reports = alarms.drain();
        assert_eq!(reports.len(), 1);
        let report = &reports[0];
        assert_eq!(
            (report.count, report.first_sequence, report.last_sequence, report.last_ns),
            (2, 10, 20, 20)
        );
        assert!(report.detail.contains("700"), "{}", report.detail);
        assert!(alarms.drain().is_empty(), "nothing changed since");
        alarms.note(Kind::Replay, Some(key), occurrence(30, 1));
        let report = &alarms.drain()[0];
        assert_eq!((report.count, report.added), (3, 1));
        assert_eq!(alarms.totals().find(|(kind, _)| *kind == Kind::Replay), Some((Kind::Replay, 3)));
    }

    fn key(sci: u64) -> ChannelKey {
        ChannelKey::macsec(sci, 0, crate::observation::Location::default())
    }

    fn at(time_ns: u64) -> Occurrence {
        Occurrence { time_ns, sequence: 1, frame: 1, count: 1, value: 0 }
    }

    #[test]
    fn what_comes_last_is_told_however_much_came_before() {
        let mut alarms = Alarms::default();
        for sci in 0..3 * LIMIT as u64 {
            let kind = if sci % 64 == 0 { Kind::Replay } else { Kind::Loss };
            alarms.note(kind, Some(key(sci)), at(sci));
            if alarms.is_overflowing() {
                assert_eq!(alarms.drain().len(), MANY);
            }
        }
        alarms.drain();
        assert!(alarms.entries.len() <= LIMIT);
        let critical = alarms.entries.keys().filter(|(_, kind)| *kind == Kind::Replay as u8).count();
        assert_eq!(critical, 3 * LIMIT / 64, "the less severe ones gave way");
        alarms.note(Kind::Duplicate, Some(key(u64::MAX)), at(9));
        assert_eq!((alarms.drain().len(), alarms.unlisted()), (1, 0));
        alarms.note(Kind::Loss, Some(key(1)), at(u64::MAX));
        let again = &alarms.drain()[0];
        assert_eq!((again.count, again.added), (1, 1), "forgotten, and begun anew");
    }

    #[test]
    fn what_has_not_been_reported_does_not_give_way() {
        let mut alarms = Alarms::default();
        (0..LIMIT as u64 + 5).for_each(|sci| alarms.note(Kind::Loss, Some(key(sci)), at(sci)));
        assert_eq!((alarms.unlisted(), alarms.drain().len()), (5, LIMIT));
        let total = alarms.totals().find(|(kind, _)| *kind == Kind::Loss);
        assert_eq!(total, Some((Kind::Loss, LIMIT as u64 + 5)));
    }

    #[test]
    fn a_channel_that_goes_takes_its_entries_with_it_and_is_reported_once() {
        let mut alarms = Alarms::default();
        alarms.note(Kind::Loss, Some(key(1)), at(1));
        alarms.drain();
        alarms.note(Kind::Loss, Some(key(1)), at(2));
        alarms.forget(key(1).channel_id());
        alarms.note(Kind::Loss, Some(key(1)), at(3));
        let reports: Vec<_> = alarms.drain().iter().map(|report| (report.count, report.added)).collect();
        assert_eq!(reports, [(2, 1), (1, 1)]);
        alarms.forget(key(1).channel_id());
        assert!(alarms.entries.is_empty() && alarms.drain().is_empty());
    }
}
