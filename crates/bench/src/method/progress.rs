//! What a run tells while it runs: a bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shared by all threads of a run; cheap to clone.
#[derive(Clone)]
pub struct Progress(Arc<Output>);

enum Output {
    Silent,
    Lines,
    Bar(ProgressBar),
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

const STEPS: u64 = 1000;

impl Progress {
    /// Shows nothing.
    pub fn silent() -> Progress {
        Progress(Arc::new(Output::Silent))
    }

    /// A bar when standard error is a terminal, else a line whenever something is said.
    pub fn stderr() -> Progress {
        if !stderr().is_terminal() {
            return Progress(Arc::new(Output::Lines));
        }
        let bar = ProgressBar::new(STEPS);
        let template = "{spinner} {prefix:10} {bar:28} {percent:>3} % {elapsed:>4}  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress(Arc::new(Output::Bar(bar)))
    }

    /// A suite begins.
    pub fn begin(&self, suite: &str) {
        match &*self.0 {
            Output::Silent => {}
            Output::Lines => eprintln!("{suite}"),
            Output::Bar(bar) => {
                bar.reset();
                bar.set_prefix(suite.to_owned());
            }
        }
    }

    /// What is done right now, and which share (0 to 1) of the suite is behind it.
    pub fn at(&self, share: f64, what: &str) {
        if let Output::Bar(bar) = &*self.0 {
            bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_message(what.to_owned());
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &*self.0 {
            Output::Silent => {}
            Output::Lines => eprintln!("  {line}"),
            Output::Bar(bar) => bar.println(format!("  {line}")),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Output::Bar(bar) = &*self.0 {
            bar.finish_and_clear();
        }
    }
}
