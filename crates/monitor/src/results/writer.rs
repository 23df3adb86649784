//! Writes results into a database, on a thread of its own.
//!
//! Updates are collected until their interval is over and then added in one transaction, together with the number of
//! the last one; when more intervals wait than the disk keeps up with, several share a transaction. So a reader sees
//! whole intervals, a killed process leaves whole intervals, and a transaction that is tried again adds nothing twice.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode};

use super::database::{self, DatabaseError};
use super::rows::{Pending, RunKey, merge};
use crate::summary::{Sink, Summary, Update};

/// Updates that wait for the writer; the analysis waits when there are more.
const QUEUE: usize = 4;
/// A transaction is worth its cost from so many bytes on; fewer wait for the next interval, if that is at hand.
const ENOUGH: usize = 1 << 20;
/// A transaction of this size is written before its interval ends, to bound memory.
const MOST: usize = 4 << 20;
/// In mode fast, so many parts of packets in order are put together.
const MERGE: i64 = 64;
/// What has come is written when nothing more comes for this long.
const IDLE: Duration = Duration::from_millis(300);
/// Pause before the last transaction of a run, should it fail, is tried again, once.
const PAUSE: Duration = Duration::from_secs(1);
/// During a run, what could not be stored waits so long before it is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a transaction waits for another program during a run: the analysis goes on meanwhile, but not for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// What waits for a database that cannot be written, at most, beside which channels there are; more is left out.
const MOST_WAITING: usize = 64 << 20;

/// How much is stored of a channel's course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// A row a channel and interval only where something else than packets in order was seen.
    Fast,
    /// A row for every interval in which a channel had packets.
    #[default]
    Full,
}

/// What a run is.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// Files or interfaces that are read.
    pub source: String,
    /// Length of an interval.
    pub interval_ns: u64,
    /// How much is kept.
    pub detail: Detail,
}

/// A sink that writes into a database.
pub struct Database {
    path: PathBuf,
    run: i64,
    queue: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<Result<(), DatabaseError>>>,
    trouble: Trouble,
}

/// Why the writer cannot write, as long as it cannot.
type Trouble = Arc<Mutex<Option<String>>>;

enum Message {
    Update(Box<Update>),
    Finish(Box<Summary>),
}

impl Database {
    /// Opens or makes the database and begins a run in it.
    pub fn create(path: &Path, info: &RunInfo) -> Result<Self, DatabaseError> {
        let mut connection = database::open_for_writing(path)?;
        let run =
            begin_run(&mut connection, info).map_err(|source| DatabaseError::new(path, "write", source))?;
        let key = RunKey { run, detail: info.detail };
        let writer = Writer::new(connection, path.to_owned(), key);
        let trouble = Arc::clone(&writer.trouble);
        let (queue, updates) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || writer.run(&updates))
            .map_err(|source| DatabaseError::Thread { path: path.to_owned(), source })?;
        Ok(Database { path: path.to_owned(), run, queue: Some(queue), thread: Some(thread), trouble })
    }

    /// The run's number in the database.
    pub fn run(&self) -> i64 {
        self.run
    }

    fn send(&mut self, message: Message) -> anyhow::Result<()> {
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(message).is_ok());
        if sent { Ok(()) } else { self.close() }
    }

    /// Waits for the writer and says how it ended.
    fn close(&mut self) -> anyhow::Result<()> {
        self.queue = None;
        match self.thread.take().map(JoinHandle::join) {
            None => anyhow::bail!("database {} was given up before", self.path.display()),
            Some(Ok(result)) => Ok(result?),
            Some(Err(_)) => anyhow::bail!("the writer of database {} panicked", self.path.display()),
        }
    }
}

impl Sink for Database {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.send(Message::Update(Box::new(update)))?;
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.map_or(Ok(()), |trouble| anyhow::bail!(trouble))
    }

    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.send(Message::Finish(Box::new(summary.clone())))?;
        self.close()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.thread.is_some()
            && let Err(error) = self.close()
        {
            eprintln!("sluice monitor: {error:#}");
        }
    }
}

fn begin_run(connection: &mut Connection, info: &RunInfo) -> rusqlite::Result<i64> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let mode = match info.detail {
        Detail::Fast => "fast",
        Detail::Full => "full",
    };
    connection.query_row(
        "INSERT INTO run (source, started_ms, sluice, interval_ns, mode) VALUES (?, ?, ?, ?, ?) RETURNING number",
        (&info.source, started, env!("CARGO_PKG_VERSION"), info.interval_ns as i64, mode),
        |row| row.get(0),
    )
}

/// The thread's side.
struct Writer {
    connection: Connection,
    path: PathBuf,
    key: RunKey,
    /// What is not yet in the database.
    waiting: Vec<Pending>,
    waiting_size: usize,
    next: i64,
    newest_interval: u64,
    trouble: Trouble,
    /// When what could not be stored is tried again.
    again: Option<Instant>,
    /// Updates for which there was no room.
    left_out: u64,
}

impl Writer {
    fn new(connection: Connection, path: PathBuf, key: RunKey) -> Self {
        Writer {
            connection,
            path,
            key,
            waiting: Vec::new(),
            waiting_size: 0,
            next: 1,
            newest_interval: 0,
            trouble: Trouble::default(),
            again: None,
            left_out: 0,
        }
    }

    fn run(mut self, updates: &Receiver<Message>) -> Result<(), DatabaseError> {
        let result = self.take_all(updates);
        if let Err(error) = &result {
            // Says in the database what the caller says on the screen; where that fails, finished = 0 says it.
            let _ = self.end(Some(&error.to_string()), None);
        }
        result
    }

    fn take_all(&mut self, updates: &Receiver<Message>) -> Result<(), DatabaseError> {
        let other = |path: &Path, source| DatabaseError::new(path, "write", source);
        self.connection.busy_timeout(PATIENCE).map_err(|source| other(&self.path, source))?;
        loop {
            match updates.recv_timeout(IDLE) {
                Ok(Message::Update(update)) => self.take(*update)?,
                Ok(Message::Finish(summary)) => {
                    self.commit_last()?;
                    return self.end(summary.partial.as_deref(), Some(&summary));
                }
                Err(RecvTimeoutError::Timeout) => self.commit()?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.commit_last()?;
                    return self.end(Some("the analysis ended before its summary"), None);
                }
            }
        }
    }

    fn take(&mut self, update: Update) -> Result<(), DatabaseError> {
        let interval_ended = update.interval.index > self.newest_interval;
        if (interval_ended && self.waiting_size >= ENOUGH) || self.waiting_size >= MOST {
            self.commit()?;
        }
        self.newest_interval = self.newest_interval.max(update.interval.index);
        let update = if self.waiting_size < MOST_WAITING { update } else { self.leave_out(update) };
        let pending = Pending::new(self.next, update, self.key.detail);
        self.waiting_size += pending.size();
        self.waiting.push(pending);
        self.next += 1;
        Ok(())
    }

    /// Keeps which channels there are, by whose numbers later updates speak of them.
    fn leave_out(&mut self, update: Update) -> Update {
        self.left_out += 1;
        Update { new_channels: update.new_channels, ..Update::default() }
    }

    /// Adds what waits. What cannot be stored at this time goes on waiting.
    fn commit(&mut self) -> Result<(), DatabaseError> {
        if self.waiting.is_empty() || self.again.is_some_and(|when| Instant::now() < when) {
            return Ok(());
        }
        let trouble = match self.store() {
            Ok(()) => None,
            Err(error) if is_passing(&error) => Some(error),
            Err(error) => return Err(DatabaseError::new(&self.path, "write", error)),
        };
        self.again = trouble.as_ref().map(|_| Instant::now() + AGAIN);
        let words = trouble.map(|error| DatabaseError::new(&self.path, "write", error).to_string());
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = words;
        Ok(())
    }

    /// The same at the end, with more patience.
    fn commit_last(&mut self) -> Result<(), DatabaseError> {
        let mut result = self.connection.busy_timeout(database::PATIENCE).and_then(|()| self.store());
        if result.as_ref().is_err_and(is_passing) {
            std::thread::sleep(PAUSE);
            result = self.store();
        }
        result.map_err(|source| DatabaseError::new(&self.path, "write", source))?;
        match self.left_out {
            0 => Ok(()),
            updates => Err(DatabaseError::LeftOut { path: self.path.clone(), updates }),
        }
    }

    /// In one transaction.
    fn store(&mut self) -> rusqlite::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        add(&mut self.connection, self.key, &self.waiting)?;
        self.waiting.clear();
        self.waiting_size = 0;
        Ok(())
    }

    fn end(&mut self, partial: Option<&str>, summary: Option<&Summary>) -> Result<(), DatabaseError> {
        let json = summary.and_then(|summary| serde_json::to_string(summary).ok());
        self.connection
            .execute(
                "UPDATE run SET finished = ?, partial = ?, summary = ? WHERE number = ?",
                (summary.is_some(), partial, json, self.key.run),
            )
            .map_err(|source| DatabaseError::new(&self.path, "write", source))?;
        // A file without a log can be copied, and be read by who may not write its folder. A reader at work keeps the log,
        // which is right, too.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()));
        Ok(())
    }
}

/// Whether it may work in a moment.
fn is_passing(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
        )
    )
}

/// Adds updates whose numbers the database has not seen, all or none of them.
fn add(connection: &mut Connection, key: RunKey, updates: &[Pending]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let last: i64 =
        transaction.query_row("SELECT last_update FROM run WHERE number = ?", [key.run], |row| row.get(0))?;
    for update in updates.iter().filter(|update| update.number > last) {
        update.add(&transaction, key.run)?;
    }
    if key.detail == Detail::Fast {
        merge(&transaction, key.run, MERGE)?;
    }
    if let Some(newest) = updates.last() {
        transaction
            .prepare_cached("UPDATE run SET last_update = max(last_update, ?) WHERE number = ?")?
            .execute([newest.number, key.run])?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anomaly::Kind;
    use crate::observation::{ChannelKey, Location};
    use crate::summary::{Anomaly, ChannelDelta, Counts, Gap, Interval, NewChannel};

    fn update(interval: u64, channels: &[u64]) -> Update {
        let key = |sci: u64| ChannelKey::macsec(sci, 0, Location::default());
        let new = |sci: &u64| NewChannel { number: *sci as u32, key: key(*sci) };
        let counts = Counts { packets: 10, bytes: 640, lost: 1, ..Counts::default() };
        let delta = |sci: &u64| ChannelDelta {
            channel: key(*sci).channel_id(),
            number: *sci as u32,
            interval,
            last_ns: interval * 1_000_000_000,
            highest_sequence: interval * 11,
            counts,
        };
        let gap = |sci: &u64| Gap {
            channel: key(*sci).channel_id(),
            first: interval * 11,
            last: interval * 11,
            lost: 1,
            before_ns: 1,
            after_ns: 2,
            frame: 3,
        };
        let anomaly = |sci: &u64| Anomaly {
            added: 1,
            kind: Kind::Loss,
            channel: key(*sci).channel_id(),
            channel_name: key(*sci).to_string(),
            count: interval,
            first_ns: 1,
            last_ns: 2,
            first_sequence: 1,
            last_sequence: interval * 11,
            frame: 3,
            detail: String::new(),
        };
        Update {
            interval: Interval {
                index: interval,
                start_ns: interval * 1_000_000_000,
                length_ns: 1_000_000_000,
                counts: Counts { packets: 10 * channels.len() as u64, ..Counts::default() },
                active: channels.len() as u64,
                ..Interval::default()
            },
            new_channels: if interval == 1 { channels.iter().map(new).collect() } else { vec![] },
            deltas: channels.iter().map(delta).collect(),
            gaps: channels.iter().map(gap).collect(),
            anomalies: channels.iter().map(anomaly).collect(),
            ..Update::default()
        }
    }

    fn begin(path: &Path) -> (Connection, RunKey) {
        let mut connection = database::open_for_writing(path).unwrap();
        let info = RunInfo { source: "test".to_owned(), interval_ns: 1_000_000_000, detail: Detail::Full };
        let run = begin_run(&mut connection, &info).unwrap();
        (connection, RunKey { run, detail: Detail::Full })
    }

    fn content(connection: &Connection) -> Vec<String> {
        ["link_interval", "part", "gap", "anomaly", "run"]
            .iter()
            .flat_map(|table| {
                let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
                let width = statement.column_count();
                let cell = |row: &rusqlite::Row<'_>, at| format!("{:?}", row.get_ref(at).unwrap());
                let line = |row: &rusqlite::Row<'_>| {
                    Ok(format!(
                        "{table} {}",
                        (0..width).map(|at| cell(row, at)).collect::<Vec<_>>().join(" ")
                    ))
                };
                statement.query_map([], line).unwrap().map(Result::unwrap).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn adding_the_same_interval_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut connection, key) = begin(&folder.path().join("results.db"));
        let pending = |first: i64| {
            (1..4).map(|at| Pending::new(first + at as i64, update(at, &[5, 6, 7]), key.detail)).collect()
        };
        let updates: Vec<_> = pending(0);
        add(&mut connection, key, &updates[..2]).unwrap();
        add(&mut connection, key, &updates).unwrap();
        let once = content(&connection);
        // Intervals, a part of channels and three of deltas, gaps, anomalies, the run.
        assert_eq!(once.len(), 3 + 4 + 9 + 3 + 1);
        for _ in 0..2 {
            add(&mut connection, key, &updates).unwrap();
            add(&mut connection, key, &updates[1..]).unwrap();
            assert_eq!(content(&connection), once);
        }
        // The comparison would see it: the same under new numbers doubles.
        let again: Vec<_> = pending(3);
        add(&mut connection, key, &again).unwrap();
        assert_ne!(content(&connection), once);
    }

    /// With more anomalies than are remembered, one may be forgotten and begin anew.
    #[test]
    fn an_anomaly_that_begins_anew_is_added_to_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (mut connection, key) = begin(&folder.path().join("results.db"));
        let report = |number, count, added, first_ns, last_ns| {
            let mut update = update(1, &[5]);
            let of = &mut update.anomalies[0];
            (of.count, of.added, of.first_ns, of.last_ns) = (count, added, first_ns, last_ns);
            Pending::new(number, update, key.detail)
        };
        let updates = [report(1, 4, 4, 10, 20), report(2, 7, 3, 10, 30), report(3, 2, 2, 40, 50)];
        add(&mut connection, key, &updates).unwrap();
        let row = "SELECT count, first_ns, last_ns FROM anomaly";
        let row = |database: &Connection| {
            database.query_row(row, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?)))
        };
        assert_eq!(row(&connection).unwrap(), (9, 10, 50));
        add(&mut connection, key, &[report(4, 0, -2, 40, 50)]).unwrap();
        assert_eq!(row(&connection), Err::<(i64, i64, i64), _>(rusqlite::Error::QueryReturnedNoRows));
    }

    #[test]
    fn a_transaction_that_fails_leaves_nothing_and_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let (mut connection, key) = begin(&folder.path().join("results.db"));
        let channels: Vec<u64> = (0..5000).collect();
        let updates = [(1, update(1, &[1])), (2, update(2, &[1])), (3, update(1, &channels))]
            .map(|(number, update)| Pending::new(number, update, key.detail));
        add(&mut connection, key, &updates[..1]).unwrap();
        let before = content(&connection);
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = |connection: &Connection, pages: i64| {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
        };
        limit(&connection, pages + 4);
        let error = add(&mut connection, key, &updates).unwrap_err();
        assert!(is_passing(&error), "{error:?}");
        assert_eq!(content(&connection), before);
        limit(&connection, 1_000_000);
        add(&mut connection, key, &updates).unwrap();
        let sum = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(sum("SELECT sum(packets) FROM link_interval"), 5002 * 10);
        assert_eq!(sum("SELECT sum(channels) FROM part WHERE kind = 2"), 5002);
    }

    #[test]
    fn a_full_disk_is_said_in_words_and_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.db");
        let (connection, key) = begin(&path);
        let mut writer = Writer::new(connection, path.clone(), key);
        writer.take(update(1, &[1])).unwrap();
        writer.commit().unwrap();
        writer.connection.query_row("PRAGMA max_page_count = 40", [], |_| Ok(())).unwrap();
        let (queue, updates) = sync_channel(QUEUE);
        let many: Vec<u64> = (0..20_000).collect();
        queue.send(Message::Update(Box::new(update(1, &many)))).unwrap();
        queue.send(Message::Finish(Box::default())).unwrap();
        let error = writer.run(&updates).unwrap_err();
        assert!(
            error.to_string().contains("no room left") && error.to_string().contains("free disk space"),
            "{error}"
        );
        let left = database::open_for_reading(&path).unwrap();
        let (finished, partial): (bool, Option<String>) = left
            .query_row("SELECT finished, partial FROM run", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert!(!finished && partial.unwrap().contains("no room left"));
        assert_eq!(content(&left).iter().filter(|row| row.starts_with("link_interval")).count(), 1);
    }
}
