//! One update into rows.

use std::collections::HashMap;
use std::sync::LazyLock;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::writer::Detail;
use crate::observation::ChannelKey;
use crate::summary::{
    Anomaly, ChannelDelta, ChannelState, Counts, DEPTHS, Gap, Identity, Interval, Rekey, Update,
};

/// The run that rows belong to.
#[derive(Clone, Copy)]
pub(super) struct RunKey {
    pub run: i64,
    pub detail: Detail,
}

/// What the writer remembers between updates.
#[derive(Default)]
pub(super) struct Rows {
    /// Numbers of channels that are not evicted, by identity.
    numbers: HashMap<u64, i64>,
    last_number: i64,
    /// Sums that are not yet in channel_total.
    totals: HashMap<i64, Total>,
    /// Deltas of one update, sorted so that rows are appended.
    sorted: Vec<(i64, usize)>,
}

#[derive(Default)]
struct Total {
    last_ns: u64,
    highest_sequence: u64,
    counts: Counts,
}

const COUNTS: usize = 9;

/// The columns packets to stray, in their order.
fn counts(counts: &Counts) -> [i64; COUNTS] {
    [
        counts.packets as i64,
        counts.bytes as i64,
        counts.lost,
        counts.late as i64,
        counts.duplicates as i64,
        counts.replays as i64,
        counts.reused as i64,
        counts.too_old as i64,
        counts.stray as i64,
    ]
}

impl Rows {
    /// Rows that an update comes to, roughly; a channel's figures are as long as several.
    pub fn count(update: &Update) -> usize {
        update.deltas.len()
            + update.gaps.len()
            + update.anomalies.len()
            + 2 * update.new_channels.len()
            + 4 * update.channels.len()
            + 1
    }

    /// Forgets sums of a transaction that failed.
    pub fn begin(&mut self) {
        self.totals.clear();
    }

    pub fn add(&mut self, database: &Connection, key: RunKey, update: &Update) -> rusqlite::Result<()> {
        for channel in &update.new_channels {
            self.channel(database, key.run, channel)?;
        }
        link(database, key.run, &update.interval)?;
        self.deltas(database, key, &update.deltas)?;
        for gap in &update.gaps {
            if let Some(number) = self.number(database, key.run, gap.channel)? {
                put_gap(database, key.run, number, gap)?;
            }
        }
        for anomaly in &update.anomalies {
            let number = match anomaly.channel {
                0 => Some(0),
                id => self.number(database, key.run, id)?,
            };
            if let Some(number) = number {
                put_anomaly(database, key.run, number, anomaly)?;
            }
        }
        for rekey in &update.rekeys {
            put_rekey(database, key.run, rekey)?;
        }
        if !update.channels.is_empty() {
            self.write_totals(database, key)?;
        }
        for state in &update.channels {
            if let Some(number) = self.number(database, key.run, state.key.channel_id())? {
                put_state(database, key.run, number, state)?;
            }
        }
        Ok(())
    }

    /// Forgets what evicted channels were called: there may be any number of them.
    pub fn committed<'a>(&mut self, updates: impl Iterator<Item = &'a Update>) {
        for state in updates.flat_map(|update| &update.channels) {
            self.numbers.remove(&state.key.channel_id());
        }
    }

    fn channel(&mut self, database: &Connection, run: i64, key: &ChannelKey) -> rusqlite::Result<()> {
        let id = key.channel_id();
        if self.last_number == 0 {
            let last = "SELECT max(number) FROM channel WHERE run = ?";
            let last: Option<i64> = database.query_row(last, [run], |row| row.get(0))?;
            self.last_number = last.unwrap_or(0);
        }
        // A transaction that is repeated finds its channels here and not in the database.
        let number = self.numbers.get(&id).copied().unwrap_or(self.last_number + 1);
        let named = Identity::of(key);
        let inserted = database
            .prepare_cached(
                "INSERT INTO channel (run, number, id, name, protocol, interface, outer_vlan, vlan, sci, source,
                 destination, key_id, key_group) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            )?
            .execute((
                run,
                number,
                id as i64,
                &named.name,
                named.protocol.name(),
                named.interface,
                named.outer_vlan,
                named.vlan,
                &named.sci,
                &named.source,
                &named.destination,
                named.key_id,
                named.group as i64,
            ))?;
        if inserted == 1 {
            self.last_number = self.last_number.max(number);
            self.numbers.insert(id, number);
        }
        Ok(())
    }

    /// A channel's number; evicted ones are looked up.
    fn number(&mut self, database: &Connection, run: i64, id: u64) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.numbers.get(&id) {
            return Ok(Some(*number));
        }
        let found: Option<i64> = database
            .prepare_cached("SELECT number FROM channel WHERE run = ? AND id = ?")?
            .query_row([run, id as i64], |row| row.get(0))
            .optional()?;
        match found {
            Some(number) => {
                self.numbers.insert(id, number);
            }
            None => tracing::warn!("results of channel {id:016x}, which was never announced, are not stored"),
        }
        Ok(found)
    }

    fn deltas(
        &mut self,
        database: &Connection,
        key: RunKey,
        deltas: &[ChannelDelta],
    ) -> rusqlite::Result<()> {
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        for (at, delta) in deltas.iter().enumerate() {
            let Some(number) = self.number(database, key.run, delta.channel)? else { continue };
            let total = self.totals.entry(number).or_default();
            total.counts.add(&delta.counts);
            total.last_ns = total.last_ns.max(delta.last_ns);
            if delta.highest_sequence != 0 {
                total.highest_sequence = delta.highest_sequence;
            }
            if key.detail == Detail::Full || is_remarkable(&delta.counts) {
                sorted.push((number, at));
            }
        }
        sorted.sort_unstable();
        let mut statement = database.prepare_cached(
            "INSERT INTO channel_interval VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
             packets = packets + excluded.packets, bytes = bytes + excluded.bytes, lost = lost + excluded.lost,
             late = late + excluded.late, duplicates = duplicates + excluded.duplicates,
             replays = replays + excluded.replays, reused = reused + excluded.reused,
             too_old = too_old + excluded.too_old, stray = stray + excluded.stray",
        )?;
        for (number, at) in &sorted {
            let delta = &deltas[*at];
            let place = [key.run, delta.interval as i64, *number];
            statement.execute(params_from_iter(place.into_iter().chain(counts(&delta.counts))))?;
        }
        self.sorted = sorted;
        Ok(())
    }

    /// Adds the sums of deltas to the channels' totals.
    pub fn write_totals(&mut self, database: &Connection, key: RunKey) -> rusqlite::Result<()> {
        let mut statement = database.prepare_cached(
            "INSERT INTO channel_total (run, channel, last_ns, highest_sequence, packets, bytes, lost, late,
             duplicates, replays, reused, too_old, stray) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT DO UPDATE SET
             last_ns = max(last_ns, excluded.last_ns),
             highest_sequence = iif(excluded.highest_sequence, excluded.highest_sequence, highest_sequence),
             packets = packets + excluded.packets, bytes = bytes + excluded.bytes, lost = lost + excluded.lost,
             late = late + excluded.late, duplicates = duplicates + excluded.duplicates,
             replays = replays + excluded.replays, reused = reused + excluded.reused,
             too_old = too_old + excluded.too_old, stray = stray + excluded.stray",
        )?;
        let mut totals: Vec<_> = self.totals.drain().collect();
        totals.sort_unstable_by_key(|(number, _)| *number);
        for (number, total) in totals {
            let place = [key.run, number, total.last_ns as i64, total.highest_sequence as i64];
            statement.execute(params_from_iter(place.into_iter().chain(counts(&total.counts))))?;
        }
        Ok(())
    }
}

/// Whether anything but packets in order was counted.
fn is_remarkable(counts: &Counts) -> bool {
    *counts != Counts { packets: counts.packets, bytes: counts.bytes, ..Counts::default() }
}

fn link(database: &Connection, run: i64, interval: &Interval) -> rusqlite::Result<()> {
    if interval.length_ns == 0 {
        return Ok(());
    }
    let place = [run, interval.index as i64, interval.start_ns as i64, interval.length_ns as i64];
    let rest = [interval.unknown as i64, interval.active as i64, interval.capture_drops as i64];
    database
        .prepare_cached(
            "INSERT INTO link_interval VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
             packets = packets + excluded.packets, bytes = bytes + excluded.bytes, lost = lost + excluded.lost,
             late = late + excluded.late, duplicates = duplicates + excluded.duplicates,
             replays = replays + excluded.replays, reused = reused + excluded.reused,
             too_old = too_old + excluded.too_old, stray = stray + excluded.stray,
             unknown = unknown + excluded.unknown, active = active + excluded.active,
             capture_drops = capture_drops + excluded.capture_drops",
        )?
        .execute(params_from_iter(place.into_iter().chain(counts(&interval.counts)).chain(rest)))?;
    Ok(())
}

fn put_gap(database: &Connection, run: i64, channel: i64, gap: &Gap) -> rusqlite::Result<()> {
    if gap.lost == 0 {
        database.prepare_cached("DELETE FROM gap WHERE run = ? AND channel = ? AND first = ?")?.execute([
            run,
            channel,
            gap.first as i64,
        ])?;
        return Ok(());
    }
    let row = [
        run,
        channel,
        gap.first as i64,
        gap.last as i64,
        gap.lost as i64,
        gap.before_ns as i64,
        gap.after_ns as i64,
        gap.frame as i64,
    ];
    database.prepare_cached("INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?.execute(row)?;
    Ok(())
}

fn put_anomaly(database: &Connection, run: i64, channel: i64, anomaly: &Anomaly) -> rusqlite::Result<()> {
    database
        .prepare_cached("INSERT OR REPLACE INTO anomaly VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute((
            run,
            anomaly.kind.name(),
            channel,
            anomaly.channel as i64,
            &anomaly.channel_name,
            anomaly.kind.severity() as i64,
            anomaly.count as i64,
            anomaly.first_ns as i64,
            anomaly.last_ns as i64,
            anomaly.first_sequence as i64,
            anomaly.last_sequence as i64,
            anomaly.frame as i64,
            &anomaly.detail,
        ))?;
    Ok(())
}

fn put_rekey(database: &Connection, run: i64, rekey: &Rekey) -> rusqlite::Result<()> {
    database.prepare_cached("INSERT OR REPLACE INTO rekey VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?.execute((
        run,
        rekey.at_ns as i64,
        rekey.from as i64,
        rekey.to as i64,
        &rekey.from_name,
        &rekey.to_name,
        rekey.pause_ns,
        rekey.lost as i64,
    ))?;
    Ok(())
}

/// Writes a channel's figures; those of an earlier life are put together with them.
fn put_state(database: &Connection, run: i64, channel: i64, state: &ChannelState) -> rusqlite::Result<()> {
    let figures = &state.figures;
    let number = |value: u64| Value::Integer(value as i64);
    let real = |value: Option<f64>| value.map_or(Value::Null, Value::Real);
    let mut row = vec![
        Value::Integer(run),
        Value::Integer(channel),
        number(figures.last_ns),
        number(figures.highest_sequence),
    ];
    row.extend(counts(&figures.counts).map(Value::Integer));
    row.extend([
        number(1),
        number(figures.first_ns),
        number(figures.first_frame),
        number(figures.first_sequence),
        number(figures.sequence_bits.into()),
        number(figures.extended.into()),
        number(figures.restarts.into()),
        number(figures.jumps.into()),
        number(figures.gaps),
        number(figures.jitter_ns),
        number(figures.min_payload.into()),
        number(figures.max_payload.into()),
        number(figures.protection as u64),
        number(figures.length_mismatches.into()),
        figures.one_way.map_or(Value::Null, |is| number(is.into())),
        number(figures.evicted.into()),
        real(figures.exhaustion.map(|forecast| forecast.rate_pps)),
        figures.exhaustion.map_or(Value::Null, |forecast| number(forecast.remaining)),
        real(figures.exhaustion.map(|forecast| forecast.seconds)),
        number(figures.reorder.max_depth.into()),
    ]);
    row.extend(figures.reorder.would_drop.map(number));
    row.extend(figures.reorder.depths.map(number));
    database.prepare_cached(&STATE)?.execute(params_from_iter(row))?;
    Ok(())
}

static STATE: LazyLock<String> = LazyLock::new(state_statement);

/// The first life's figures replace the empty ones, later lives' are combined with them. Counts are there already.
fn state_statement() -> String {
    const LATEST: [&str; 7] = [
        "sequence_bits",
        "one_way",
        "evicted",
        "exhaustion_rate_pps",
        "exhaustion_remaining",
        "exhaustion_s",
        "jitter_ns",
    ];
    const FIRST: [&str; 3] = ["first_ns", "first_frame", "first_sequence"];
    const SUMS: [&str; 4] = ["lives", "restarts", "jumps", "gaps"];
    const GREATEST: [&str; 5] = ["extended", "max_payload", "length_mismatches", "max_depth", "protection"];
    const WINDOWS: [&str; 4] = ["would_drop_0", "would_drop_32", "would_drop_64", "would_drop_512"];
    let mut sets = vec![
        "min_payload = iif(lives, min(min_payload, excluded.min_payload), excluded.min_payload)".to_owned(),
    ];
    sets.extend(LATEST.map(|column| format!("{column} = excluded.{column}")));
    sets.extend(FIRST.map(|column| format!("{column} = iif(lives, {column}, excluded.{column})")));
    sets.extend(GREATEST.map(|column| format!("{column} = max({column}, excluded.{column})")));
    let sums = SUMS.iter().chain(&WINDOWS).chain(&DEPTH_COLUMNS);
    sets.extend(sums.map(|column| format!("{column} = {column} + excluded.{column}")));
    format!(
        "INSERT INTO channel_total (run, channel, last_ns, highest_sequence, packets, bytes, lost, late, duplicates,
         replays, reused, too_old, stray, lives, first_ns, first_frame, first_sequence, sequence_bits, extended, restarts,
         jumps, gaps, jitter_ns, min_payload, max_payload, protection, length_mismatches, one_way, evicted,
         exhaustion_rate_pps, exhaustion_remaining, exhaustion_s, max_depth, {}, {}) VALUES ({}) ON CONFLICT DO UPDATE SET
         last_ns = max(last_ns, excluded.last_ns), highest_sequence = excluded.highest_sequence, {}",
        WINDOWS.join(", "),
        DEPTH_COLUMNS.join(", "),
        vec!["?"; 33 + WINDOWS.len() + DEPTHS].join(", "),
        sets.join(", ")
    )
}

pub(super) const DEPTH_COLUMNS: [&str; DEPTHS] = [
    "depth_1",
    "depth_3",
    "depth_7",
    "depth_15",
    "depth_31",
    "depth_63",
    "depth_127",
    "depth_255",
    "depth_511",
    "depth_more",
];
