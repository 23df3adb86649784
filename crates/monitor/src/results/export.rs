//! Parts into plain tables, for whoever asks in SQL.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::database::DatabaseError;
use super::ledger::{Entry, Ledger};
use super::parts::Entries;
use super::query;
use super::reader::{Reader, Run};
use crate::summary::{Counts, Protection};

/// Tables of a run: how many rows each got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Rows of the table of channels.
    pub channels: u64,
    /// Rows of the table of intervals.
    pub intervals: u64,
}

/// What channels are written with: name of the column, type. [`channel_row`] has the same order.
const CHANNEL: &[&str] = &[
    "identity TEXT PRIMARY KEY",
    "name TEXT",
    "protocol TEXT",
    "interface INTEGER",
    "outer_vlan INTEGER",
    "vlan INTEGER",
    "sci TEXT",
    "source TEXT",
    "destination TEXT",
    "key_id INTEGER",
    "key_group TEXT",
    "lives INTEGER",
    "first_ns INTEGER",
    "last_ns INTEGER",
    "first_frame INTEGER",
    "first_sequence INTEGER",
    "highest_sequence INTEGER",
    "sequence_bits INTEGER",
    "extended INTEGER",
    "packets INTEGER",
    "bytes INTEGER",
    "lost INTEGER",
    "late INTEGER",
    "duplicates INTEGER",
    "replays INTEGER",
    "reused INTEGER",
    "too_old INTEGER",
    "stray INTEGER",
    "loss_ratio REAL",
    "restarts INTEGER",
    "jumps INTEGER",
    "gaps INTEGER",
    "jitter_ns INTEGER",
    "min_payload INTEGER",
    "max_payload INTEGER",
    "protection TEXT",
    "length_mismatches INTEGER",
    "one_way INTEGER",
    "evicted INTEGER",
    "no_counter INTEGER",
    "exhaustion_s REAL",
    "max_depth INTEGER",
    "would_drop_0 INTEGER",
    "would_drop_32 INTEGER",
    "would_drop_64 INTEGER",
    "would_drop_512 INTEGER",
];
const INTERVAL: &str =
    "identity TEXT, number INTEGER, packets INTEGER, bytes INTEGER, lost INTEGER, late INTEGER,
    duplicates INTEGER, replays INTEGER, reused INTEGER, too_old INTEGER, stray INTEGER";

/// Writes the channels of a run, and what each interval added to them, into a new database of plain tables. Gaps,
/// anomalies, rekeys and the link's intervals are plain tables already, in the database itself.
pub fn export(reader: &Reader, run: &Run, output: &Path) -> Result<Exported, DatabaseError> {
    let failed = |source| DatabaseError::new(output, "write", source);
    if output.exists() {
        return Err(DatabaseError::Exists { path: output.to_owned() });
    }
    let mut target = Connection::open(output).map_err(failed)?;
    let transaction = target.transaction().map_err(failed)?;
    transaction
        .execute_batch(&format!(
            "CREATE TABLE channel ({}) WITHOUT ROWID; CREATE TABLE channel_interval ({INTERVAL})",
            CHANNEL.join(", ")
        ))
        .map_err(failed)?;
    let exported = reader.try_ledger(run, |database, ledger| {
        let marks = vec!["?"; CHANNEL.len()].join(", ");
        let mut insert = transaction.prepare(&format!("INSERT INTO channel VALUES ({marks})"))?;
        for entry in &ledger.entries {
            insert.execute(params_from_iter(channel_row(entry)))?;
        }
        let intervals = intervals(database, run, ledger, &transaction)?;
        Ok(Exported { channels: ledger.entries.len() as u64, intervals })
    })?;
    transaction
        .execute_batch("CREATE INDEX channel_interval_by_channel ON channel_interval (identity, number)")
        .map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(exported)
}

fn intervals(
    database: &Connection,
    run: &Run,
    ledger: &Ledger,
    target: &Connection,
) -> rusqlite::Result<u64> {
    let mut insert =
        target.prepare("INSERT INTO channel_interval VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut statement =
        database.prepare("SELECT interval, data FROM part WHERE run = ? AND kind = 2 ORDER BY number")?;
    let mut rows = statement.query([run.number])?;
    let mut written = 0;
    while let Some(row) = rows.next()? {
        let interval: i64 = row.get(0)?;
        let mut entries = Entries::of(row.get_ref(1)?.as_blob()?);
        while let Some(delta) = entries.delta(0) {
            let Some(entry) = ledger.by_number(delta.number) else { continue };
            let key = [Value::Text(identity(entry)), Value::Integer(interval)];
            let counts = counts(&delta.counts).map(Value::Integer);
            insert.execute(params_from_iter(key.into_iter().chain(counts)))?;
            written += 1;
        }
    }
    Ok(written)
}

fn identity(entry: &Entry) -> String {
    format!("{:016x}", entry.key.channel_id())
}

fn counts(of: &Counts) -> [i64; 9] {
    super::rows::counts(of)
}

fn channel_row(entry: &Entry) -> Vec<Value> {
    let flow = query::flow(entry);
    let (named, figures) = (flow.channel.identity, flow.channel.figures);
    let number = |value: u64| Value::Integer(value as i64);
    let text = |value: Option<String>| value.map_or(Value::Null, Value::Text);
    let mut row = vec![
        Value::Text(identity(entry)),
        Value::Text(named.name),
        Value::Text(named.protocol.name().to_owned()),
        number(named.interface.into()),
        number(named.outer_vlan.into()),
        number(named.vlan.into()),
        text(named.sci),
        text(named.source),
        text(named.destination),
        number(named.key_id.into()),
        Value::Text(format!("{:016x}", named.group)),
        number(flow.lives),
        number(figures.first_ns),
        number(figures.last_ns),
        number(figures.first_frame),
        number(figures.first_sequence),
        number(figures.highest_sequence),
        number(figures.sequence_bits.into()),
        number(figures.extended.into()),
    ];
    row.extend(counts(&figures.counts).map(Value::Integer));
    row.extend([
        Value::Real(flow.loss_ratio),
        number(figures.restarts.into()),
        number(figures.jumps.into()),
        number(figures.gaps),
        number(figures.jitter_ns),
        number(figures.min_payload.into()),
        number(figures.max_payload.into()),
        Value::Text(protection(figures.protection).to_owned()),
        number(figures.length_mismatches.into()),
        figures.one_way.map_or(Value::Null, |is| number(is.into())),
        number(figures.evicted.into()),
        number(figures.no_counter.into()),
        figures.exhaustion.map_or(Value::Null, |forecast| Value::Real(forecast.seconds)),
        number(figures.reorder.max_depth.into()),
    ]);
    row.extend(figures.reorder.would_drop.map(number));
    row
}

fn protection(of: Protection) -> &'static str {
    match of {
        Protection::None => "none",
        Protection::Encrypted => "encrypted",
        Protection::IntegrityOnly => "integrity_only",
        Protection::Mixed => "mixed",
    }
}
