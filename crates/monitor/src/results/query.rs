//! The reader's questions in SQL.

use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use super::reader::{
    Flow, KindCount, NamedAnomaly, Overview, Page, Point, Run, Series, channel_number, collect, counts,
    unsigned,
};
use super::rows::DEPTH_COLUMNS;
use crate::channel::anomaly::{Kind, Severity};
use crate::observation::Protocol;
use crate::summary::{
    Anomaly, ChannelSummary, Counts, Exhaustion, Figures, Identity, Protection, ProtocolCounts, Reorder,
    Summary,
};

/// How flows may be sorted. Names are part of the REST interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowOrder {
    /// Replays and reused numbers, then losses, then the rest.
    #[default]
    Trouble,
    Name,
    Protocol,
    Packets,
    Bytes,
    Lost,
    LossRatio,
    Late,
    MaxDepth,
    Duplicates,
    Replays,
    Reused,
    Gaps,
    Jitter,
    LastSeen,
}

impl FlowOrder {
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

    fn sql(self) -> &'static str {
        match self {
            FlowOrder::Trouble => TROUBLE,
            FlowOrder::Name => "name",
            FlowOrder::Protocol => "protocol",
            FlowOrder::Packets => "packets",
            FlowOrder::Bytes => "bytes",
            FlowOrder::Lost => "lost",
            FlowOrder::LossRatio => {
                "max(lost, 0) * 1.0 / max(packets - duplicates - replays - reused - stray - too_old + max(lost, 0), 1)"
            }
            FlowOrder::Late => "late",
            FlowOrder::MaxDepth => "max_depth",
            FlowOrder::Duplicates => "duplicates",
            FlowOrder::Replays => "replays",
            FlowOrder::Reused => "reused",
            FlowOrder::Gaps => "gaps",
            FlowOrder::Jitter => "jitter_ns",
            FlowOrder::LastSeen => "last_ns",
        }
    }
}

const TROUBLE: &str = "(replays + reused) * 100 + max(lost, 0) * 10 + late + duplicates";

/// Which flows, and in what order.
#[derive(Clone, Debug, Default)]
pub struct FlowQuery {
    pub protocol: Option<Protocol>,
    /// Part of the name.
    pub search: Option<String>,
    /// Only flows with losses, late packets, duplicates, replays or reused numbers.
    pub troubled: bool,
    pub order: FlowOrder,
    pub ascending: bool,
    pub offset: u64,
    pub limit: u64,
}

/// Which anomalies.
#[derive(Clone, Debug, Default)]
pub struct AnomalyQuery {
    pub kind: Option<Kind>,
    /// At least so grave.
    pub severity: Option<Severity>,
    pub channel: Option<u64>,
    pub offset: u64,
    pub limit: u64,
}

/// A stretch of capture time and how finely it is wanted.
#[derive(Clone, Debug)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
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

/// One look-up an interval: channel_interval is stored by interval, which costs the writer least.
pub(super) fn channel_series(
    database: &Connection,
    run: &Run,
    channel: i64,
    window: &Window,
) -> rusqlite::Result<Series> {
    let steps = Steps::new(database, run, window)?;
    let sql = format!(
        "SELECT (c.number - ?2) / ?4 AS step, {} FROM link_interval l CROSS JOIN channel_interval c
         ON c.run = l.run AND c.number = l.number AND c.channel = ?5
         WHERE l.run = ?1 AND l.number BETWEEN ?2 AND ?3 GROUP BY step ORDER BY step",
        SUMS.replace("sum(", "sum(c.")
    );
    let bound = values([run.number, steps.first, steps.last, steps.step, channel]);
    let points = collect(database, &sql, bound, |row| {
        Ok(Point {
            start_ns: (steps.first + row.get::<_, i64>("step")? * steps.step) as u64 * run.interval_ns,
            counts: counts(row)?,
            unknown: 0,
            active: 1,
            capture_drops: 0,
        })
    })?;
    Ok(steps.series(run, points))
}

fn values<const N: usize>(numbers: [i64; N]) -> Vec<Value> {
    numbers.into_iter().map(Value::Integer).collect()
}

const FLOWS: &str = "FROM channel JOIN channel_total ON channel_total.run = channel.run
    AND channel_total.channel = channel.number WHERE channel.run = ?1";

pub(super) fn flows(database: &Connection, run: i64, wanted: &FlowQuery) -> rusqlite::Result<Page<Flow>> {
    let mut conditions = FLOWS.to_owned();
    let mut bound = vec![Value::Integer(run)];
    if let Some(protocol) = wanted.protocol {
        bound.push(Value::Text(protocol.name().to_owned()));
        conditions += &format!(" AND protocol = ?{}", bound.len());
    }
    if let Some(search) = wanted.search.as_ref().filter(|search| !search.is_empty()) {
        bound.push(Value::Text(search.to_lowercase()));
        conditions += &format!(" AND instr(lower(name), ?{}) > 0", bound.len());
    }
    if wanted.troubled {
        conditions += &format!(" AND {TROUBLE} > 0");
    }
    let total = collect(database, &format!("SELECT count(*) {conditions}"), bound.clone(), |row| {
        row.get::<_, i64>(0)
    })?;
    let direction = if wanted.ascending { "ASC" } else { "DESC" };
    let sql = format!(
        "SELECT channel.*, channel_total.* {conditions} ORDER BY {} {direction}, channel.number LIMIT {} OFFSET {}",
        wanted.order.sql(),
        wanted.limit.min(i64::MAX as u64),
        wanted.offset.min(i64::MAX as u64)
    );
    let items = collect(database, &sql, bound, read_flow)?;
    Ok(Page {
        total: total.first().copied().unwrap_or(0) as u64,
        offset: wanted.offset,
        limit: wanted.limit,
        items,
    })
}

pub(super) fn flow(database: &Connection, run: i64, id: u64) -> rusqlite::Result<Option<Flow>> {
    let sql = format!("SELECT channel.*, channel_total.* {FLOWS} AND id = ?2");
    Ok(collect(database, &sql, values([run, id as i64]), read_flow)?.pop())
}

fn read_flow(row: &Row<'_>) -> rusqlite::Result<Flow> {
    let figures = figures(row)?;
    let lives = unsigned(row, "lives")?;
    let seconds = figures.last_ns.saturating_sub(figures.first_ns) as f64 / 1e9;
    Ok(Flow {
        loss_ratio: figures.counts.loss_ratio(),
        rate_pps: (lives > 0 && seconds > 0.0).then(|| figures.counts.packets as f64 / seconds),
        lives,
        channel: ChannelSummary { identity: identity(row)?, figures },
    })
}

fn identity(row: &Row<'_>) -> rusqlite::Result<Identity> {
    Ok(Identity {
        id: unsigned(row, "id")?,
        name: row.get("name")?,
        protocol: protocol(&row.get::<_, String>("protocol")?),
        interface: row.get("interface")?,
        outer_vlan: row.get("outer_vlan")?,
        vlan: row.get("vlan")?,
        sci: row.get("sci")?,
        source: row.get("source")?,
        destination: row.get("destination")?,
        key_id: row.get("key_id")?,
        group: unsigned(row, "key_group")?,
    })
}

fn protocol(name: &str) -> Protocol {
    Protocol::ALL.into_iter().find(|protocol| protocol.name() == name).unwrap_or(Protocol::Esp)
}

fn figures(row: &Row<'_>) -> rusqlite::Result<Figures> {
    let exhaustion = match row.get::<_, Option<f64>>("exhaustion_s")? {
        None => None,
        Some(seconds) => Some(Exhaustion {
            rate_pps: row.get("exhaustion_rate_pps")?,
            remaining: unsigned(row, "exhaustion_remaining")?,
            seconds,
        }),
    };
    Ok(Figures {
        first_ns: unsigned(row, "first_ns")?,
        last_ns: unsigned(row, "last_ns")?,
        first_frame: unsigned(row, "first_frame")?,
        first_sequence: unsigned(row, "first_sequence")?,
        highest_sequence: unsigned(row, "highest_sequence")?,
        sequence_bits: row.get("sequence_bits")?,
        extended: row.get("extended")?,
        counts: counts(row)?,
        reorder: reorder(row)?,
        restarts: row.get("restarts")?,
        jumps: row.get("jumps")?,
        gaps: unsigned(row, "gaps")?,
        jitter_ns: unsigned(row, "jitter_ns")?,
        min_payload: row.get("min_payload")?,
        max_payload: row.get("max_payload")?,
        protection: match row.get("protection")? {
            1 => Protection::Encrypted,
            2 => Protection::IntegrityOnly,
            3 => Protection::Mixed,
            _ => Protection::None,
        },
        length_mismatches: row.get("length_mismatches")?,
        exhaustion,
        one_way: row.get("one_way")?,
        evicted: row.get("evicted")?,
    })
}

fn reorder(row: &Row<'_>) -> rusqlite::Result<Reorder> {
    let mut reorder = Reorder { max_depth: row.get("max_depth")?, ..Reorder::default() };
    for (depth, column) in reorder.depths.iter_mut().zip(DEPTH_COLUMNS) {
        *depth = unsigned(row, column)?;
    }
    let windows = ["would_drop_0", "would_drop_32", "would_drop_64", "would_drop_512"];
    for (count, column) in reorder.would_drop.iter_mut().zip(windows) {
        *count = unsigned(row, column)?;
    }
    Ok(reorder)
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
        let number = if id == 0 { Some(0) } else { channel_number(database, run, id)? };
        conditions += &format!(" AND channel = {}", number.unwrap_or(-1));
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
        kind,
        channel: unsigned(row, "channel_id")?,
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
            (overview.channels, overview.protocols) = protocols(database, number)?;
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

fn protocols(database: &Connection, run: i64) -> rusqlite::Result<(u64, Vec<ProtocolCounts>)> {
    let sql =
        format!("SELECT protocol, count(*) AS channels, {SUMS} {FLOWS} GROUP BY protocol ORDER BY protocol");
    let read = |row: &Row<'_>| {
        let protocol = protocol(&row.get::<_, String>("protocol")?);
        Ok(ProtocolCounts { protocol, channels: unsigned(row, "channels")?, counts: counts(row)? })
    };
    let protocols = collect(database, &sql, values([run]), read)?;
    Ok((protocols.iter().map(|entry| entry.channels).sum(), protocols))
}
