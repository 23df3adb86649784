//! A progress bar for files.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::words::{short, whole};
use crate::analysis::Control;

const EVERY: Duration = Duration::from_millis(100);

/// A bar on the terminal, as long as it lives. Elsewhere it draws nothing.
pub struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Follows a run through its control.
    pub fn start(control: Arc<Control>, name: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Progress { end: None, thread: None };
        }
        Self::draw_on(ProgressDrawTarget::stderr(), control, name)
    }

    fn draw_on(target: ProgressDrawTarget, control: Arc<Control>, name: &str) -> Self {
        let (end, ended) = channel::<()>();
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_prefix(name.to_owned());
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let start = Instant::now();
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                show(&bar, &control, start.elapsed());
            }
            bar.finish_and_clear();
        });
        Progress { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// With a bar where the size is known, else with a spinner.
fn show(bar: &ProgressBar, control: &Control, elapsed: Duration) {
    let frames = control.frames.load(Ordering::Relaxed);
    let total = control.bytes_total.load(Ordering::Relaxed);
    let template = match total {
        0 => "{prefix} {spinner} {bytes}  {msg}",
        _ => "{prefix} [{bar:30}] {percent:>3} %  {bytes} of {total_bytes}  {msg}  {eta} left",
    };
    if bar.length() != Some(total).filter(|total| *total > 0) || bar.position() == 0 {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if total > 0 {
            bar.set_length(total);
        }
    }
    let rate = frames as f64 / elapsed.as_secs_f64().max(1e-3);
    bar.set_message(format!("{} packets, {}/s", whole(frames), short(rate)));
    bar.set_position(control.bytes_read.load(Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_how_far_a_run_is() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let control = Control::default();
        show(&bar, &control, Duration::from_secs(1));
        assert_eq!((bar.length(), bar.position()), (None, 0), "the size is not known yet");
        control.bytes_total.store(1000, Ordering::Relaxed);
        control.bytes_read.store(250, Ordering::Relaxed);
        control.frames.store(24_690, Ordering::Relaxed);
        show(&bar, &control, Duration::from_secs(2));
        assert_eq!((bar.length(), bar.position()), (Some(1000), 250));
        assert_eq!(bar.message(), "24,690 packets, 12.3 k/s");
    }

    #[test]
    fn it_ends_at_once() {
        let started = Instant::now();
        drop(Progress::draw_on(ProgressDrawTarget::hidden(), Arc::default(), "a.pcap"));
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
