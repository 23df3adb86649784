//! docs/MONITOR.md tells every anomaly as the program does.

use std::path::Path;

use sluice_monitor::anomaly::Kind;
use sluice_monitor::report::advice;

const BEGIN: &str =
    "<!-- anomalies:begin, written by UPDATE=1 cargo test -p sluice-monitor --test all docs:: -->\n";
const END: &str = "<!-- anomalies:end -->";

fn anomalies() -> String {
    let mut text = "| anomaly | severity | what was seen | what to do |\n|---|---|---|---|\n".to_owned();
    for kind in Kind::ALL {
        let severity = format!("{:?}", kind.severity()).to_lowercase();
        text += &format!("| `{}` | {severity} | {} | {} |\n", kind.name(), kind.help(), advice(*kind));
    }
    text
}

#[test]
fn the_page_tells_every_anomaly_as_the_program_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MONITOR.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has lost its marker");
    let (found, after) = rest.split_once(END).expect("the page has lost its end marker");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", anomalies())).unwrap();
    } else {
        let how =
            "docs/MONITOR.md is not up to date: UPDATE=1 cargo test -p sluice-monitor --test all docs::";
        assert!(found == anomalies(), "{how}");
    }
}
