//! The report, opened by a browser: it must load nothing, say nothing on its console, and let no text fall out.

mod example;

use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_bench::report::html;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn example_is_written() {
    std::fs::write(file("report.html"), html(&example::document()).unwrap()).unwrap();
    let _ = Command::new("true").status();
}
