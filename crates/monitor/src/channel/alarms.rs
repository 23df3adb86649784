//! Anomalies as they add up: one entry a channel and kind, within a limit.

use std::collections::HashMap;

use crate::observation::ChannelKey;
use crate::summary::Anomaly;

use super::memory::Words;
use super::plausible::Why;
use crate::anomaly::Kind;

/// Entries kept; beyond that occurrences are only counted by kind.
const LIMIT: usize = 1 << 16;

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
    dirty: bool,
}

/// Anomalies by channel and kind, until reports take them.
#[derive(Debug)]
pub struct Alarms {
    entries: HashMap<(u64, u8), Entry, Words>,
    dirty: Vec<(u64, u8)>,
    totals: Vec<u64>,
}

impl Default for Alarms {
    fn default() -> Self {
        Alarms { entries: HashMap::default(), dirty: Vec::new(), totals: vec![0; Kind::ALL.len()] }
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
        } else if self.entries.len() < LIMIT {
            let Occurrence { time_ns, sequence, count, value, .. } = occurrence;
            let entry = Entry {
                name: channel,
                first: occurrence,
                last_ns: time_ns,
                last_sequence: sequence,
                count,
                value,
                dirty: true,
            };
            self.entries.insert(id, entry);
            self.dirty.push(id);
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
        let Alarms { entries, .. } = std::mem::take(other);
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
        let changed = std::mem::take(&mut self.dirty);
        changed.into_iter().map(|id| self.report(id)).collect()
    }

    /// Occurrences by kind, those without an entry included.
    pub fn totals(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.iter().map(|kind| (*kind, self.totals[*kind as usize]))
    }

    fn report(&mut self, id: (u64, u8)) -> Anomaly {
        let entry =
            self.entries.get_mut(&id).expect("only entries are listed as changed, and none is removed");
        entry.dirty = false;
        let kind = Kind::ALL[usize::from(id.1)];
        Anomaly {
            kind,
            channel: id.0,
            channel_name: entry.name.map(|key| key.to_string()).unwrap_or_default(),
            count: entry.count,
            first_ns: entry.first.time_ns,
            last_ns: entry.last_ns,
            first_sequence: entry.first.sequence,
            last_sequence: entry.last_sequence,
            frame: entry.first.frame,
            detail: detail(kind, entry),
        }
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
        assert_eq!(alarms.drain()[0].count, 3);
        assert_eq!(alarms.totals().find(|(kind, _)| *kind == Kind::Replay), Some((Kind::Replay, 3)));
    }
}
