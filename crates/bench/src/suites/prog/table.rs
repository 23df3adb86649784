//! Rows as people read them.

use super::{Kind, Row};
use crate::method::number::interval;
use crate::method::result::Table;
use crate::method::stats::Estimate;

/// One row in one line, printed as soon as it is measured.
pub fn line(row: &Row) -> String {
    format!(
        "{:34} {:7.1} ns, floor {:7.1} ns, {}, raw {:.2}x, A/A {:.3}{}",
        row.name,
        row.target_ns.value,
        row.floor_ns.value,
        ratio(&row.ratio),
        row.ratio_raw.value,
        row.same_ratio.value,
        notes(row)
    )
}

/// What a reader must know before quoting the row. First packets all take the slow path.
fn notes(row: &Row) -> String {
    let mut notes = String::new();
    if row.unsteady {
        notes += ", unsteady";
    }
    if row.slow_packets > 0 && row.spec.kind == Kind::Established {
        notes += &format!(", {} packets took the slow path", row.slow_packets);
    }
    notes
}

/// The same rows with the wrapper left in: a smaller ratio, and not the one that is judged.
pub fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            format!("{:.1}", row.wrapper_ns.value),
            format!("{:.1}", row.floor_raw_ns.value),
            format!("{:.1}", row.target_raw_ns.value),
            format!("{:.2}", row.ratio_raw.value),
            row.distinct_packets.to_string(),
            row.capacity.to_string(),
            row.slow_packets.to_string(),
        ]
    };
    let header = [
        "row",
        "wrapper",
        "raw floor",
        "raw sluice",
        "raw ratio",
        "distinct packets",
        "capacity",
        "slow path",
    ];
    Table {
        title: "Nanoseconds a packet with the wrapper left in".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
        note: "wrapper: prog-run's own cost, ring, header rebuild and one tail call to an empty program; figures have \
            their round's wrapper taken off. slow path: packets of all rounds that took it."
            .to_owned(),
    }
}

fn ratio(estimate: &Estimate) -> String {
    format!("{:.2}x {}", estimate.value, interval(estimate, 2))
}
