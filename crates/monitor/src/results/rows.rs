//! One update into rows: what concerns the link, and what happens to few channels. The rest goes into parts.

use rusqlite::{Connection, params_from_iter};

use super::parts::{Entries, Part, PartKind};
use super::writer::Detail;
use crate::summary::{Anomaly, ChannelDelta, Counts, Gap, Interval, Rekey, Update};

/// The run that rows belong to.
#[derive(Clone, Copy)]
pub(super) struct RunKey {
    pub run: i64,
    pub detail: Detail,
}

/// An update as it waits for its transaction.
#[derive(Debug)]
pub(super) struct Pending {
    pub number: i64,
    interval: Interval,
    parts: Vec<Part>,
    gaps: Vec<Gap>,
    anomalies: Vec<Anomaly>,
    rekeys: Vec<Rekey>,
}

/// Deltas in a part that is put together from others.
const MERGED: usize = 8192;
/// Bytes that a row of its own comes to, roughly.
const ROW: usize = 64;
const COUNTS: usize = 9;

/// The columns packets to stray, in their order.
pub(super) fn counts(counts: &Counts) -> [i64; COUNTS] {
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

impl Pending {
    pub fn new(number: i64, update: Update, detail: Detail) -> Self {
        let Update { interval, new_channels, deltas, gaps, anomalies, rekeys, channels, .. } = update;
        let part = |kind| Part::new(kind, interval.index);
        let (mut new, mut states) = (part(PartKind::Channels), part(PartKind::States));
        let (mut course, mut rest) = (part(PartKind::Deltas), part(PartKind::Rest));
        new.expect(new_channels.len());
        course.expect(if detail == Detail::Full { deltas.len() } else { 0 });
        states.expect(2 * channels.len());
        new_channels.iter().for_each(|channel| new.add_channel(channel));
        channels.iter().for_each(|state| states.add_state(state));
        for delta in &deltas {
            let quiet = detail == Detail::Fast && !is_remarkable(&delta.counts);
            if quiet { rest.add_delta(delta) } else { course.add_delta(delta) }
        }
        let parts = [new, course, rest, states].into_iter().filter(|part| part.channels > 0).collect();
        Pending { number, interval, parts, gaps, anomalies, rekeys }
    }

    /// Bytes that it comes to in the database, roughly.
    pub fn size(&self) -> usize {
        let rows = self.gaps.len() + 2 * self.anomalies.len() + self.rekeys.len() + 1;
        rows * ROW + self.parts.iter().map(|part| part.data.len()).sum::<usize>()
    }

    pub fn add(&self, database: &Connection, run: i64) -> rusqlite::Result<()> {
        link(database, run, &self.interval)?;
        self.parts.iter().try_for_each(|part| put_part(database, run, part))?;
        self.gaps.iter().try_for_each(|gap| put_gap(database, run, gap))?;
        self.anomalies.iter().try_for_each(|anomaly| put_anomaly(database, run, anomaly))?;
        self.rekeys.iter().try_for_each(|rekey| put_rekey(database, run, rekey))
    }
}

fn put_part(database: &Connection, run: i64, part: &Part) -> rusqlite::Result<()> {
    database
        .prepare_cached(
            "INSERT INTO part (run, kind, interval, channels, first_channel, last_channel, data)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            run,
            part.kind as i64,
            part.interval as i64,
            part.channels,
            part.first,
            part.last,
            &part.data,
        ))?;
    Ok(())
}

/// Puts the quiet parts after number `after` together when they are at least `enough`: in mode fast nobody asks for their
/// intervals.
pub(super) fn merge(database: &Connection, run: i64, enough: i64) -> rusqlite::Result<()> {
    const QUIET: &str = "FROM part WHERE run = ?1 AND kind = 4
        AND number > (SELECT merged_to FROM run WHERE number = ?1)";
    let count = database.prepare_cached(&format!("SELECT count(*) {QUIET}"))?;
    if { count }.query_row([run], |row| row.get::<_, i64>(0))? < enough {
        return Ok(());
    }
    let mut sums = std::collections::BTreeMap::<u32, ChannelDelta>::new();
    let mut statement = database.prepare_cached(&format!("SELECT interval, data {QUIET} ORDER BY number"))?;
    let mut rows = statement.query([run])?;
    let mut last = 0;
    while let Some(row) = rows.next()? {
        last = row.get::<_, i64>(0)?.max(last);
        let mut entries = Entries::of(row.get_ref(1)?.as_blob()?);
        while let Some(delta) = entries.delta(0) {
            let sum = sums.entry(delta.number).or_insert(ChannelDelta { counts: Counts::default(), ..delta });
            sum.counts.add(&delta.counts);
            sum.last_ns = sum.last_ns.max(delta.last_ns);
            if delta.highest_sequence != 0 {
                sum.highest_sequence = delta.highest_sequence;
            }
        }
    }
    drop(rows);
    database.prepare_cached(&format!("DELETE {QUIET}"))?.execute([run])?;
    let sums: Vec<_> = sums.into_values().collect();
    for deltas in sums.chunks(MERGED) {
        let mut part = Part::new(PartKind::Rest, last as u64);
        deltas.iter().for_each(|delta| part.add_delta(delta));
        put_part(database, run, &part)?;
    }
    database
        .prepare_cached(
            "UPDATE run SET merges = merges + 1, merged_to = (SELECT max(number) FROM part) WHERE number = ?",
        )?
        .execute([run])?;
    Ok(())
}

/// Whether anything but packets in order was counted.
fn is_remarkable(counts: &Counts) -> bool {
    *counts != Counts { packets: counts.packets, bytes: counts.bytes, ..Counts::default() }
}

fn link(database: &Connection, run: i64, interval: &Interval) -> rusqlite::Result<()> {
    if interval.length_ns == 0 {
        return Ok(());
    }
    let interval_columns = [run, interval.index as i64, interval.start_ns as i64, interval.length_ns as i64];
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
        .execute(params_from_iter(interval_columns.into_iter().chain(counts(&interval.counts)).chain(rest)))?;
    Ok(())
}

fn put_gap(database: &Connection, run: i64, gap: &Gap) -> rusqlite::Result<()> {
    let channel = gap.channel as i64;
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

fn put_anomaly(database: &Connection, run: i64, anomaly: &Anomaly) -> rusqlite::Result<()> {
    if anomaly.count == 0 {
        database
            .prepare_cached("DELETE FROM anomaly WHERE run = ? AND kind = ? AND channel = ?")?
            .execute((run, anomaly.kind.name(), anomaly.channel as i64))?;
        return Ok(());
    }
    database
        .prepare_cached(
            "INSERT INTO anomaly VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
             count = count + ?, last_ns = excluded.last_ns, last_sequence = excluded.last_sequence,
             first_sequence = iif(excluded.first_ns < first_ns, excluded.first_sequence, first_sequence),
             frame = iif(excluded.first_ns < first_ns, excluded.frame, frame),
             first_ns = min(first_ns, excluded.first_ns), detail = excluded.detail",
        )?
        .execute((
            run,
            anomaly.kind.name(),
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
            anomaly.added,
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
