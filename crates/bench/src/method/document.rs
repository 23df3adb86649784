//! The document of a run: what `--json` writes and what reports and comparisons read.
//!
//! `docs/bench.schema.json` is generated from here.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method::environment::Environment;
use crate::method::judge::Judged;
use crate::method::result::{Profile, SuiteResult};

/// Raised when a reader of the JSON must know of a change.
pub const SCHEMA: u32 = 3;

/// A run of `sluice bench`: what `--json` writes and what reports and comparisons read.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDocument {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// When it began, UTC, `2026-01-31T23:59:59Z`.
    pub began: String,
    /// From start to end of the run.
    pub seconds: f64,
    /// The command line, so that anyone can do it again.
    pub command: String,
    /// How long each measurement took.
    pub profile: Profile,
    /// What it ran on.
    pub environment: Environment,
    /// In the order in which they ran.
    pub suites: Vec<SuiteResult>,
    /// Promised figures and how they were kept; empty unless `budgets` ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Judged>,
}

/// How a gzip file begins (RFC 1952 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// JSON, gzipped or not.
pub fn read(path: &Path) -> Result<RunDocument> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut text = vec![];
    if bytes.starts_with(&GZIP) {
        let unpacked = GzDecoder::new(&bytes[..]).read_to_end(&mut text);
        unpacked.with_context(|| format!("cannot decompress {}", path.display()))?;
    } else {
        text = bytes;
    }
    let value: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    if value["schema"] != SCHEMA {
        bail!(
            "{} has schema {}, this program reads {SCHEMA}: measure again",
            path.display(),
            value["schema"]
        );
    }
    serde_json::from_value(value)
        .with_context(|| format!("{} is not what `sluice bench --json` writes", path.display()))
}

/// Compressed where the name ends in `.gz`.
pub fn write(document: &RunDocument, path: &Path) -> Result<()> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return Ok(std::fs::write(path, serde_json::to_string_pretty(document)? + "\n")?);
    }
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    serde_json::to_writer(&mut file, document)?;
    file.finish()?;
    Ok(())
}
