//! Answers from a database, also while a run is still being written into it.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use serde::Serialize;

use super::database::{self, DatabaseError};
use super::ledger::Ledger;
pub use super::ledger::Ledgers;
use super::prometheus::Totals;
use super::query;
pub use super::query::{AnomalyQuery, FlowOrder, FlowQuery, Window};
use crate::anomaly::{Kind, Severity};
use crate::summary::{Anomaly, ChannelSummary, Counts, Gap, ProtocolCounts, Rekey, Reorder, Summary};

/// An open database.
pub struct Reader {
    connection: Connection,
    path: PathBuf,
    ledgers: Ledgers,
}

/// One analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Counts up in its database, from 1.
    pub number: i64,
    /// Files or interfaces that were read.
    pub source: String,
    /// By the host's clock, milliseconds since 1970.
    pub started_ms: i64,
    /// Version of Sluice that made it.
    pub sluice: String,
    /// Length of an interval.
    pub interval_ns: u64,
    /// How much is kept, see [`super::Detail`].
    pub mode: String,
    /// Whether it ended with a summary; otherwise it is at work or was killed.
    pub finished: bool,
    /// Why results end early.
    pub partial: Option<String>,
    /// Grows with every change.
    pub version: i64,
}

/// A run in figures, finished or not.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Which run.
    pub run: Run,
    /// First capture time, nanoseconds since the epoch.
    pub first_ns: u64,
    /// Last capture time, nanoseconds since the epoch.
    pub last_ns: u64,
    /// All channels together.
    pub counts: Counts,
    /// Lost of expected, 0 to 1.
    pub loss_ratio: f64,
    /// Frames that belong to no channel.
    pub unknown_frames: u64,
    /// Frames the capture itself lost.
    pub capture_drops: u64,
    /// Channels seen so far.
    pub channels: u64,
    /// Channels with packets in the newest interval.
    pub active: u64,
    /// Ranges of lost numbers.
    pub gaps: u64,
    /// Changes of key.
    pub rekeys: u64,
    /// Late packets of all channels.
    pub reorder: Reorder,
    /// Those that were seen.
    pub protocols: Vec<ProtocolCounts>,
    /// Kinds with at least one occurrence.
    pub anomalies: Vec<KindCount>,
    /// What only the end of a run knows.
    pub summary: Option<Summary>,
}

/// Occurrences of one kind of anomaly.
#[derive(Clone, Debug, Serialize)]
pub struct KindCount {
    /// Which kind.
    pub kind: Kind,
    /// Of that kind.
    pub severity: Severity,
    /// Channels it was seen on.
    pub channels: u64,
    /// Occurrences.
    pub count: u64,
}

/// Part of a longer list.
#[derive(Clone, Debug, Serialize)]
pub struct Page<T> {
    /// Length of the whole list.
    pub total: u64,
    /// Entries before this part.
    pub offset: u64,
    /// Most entries that were asked for.
    pub limit: u64,
    /// This part, in the order that was asked for.
    pub items: Vec<T>,
}

/// A channel in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// Identity and figures.
    #[serde(flatten)]
    pub channel: ChannelSummary,
    /// Lost of expected, 0 to 1.
    pub loss_ratio: f64,
    /// [`Counts::trouble`]
    pub trouble: u64,
    /// Packets a second between the first and the last; absent while the run is at work.
    pub rate_pps: Option<f64>,
    /// How often its state was dropped, at the end or to make room; 0 while only counts are known.
    pub lives: u64,
}

impl Flow {
    /// Figures that only the state of a channel has, which is reported when it goes or the run ends.
    pub(crate) const OF_STATE: [&str; 15] = [
        "first_ns",
        "first_frame",
        "first_sequence",
        "sequence_bits",
        "extended",
        "reorder",
        "restarts",
        "jumps",
        "gaps",
        "jitter_ns",
        "min_payload",
        "max_payload",
        "protection",
        "length_mismatches",
        "no_counter",
    ];
}

/// A course over time.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Length of a step: a multiple of the run's interval.
    pub step_ns: u64,
    /// Steps with packets, by time.
    pub points: Vec<Point>,
}

/// One step of a course.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Nanoseconds since the epoch.
    pub start_ns: u64,
    /// What the step added.
    #[serde(flatten)]
    pub counts: Counts,
    /// Of the link as a whole; 0 for a channel.
    pub unknown: u64,
    /// Most channels with packets in one interval.
    pub active: u64,
    /// Frames the capture itself lost in this step; 0 for a channel.
    pub capture_drops: u64,
}

/// An anomaly with what it means.
#[derive(Clone, Debug, Serialize)]
pub struct NamedAnomaly {
    /// Which, where and how often.
    #[serde(flatten)]
    pub anomaly: Anomaly,
    /// Of its kind.
    pub severity: Severity,
    /// What was seen and what it usually means.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
}

type Result<T> = std::result::Result<T, DatabaseError>;

impl Reader {
    /// Fails where there is no database of this version.
    pub fn open(path: &Path) -> Result<Self> {
        Self::sharing(path, &Ledgers::default())
    }

    /// Shares what is put together of channels with other readers of the same file.
    pub fn sharing(path: &Path, ledgers: &Ledgers) -> Result<Self> {
        let connection = database::open_for_reading(path)?;
        Ok(Reader { connection, path: path.to_owned(), ledgers: ledgers.clone() })
    }

    fn try_read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        read(&self.connection).map_err(|source| DatabaseError::new(&self.path, "read", source))
    }

    /// Asks about the channels of a run.
    pub(super) fn try_ledger<T>(
        &self,
        run: &Run,
        read: impl FnOnce(&Connection, &Ledger) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.try_read(|database| read(database, &*self.ledgers.of(database, run.number)?))
    }

    /// All runs, newest first.
    pub fn runs(&self) -> Result<Vec<Run>> {
        self.try_read(|database| {
            database
                .prepare_cached(&format!("{RUN} ORDER BY number DESC LIMIT 1000"))?
                .query_map([], run)?
                .collect()
        })
    }

    /// A run by its number, or the newest.
    pub fn run(&self, number: Option<i64>) -> Result<Run> {
        let sql = format!("{RUN} WHERE ?1 IS NULL OR number = ?1 ORDER BY number DESC LIMIT 1");
        self.try_read(|database| database.prepare_cached(&sql)?.query_row([number], run).optional())?
            .ok_or_else(|| DatabaseError::NoRun { path: self.path.clone(), number })
    }

    /// From what was stored so far.
    pub fn overview(&self, run: Run) -> Result<Overview> {
        let summary = self.try_read(|database| summary(database, run.number))?;
        self.try_read(|database| query::overview(database, &self.ledgers, run, summary))
    }

    /// What a scrape says.
    pub fn totals(&self, run: Run) -> Result<Totals> {
        let overview = self.overview(run)?;
        Ok(Totals {
            counts: overview.counts,
            unknown: overview.unknown_frames,
            capture_drops: overview.capture_drops,
            channels: overview.channels,
            active: overview.active,
            gaps: overview.gaps,
            rekeys: overview.rekeys,
            anomalies: overview.anomalies.iter().map(|entry| (entry.kind, entry.count)).collect(),
            last_ns: overview.last_ns,
            finished: overview.run.finished,
        })
    }

    /// The link's course, in at most `window.points` steps.
    pub fn series(&self, run: &Run, window: &Window) -> Result<Series> {
        self.try_read(|database| query::link_series(database, run, window))
    }

    /// A channel's course in the same steps; none where there is no such channel.
    pub fn channel_series(&self, run: &Run, id: u64, window: &Window) -> Result<Option<Series>> {
        self.try_read(|database| {
            let numbers = {
                let ledger = self.ledgers.of(database, run.number)?;
                let Some(entry) = ledger.find(id) else { return Ok(None) };
                ledger.numbers(entry)
            };
            query::channel_series(database, run, &numbers, window).map(Some)
        })
    }

    /// Those that a query finds.
    pub fn flows(&self, run: &Run, wanted: &FlowQuery) -> Result<Page<Flow>> {
        self.try_read(|database| Ok(query::flows(&*self.ledgers.of(database, run.number)?, wanted)))
    }

    /// None = the run has no such channel.
    pub fn flow(&self, run: &Run, id: u64) -> Result<Option<Flow>> {
        self.try_read(|database| Ok(self.ledgers.of(database, run.number)?.find(id).map(query::flow)))
    }

    /// A channel's gaps in their order; none where there is no such channel.
    pub fn gaps(&self, run: &Run, id: u64, offset: u64, limit: u64) -> Result<Option<Page<Gap>>> {
        self.try_read(|database| {
            if self.ledgers.of(database, run.number)?.find(id).is_none() {
                return Ok(None);
            }
            let number = id as i64;
            let total = database
                .prepare_cached("SELECT count(*) FROM gap WHERE run = ? AND channel = ?")?
                .query_row([run.number, number], |row| row.get::<_, i64>(0))? as u64;
            let gap = |row: &Row<'_>| {
                Ok(Gap {
                    channel: id,
                    first: unsigned(row, "first")?,
                    last: unsigned(row, "last")?,
                    lost: unsigned(row, "lost")?,
                    before_ns: unsigned(row, "before_ns")?,
                    after_ns: unsigned(row, "after_ns")?,
                    frame: unsigned(row, "frame")?,
                })
            };
            let items = database
                .prepare_cached("SELECT * FROM gap WHERE run = ? AND channel = ? ORDER BY after_ns, first LIMIT ? OFFSET ?")?
                .query_map([run.number, number, limit as i64, offset as i64], gap)?
                .collect::<rusqlite::Result<_>>()?;
            Ok(Some(Page { total, offset, limit, items }))
        })
    }

    /// Anomalies, the gravest and most frequent first.
    pub fn anomalies(&self, run: &Run, wanted: &AnomalyQuery) -> Result<Page<NamedAnomaly>> {
        self.try_read(|database| query::anomalies(database, run.number, wanted))
    }

    /// Changes of key in the order of time.
    pub fn rekeys(&self, run: &Run, offset: u64, limit: u64) -> Result<Page<Rekey>> {
        self.try_read(|database| {
            let total = database
                .prepare_cached("SELECT count(*) FROM rekey WHERE run = ?")?
                .query_row([run.number], |row| row.get::<_, i64>(0))? as u64;
            let rekey = |row: &Row<'_>| {
                Ok(Rekey {
                    from: unsigned(row, "from_id")?,
                    to: unsigned(row, "to_id")?,
                    from_name: row.get("from_name")?,
                    to_name: row.get("to_name")?,
                    at_ns: unsigned(row, "at_ns")?,
                    pause_ns: row.get("pause_ns")?,
                    lost: unsigned(row, "lost")?,
                })
            };
            let items = database
                .prepare_cached("SELECT * FROM rekey WHERE run = ? ORDER BY at_ns, from_id LIMIT ? OFFSET ?")?
                .query_map([run.number, limit as i64, offset as i64], rekey)?
                .collect::<rusqlite::Result<_>>()?;
            Ok(Page { total, offset, limit, items })
        })
    }
}

const RUN: &str =
    "SELECT number, source, started_ms, sluice, interval_ns, mode, finished, partial, last_update FROM run";

fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        number: row.get(0)?,
        source: row.get(1)?,
        started_ms: row.get(2)?,
        sluice: row.get(3)?,
        interval_ns: row.get::<_, i64>(4)?.max(1) as u64,
        mode: row.get(5)?,
        finished: row.get(6)?,
        partial: row.get(7)?,
        version: row.get::<_, i64>(8)? + row.get::<_, i64>(6)?,
    })
}

fn summary(database: &Connection, run: i64) -> rusqlite::Result<Option<Summary>> {
    let json: Option<String> = database
        .prepare_cached("SELECT summary FROM run WHERE number = ?")?
        .query_row([run], |row| row.get(0))
        .optional()?
        .flatten();
    Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
}

/// An unsigned number out of SQLite's signed ones.
pub(super) fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|value| value as u64)
}

/// The columns packets to stray of a row.
pub(super) fn counts(row: &Row<'_>) -> rusqlite::Result<Counts> {
    Ok(Counts {
        packets: unsigned(row, "packets")?,
        bytes: unsigned(row, "bytes")?,
        lost: row.get("lost")?,
        late: unsigned(row, "late")?,
        duplicates: unsigned(row, "duplicates")?,
        replays: unsigned(row, "replays")?,
        reused: unsigned(row, "reused")?,
        too_old: unsigned(row, "too_old")?,
        stray: unsigned(row, "stray")?,
    })
}

/// Rows of a statement that is put together from parts.
pub(super) fn collect<T>(
    database: &Connection,
    sql: &str,
    values: Vec<Value>,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    database.prepare_cached(sql)?.query_map(params_from_iter(values), read)?.collect()
}

/// The number of a channel as the interface shows it.
pub fn parse_id(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
