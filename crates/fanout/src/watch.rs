//! What makes a running fan-out change or end: signals, and the file it was started with.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{fs, io, thread};

use nix::sys::signal::{SigSet, Signal};

/// Also what is behind a link that is switched (as Kubernetes does it) counts, so the text is compared.
const LOOK: Duration = Duration::from_millis(100);

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// SIGHUP, or the file has another text.
    Reload,
    /// SIGTERM or SIGINT.
    End,
}

/// Signals are blocked in this thread and those it starts, so call it first.
pub fn events(file: &Path) -> io::Result<Receiver<Event>> {
    let mut signals = SigSet::empty();
    [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block()?;
    let (sender, receiver) = channel();
    let also = sender.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            let event = if signal == Signal::SIGHUP { Event::Reload } else { Event::End };
            if sender.send(event).is_err() {
                return;
            }
        }
    })?;
    watch_file(file, move || also.send(Event::Reload).is_ok())?;
    Ok(receiver)
}

/// Calls `changed` whenever the file has another text, until it answers false.
pub fn watch_file(file: &Path, changed: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let file: PathBuf = file.to_owned();
    let mut before = fs::read(&file).ok();
    thread::Builder::new().name("file-watch".into()).spawn(move || {
        loop {
            thread::sleep(LOOK);
            let Ok(text) = fs::read(&file) else { continue };
            let differs = before.as_ref() != Some(&text);
            before = Some(text);
            if differs && !changed() {
                return;
            }
        }
    })?;
    Ok(())
}
