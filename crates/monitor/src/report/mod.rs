//! What a terminal shows: the summary after a run, a live table, a progress bar.

mod advice;
mod live;
mod progress;
mod summary;
mod words;

pub use advice::advice;
pub use live::Live;
pub use progress::Progress;
pub use summary::text;

/// Columns of the terminal, or as many as most have.
pub fn terminal_width() -> u16 {
    let asked = || {
        let terminal = std::fs::File::open("/dev/tty").ok()?;
        let answer = std::process::Command::new("stty").arg("size").stdin(terminal).output().ok()?;
        String::from_utf8(answer.stdout).ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    given.or_else(asked).unwrap_or(110).clamp(60, 200)
}
