//! The reader's questions: of the link in SQL, of channels to the ledger.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use super::ledger::{Entry, Ledger, Ledgers};
use super::parts::Entries;
use super::reader::{
    Flow, KindCount, NamedAnomaly, Overview, Page, Point, Run, Series, collect, counts, unsigned,
};
use crate::anomaly::{Kind, Severity};
use crate::observation::{ChannelKey, Protocol};
use crate::summary::{Anomaly, ChannelSummary, Counts, Figures, Identity, ProtocolCounts, Reorder, Summary};

/// How flows may be sorted. Names are part of the REST interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowOrder {
    /// [`Counts::trouble`]
    #[default]
    Trouble,
    /// By the text that identifies the channel.
    Name,
    /// By the name of the protocol.
    Protocol,
    /// All packets, copies included.
    Packets,
    /// On the wire.
    Bytes,
    /// Numbers that did not come.
    Lost,
    /// Lost of expected.
    LossRatio,
    /// Packets after a higher number.
    Late,
    /// Deepest late packet, in numbers.
    MaxDepth,
    /// Copies within a second.
    Duplicates,
    /// Copies later than that.
    Replays,
    /// Other packets under used numbers.
    Reused,
    /// Ranges of lost numbers.
    Gaps,
    /// Variation of the time between packets.
    Jitter,
    /// Time of the last packet.
    LastSeen,
}

impl FlowOrder {
    /// In the order the reference lists them.
    pub const ALL: [FlowOrder; 15] = [
        FlowOrder::Trouble,
        FlowOrder::Name,
        FlowOrder::Protocol,
        FlowOrder::Packets,
        FlowOrder::Bytes,
        FlowOrder::Lost,
        FlowOrder::LossRatio,
        FlowOrder::Late,
        FlowOrder::MaxDepth,
        FlowOrder::Duplicates,
        FlowOrder::Replays,
        FlowOrder::Reused,
        FlowOrder::Gaps,
        FlowOrder::Jitter,
        FlowOrder::LastSeen,
    ];

    /// As a query has it.
    pub fn name(self) -> &'static str {
        match self {
            FlowOrder::Trouble => "trouble",
            FlowOrder::Name => "name",
            FlowOrder::Protocol => "protocol",
            FlowOrder::Packets => "packets",
            FlowOrder::Bytes => "bytes",
            FlowOrder::Lost => "lost",
            FlowOrder::LossRatio => "loss_ratio",
            FlowOrder::Late => "late",
            FlowOrder::MaxDepth => "max_depth",
            FlowOrder::Duplicates => "duplicates",
            FlowOrder::Replays => "replays",
            FlowOrder::Reused => "reused",
            FlowOrder::Gaps => "gaps",
            FlowOrder::Jitter => "jitter",
            FlowOrder::LastSeen => "last_seen",
        }
    }

    /// What numbers are sorted by; none where it is a text. Exact up to 2^53.
    fn number(self) -> Option<fn(&Figures) -> f64> {
        Some(match self {
            FlowOrder::Name | FlowOrder::Protocol => return None,
            FlowOrder::Trouble => |of| of.counts.trouble() as f64,
            FlowOrder::Packets => |of| of.counts.packets as f64,
            FlowOrder::Bytes => |of| of.counts.bytes as f64,
            FlowOrder::Lost => |of| of.counts.lost as f64,
            FlowOrder::LossRatio => |of| of.counts.loss_ratio(),
            FlowOrder::Late => |of| of.counts.late as f64,
            FlowOrder::MaxDepth => |of| of.reorder.max_depth.into(),
            FlowOrder::Duplicates => |of| of.counts.duplicates as f64,
            FlowOrder::Replays => |of| of.counts.replays as f64,
            FlowOrder::Reused => |of| of.counts.reused as f64,
            FlowOrder::Gaps => |of| of.gaps as f64,
            FlowOrder::Jitter => |of| of.jitter_ns as f64,
            FlowOrder::LastSeen => |of| of.last_ns as f64,
        })
    }

    fn text(self, key: &ChannelKey) -> String {
        if self == FlowOrder::Protocol { key.protocol().name().to_owned() } else { key.to_string() }
    }
}

/// Which flows, and in what order.
#[derive(Clone, Debug, Default)]
pub struct FlowQuery {
    /// None = all.
    pub protocol: Option<Protocol>,
    /// Part of the name.
    pub search: Option<String>,
    /// Only flows with losses, late packets, duplicates, replays or reused numbers.
    pub troubled: bool,
    /// What they are sorted by.
    pub order: FlowOrder,
    /// Smallest first; else largest first.
    pub ascending: bool,
    /// How many to leave out.
    pub offset: u64,
    /// How many to give at most.
    pub limit: u64,
}

/// Which anomalies.
#[derive(Clone, Debug, Default)]
pub struct AnomalyQuery {
    /// None = all.
    pub kind: Option<Kind>,
    /// At least so grave.
    pub severity: Option<Severity>,
    /// Number of the channel; 0 = the link as a whole.
    pub channel: Option<u64>,
    /// How many to leave out.
    pub offset: u64,
    /// How many to give at most.
    pub limit: u64,
}

/// A stretch of capture time and how finely it is wanted.
#[derive(Clone, Debug)]
pub struct Window {
    /// Nanoseconds since the epoch.
    pub from_ns: u64,
    /// Nanoseconds since the epoch; the interval that it falls into is the last.
    pub to_ns: u64,
    /// How many steps to divide it into at most.
    pub points: u64,
}

/// Intervals of a window: first, last, how many make a step.
struct Steps {
    first: i64,
    last: i64,
    step: i64,
}

impl Steps {
    fn new(database: &Connection, run: &Run, window: &Window) -> rusqlite::Result<Self> {
        let [from, to] =
            [window.from_ns, window.to_ns].map(|time| (time / run.interval_ns).min(i64::MAX as u64) as i64);
        let (first, last): (Option<i64>, Option<i64>) = database
            .prepare_cached(
                "SELECT min(number), max(number) FROM link_interval WHERE run = ? AND number BETWEEN ? AND ?",
            )?
            .query_row([run.number, from, to], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(-1));
        let count = (last - first + 1).max(1);
        Ok(Steps { first, last, step: (count as u64).div_ceil(window.points.max(1)) as i64 })
    }

    fn series(&self, run: &Run, points: Vec<Point>) -> Series {
        Series { step_ns: self.step as u64 * run.interval_ns, points }
    }
}

const SUMS: &str = "sum(packets) AS packets, sum(bytes) AS bytes, sum(lost) AS lost, sum(late) AS late,
    sum(duplicates) AS duplicates, sum(replays) AS replays, sum(reused) AS reused, sum(too_old) AS too_old,
    sum(stray) AS stray";

pub(super) fn link_series(database: &Connection, run: &Run, window: &Window) -> rusqlite::Result<Series> {
    let steps = Steps::new(database, run, window)?;
    let sql = format!(
        "SELECT (number - ?2) / ?4 AS step, {SUMS}, sum(unknown) AS unknown, max(active) AS active,
         sum(capture_drops) AS capture_drops FROM link_interval
         WHERE run = ?1 AND number BETWEEN ?2 AND ?3 GROUP BY step ORDER BY step"
    );
    let points = collect(database, &sql, values([run.number, steps.first, steps.last, steps.step]), |row| {
        Ok(Point {
            start_ns: (steps.first + row.get::<_, i64>("step")? * steps.step) as u64 * run.interval_ns,
            counts: counts(row)?,
            unknown: unsigned(row, "unknown")?,
            active: unsigned(row, "active")?,
            capture_drops: unsigned(row, "capture_drops")?,
        })
    })?;
    Ok(steps.series(run, points))
}

/// Looks only into the parts that hold one of the channel's numbers.
pub(super) fn channel_series(
    database: &Connection,
    run: &Run,
    numbers: &[u32],
    window: &Window,
) -> rusqlite::Result<Series> {
    let steps = Steps::new(database, run, window)?;
    let mut sums = BTreeMap::<i64, Counts>::new();
    let mut statement = database.prepare_cached(
        "SELECT interval, data FROM part WHERE run = ?1 AND kind = 2 AND interval BETWEEN ?2 AND ?3
         AND first_channel <= ?5 AND last_channel >= ?4",
    )?;
    let (least, most) = (numbers.iter().min().copied(), numbers.iter().max().copied());
    let bound = [run.number, steps.first, steps.last, least.unwrap_or(0).into(), most.unwrap_or(0).into()];
    let mut rows = statement.query(bound)?;
    while let Some(row) = rows.next()? {
        let step = (row.get::<_, i64>(0)? - steps.first) / steps.step;
        let mut entries = Entries::of(row.get_ref(1)?.as_blob()?);
        while let Some(delta) = entries.delta(0) {
            if numbers.contains(&delta.number) {
                sums.entry(step).or_default().add(&delta.counts);
            }
        }
    }
    let point = |(step, counts)| Point {
        start_ns: (steps.first + step * steps.step) as u64 * run.interval_ns,
        counts,
        unknown: 0,
        active: 1,
        capture_drops: 0,
    };
    Ok(steps.series(run, sums.into_iter().map(point).collect()))
}

fn values<const N: usize>(numbers: [i64; N]) -> Vec<Value> {
    numbers.into_iter().map(Value::Integer).collect()
}

pub(super) fn flows(ledger: &Ledger, wanted: &FlowQuery) -> Page<Flow> {
    let search = wanted.search.as_deref().unwrap_or_default().to_lowercase();
    let is_wanted = |entry: &&Entry| {
        wanted.protocol.is_none_or(|protocol| entry.key.protocol() == protocol)
            && (!wanted.troubled || entry.figures.counts.trouble() > 0)
            && (search.is_empty() || entry.key.to_string().to_lowercase().contains(&search))
    };
    let mut found: Vec<&Entry> = ledger.entries.iter().filter(is_wanted).collect();
    let total = found.len() as u64;
    sort(&mut found, wanted.order, wanted.ascending);
    let page = found.into_iter().skip(wanted.offset as usize).take(wanted.limit as usize);
    Page { total, offset: wanted.offset, limit: wanted.limit, items: page.map(flow).collect() }
}

/// Equal ones keep the order in which they appeared, whichever way the others are turned.
fn sort(entries: &mut Vec<&Entry>, order: FlowOrder, ascending: bool) {
    if let Some(value) = order.number() {
        entries.sort_by(|a, b| {
            let (a, b) = (value(&a.figures), value(&b.figures));
            if ascending { a.total_cmp(&b) } else { b.total_cmp(&a) }
        });
        return;
    }
    let mut named: Vec<(String, &Entry)> =
        entries.iter().map(|entry| (order.text(&entry.key), *entry)).collect();
    named.sort_by(|(a, _), (b, _)| if ascending { a.cmp(b) } else { b.cmp(a) });
    *entries = named.into_iter().map(|(_, entry)| entry).collect();
}

pub(super) fn flow(entry: &Entry) -> Flow {
    let figures = entry.figures;
    let seconds = figures.last_ns.saturating_sub(figures.first_ns) as f64 / 1e9;
    Flow {
        loss_ratio: figures.counts.loss_ratio(),
        trouble: figures.counts.trouble(),
        rate_pps: (entry.lives > 0 && seconds > 0.0).then(|| figures.counts.packets as f64 / seconds),
        lives: entry.lives,
        channel: ChannelSummary { identity: Identity::of(&entry.key), figures },
    }
}

fn kind(name: &str) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|kind| kind.name() == name)
}

pub(super) fn anomalies(
    database: &Connection,
    run: i64,
    wanted: &AnomalyQuery,
) -> rusqlite::Result<Page<NamedAnomaly>> {
    let mut conditions = "FROM anomaly WHERE run = ?1".to_owned();
    let mut bound = vec![Value::Integer(run)];
    if let Some(kind) = wanted.kind {
        bound.push(Value::Text(kind.name().to_owned()));
        conditions += &format!(" AND kind = ?{}", bound.len());
    }
    if let Some(severity) = wanted.severity {
        conditions += &format!(" AND severity >= {}", severity as i64);
    }
    if let Some(id) = wanted.channel {
        conditions += &format!(" AND channel = {}", id as i64);
    }
    let total = collect(database, &format!("SELECT count(*) {conditions}"), bound.clone(), |row| {
        row.get::<_, i64>(0)
    })?;
    let sql = format!(
        "SELECT * {conditions} ORDER BY severity DESC, count DESC, kind, channel LIMIT {} OFFSET {}",
        wanted.limit.min(i64::MAX as u64),
        wanted.offset.min(i64::MAX as u64)
    );
    let items = collect(database, &sql, bound, read_anomaly)?.into_iter().flatten().collect();
    Ok(Page {
        total: total.first().copied().unwrap_or(0) as u64,
        offset: wanted.offset,
        limit: wanted.limit,
        items,
    })
}

fn read_anomaly(row: &Row<'_>) -> rusqlite::Result<Option<NamedAnomaly>> {
    let Some(kind) = kind(&row.get::<_, String>("kind")?) else { return Ok(None) };
    let anomaly = Anomaly {
        added: 0,
        kind,
        channel: unsigned(row, "channel")?,
        channel_name: row.get("channel_name")?,
        count: unsigned(row, "count")?,
        first_ns: unsigned(row, "first_ns")?,
        last_ns: unsigned(row, "last_ns")?,
        first_sequence: unsigned(row, "first_sequence")?,
        last_sequence: unsigned(row, "last_sequence")?,
        frame: unsigned(row, "frame")?,
        detail: row.get("detail")?,
    };
    let advice = crate::report::advice(kind);
    Ok(Some(NamedAnomaly { anomaly, severity: kind.severity(), meaning: kind.help(), advice }))
}

/// A run in figures: from its summary where there is one, else from what has been written so far.
pub(super) fn overview(
    database: &Connection,
    ledgers: &Ledgers,
    run: Run,
    summary: Option<Summary>,
) -> rusqlite::Result<Overview> {
    let number = run.number;
    let (counts, bounds) = link_sums(database, number)?;
    let [unknown_frames, capture_drops, first_ns, last_ns, active] = bounds;
    let one = |sql: &str| {
        database.prepare_cached(sql)?.query_row([number], |row| row.get::<_, i64>(0)).map(|n| n as u64)
    };
    let anomalies = collect(
        database,
        "SELECT kind, count(*) AS channels, sum(count) AS occurrences FROM anomaly WHERE run = ? GROUP BY kind
         ORDER BY max(severity) DESC, occurrences DESC",
        values([number]),
        |row| {
            let entry = |kind: Kind| -> rusqlite::Result<KindCount> {
                let (channels, count) = (unsigned(row, "channels")?, unsigned(row, "occurrences")?);
                Ok(KindCount { kind, severity: kind.severity(), channels, count })
            };
            kind(&row.get::<_, String>("kind")?).map(entry).transpose()
        },
    )?;
    let mut overview = Overview {
        run,
        first_ns,
        last_ns,
        counts,
        loss_ratio: counts.loss_ratio(),
        unknown_frames,
        capture_drops,
        channels: 0,
        active,
        gaps: 0,
        rekeys: one("SELECT count(*) FROM rekey WHERE run = ?")?,
        reorder: Reorder::default(),
        protocols: Vec::new(),
        anomalies: anomalies.into_iter().flatten().collect(),
        summary: None,
    };
    match summary {
        Some(summary) => {
            overview.first_ns = summary.first_ns;
            overview.last_ns = summary.last_ns;
            overview.counts = summary.counts;
            overview.loss_ratio = summary.counts.loss_ratio();
            overview.channels = summary.channels;
            overview.gaps = summary.gaps;
            overview.reorder = summary.reorder;
            overview.protocols = summary.protocols.clone();
            overview.summary = Some(summary);
        }
        None => {
            overview.gaps = one("SELECT count(*) FROM gap WHERE run = ?")?;
            let ledger = ledgers.of(database, number)?;
            overview.channels = ledger.entries.len() as u64;
            overview.protocols = protocols(&ledger);
        }
    }
    Ok(overview)
}

/// Counts of all intervals, and: unknown, capture_drops, first_ns, last_ns, active channels in the newest.
fn link_sums(database: &Connection, run: i64) -> rusqlite::Result<(Counts, [u64; 5])> {
    let sql = format!(
        "SELECT {}, ifnull(sum(unknown), 0) AS unknown, ifnull(sum(capture_drops), 0) AS capture_drops,
         ifnull(min(start_ns), 0) AS first_ns, ifnull(max(start_ns + length_ns), 0) AS last_ns,
         ifnull((SELECT active FROM link_interval WHERE run = ?1 ORDER BY number DESC LIMIT 1), 0) AS active
         FROM link_interval WHERE run = ?1",
        SUMS.replace("sum(", "total(")
    );
    // total() yields a real number, 0.0 without rows; exact up to 2^53, which is years of any link.
    let whole = |row: &Row<'_>, column: &str| row.get::<_, f64>(column).map(|value| value as i64);
    database.prepare_cached(&sql)?.query_row([run], |row| {
        let counts = Counts {
            packets: whole(row, "packets")? as u64,
            bytes: whole(row, "bytes")? as u64,
            lost: whole(row, "lost")?,
            late: whole(row, "late")? as u64,
            duplicates: whole(row, "duplicates")? as u64,
            replays: whole(row, "replays")? as u64,
            reused: whole(row, "reused")? as u64,
            too_old: whole(row, "too_old")? as u64,
            stray: whole(row, "stray")? as u64,
        };
        let rest = ["unknown", "capture_drops", "first_ns", "last_ns", "active"];
        let mut bounds = [0; 5];
        for (bound, column) in bounds.iter_mut().zip(rest) {
            *bound = unsigned(row, column)?;
        }
        Ok((counts, bounds))
    })
}

fn protocols(ledger: &Ledger) -> Vec<ProtocolCounts> {
    let empty = |protocol| ProtocolCounts { protocol, channels: 0, counts: Counts::default() };
    let mut all = Protocol::ALL.map(empty);
    for entry in &ledger.entries {
        let sum = &mut all[entry.key.protocol() as usize];
        sum.channels += 1;
        sum.counts.add(&entry.figures.counts);
    }
    all.into_iter().filter(|sum| sum.channels > 0).collect()
}
