//! The database file: its schema, and what can be wrong with it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use thiserror::Error;

/// The tables, as documented in docs/MONITOR.md.
pub const SCHEMA: &str = include_str!("schema.sql");
/// PRAGMA user_version.
pub const SCHEMA_VERSION: i32 = 2;
/// PRAGMA application_id ("SlMo"): other programs' databases are not touched.
const APPLICATION: i32 = 0x536c_4d6f;
/// How long another writer may hold the file before it counts as locked.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a page: parts are long, and a page costs the same whatever its size.
const PAGE: i32 = 16 << 10;
/// Pages kept in memory while writing, at most. Parts are written once and in order.
const CACHE_KIB: i32 = 4 << 10;
/// Pages in the log before they are copied into the database.
const CHECKPOINT_PAGES: i32 = 1024;

/// Why results cannot be stored or read.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum DatabaseError {
    #[error("database {path} does not exist: `sluice monitor SOURCE --db {path}` makes it")]
    Missing { path: PathBuf },
    #[error(
        "database {path} is locked by another program: wait until that ends, or give another file with --db"
    )]
    Locked { path: PathBuf },
    #[error(
        "no room left to write database {path}: what it holds is kept and marked partial; free disk space"
    )]
    Full { path: PathBuf },
    #[error(
        "database {path} could not be written for so long that {updates} parts of intervals are not in it: read the others \
         as partial"
    )]
    LeftOut { path: PathBuf, updates: u64 },
    #[error("{path} is not a database of sluice monitor: give another file with --db")]
    Foreign { path: PathBuf },
    #[error(
        "database {path} has schema {found}, this version of sluice knows {SCHEMA_VERSION}: use the version that wrote it"
    )]
    OtherVersion { path: PathBuf, found: i32 },
    #[error("database {path} has no run{}", number.map(|number| format!(" {number}")).unwrap_or_default())]
    NoRun { path: PathBuf, number: Option<i64> },
    #[error("{path} exists: give a file that is not there yet with --output")]
    Exists { path: PathBuf },
    #[error("cannot start the writer of database {path}: {source}")]
    Thread { path: PathBuf, source: std::io::Error },
    #[error("cannot {doing} database {path}: {source}")]
    Other { doing: &'static str, path: PathBuf, source: rusqlite::Error },
}

impl DatabaseError {
    /// Puts an error of SQLite into an operator's words.
    pub(super) fn new(path: &Path, doing: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DatabaseError::Locked { path },
            Some(ErrorCode::DiskFull) => DatabaseError::Full { path },
            Some(ErrorCode::NotADatabase) => DatabaseError::Foreign { path },
            _ => DatabaseError::Other { doing, path, source },
        }
    }
}

/// Opens for writing; makes the file and its tables where there are none.
pub(super) fn open_for_writing(path: &Path) -> Result<Connection, DatabaseError> {
    let error = |source| DatabaseError::new(path, "open", source);
    let connection = Connection::open(path).map_err(error)?;
    connection.busy_timeout(PATIENCE).map_err(error)?;
    connection.set_prepared_statement_cache_capacity(32);
    // Before anything is changed in a file that may be somebody else's.
    if count_tables(&connection).map_err(error)? > 0 {
        check(&connection, path)?;
    }
    // Of a new file; others keep theirs.
    connection.pragma_update(None, "page_size", PAGE).map_err(error)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(error)?;
    // In WAL mode NORMAL survives a killed process; a power cut may take back the last transactions, never break it.
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(error)?;
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(error)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(error)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(error)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(error)?;
    let tables = count_tables(&connection).map_err(error)?;
    if tables == 0 {
        connection
            .execute_batch(&format!(
                "{SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA_VERSION};"
            ))
            .map_err(error)?;
    }
    connection.execute_batch("COMMIT").map_err(error)?;
    check(&connection, path)?;
    Ok(connection)
}

/// Opens for reading, beside a writer that may be at work.
pub(super) fn open_for_reading(path: &Path) -> Result<Connection, DatabaseError> {
    if !path.exists() {
        return Err(DatabaseError::Missing { path: path.to_owned() });
    }
    let error = |source| DatabaseError::new(path, "open", source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(error)?;
    connection.busy_timeout(PATIENCE).map_err(error)?;
    let connection = match count_tables(&connection) {
        // One that its writer left in WAL mode, in a folder where its reader may not make the log.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && !has_log(path) => {
            open_unchanging(path, flags)?
        }
        _ => connection,
    };
    connection.set_prepared_statement_cache_capacity(64);
    check(&connection, path)?;
    Ok(connection)
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    Path::new(&log).exists()
}

/// A file that nobody writes to: without a log, all is in it.
fn open_unchanging(path: &Path, flags: OpenFlags) -> Result<Connection, DatabaseError> {
    let error = |source| DatabaseError::new(path, "open", source);
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte))
            }
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).map_err(error)
}

fn count_tables(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
}

fn check(connection: &Connection, path: &Path) -> Result<(), DatabaseError> {
    let pragma = |name: &str| -> Result<i32, DatabaseError> {
        connection
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(|source| DatabaseError::new(path, "read", source))
    };
    if pragma("application_id")? != APPLICATION {
        return Err(DatabaseError::Foreign { path: path.to_owned() });
    }
    match pragma("user_version")? {
        SCHEMA_VERSION => Ok(()),
        found => Err(DatabaseError::OtherVersion { path: path.to_owned(), found }),
    }
}
