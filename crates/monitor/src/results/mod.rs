//! Where results go: a database, JSON lines, a Prometheus text file.

mod database;
mod export;
mod jsonl;
mod ledger;
mod parts;
pub(crate) mod prometheus;
mod query;
mod reader;
mod rows;
mod writer;

pub use database::{DatabaseError, SCHEMA, SCHEMA_VERSION};
pub use export::{Exported, export};
pub use jsonl::JsonLines;
pub use prometheus::TextFile;
pub use reader::{
    AnomalyQuery, Flow, FlowOrder, FlowQuery, KindCount, Ledgers, NamedAnomaly, Overview, Page, Point,
    Reader, Run, Series, Window, parse_id,
};
pub use writer::{Database, Detail, RunInfo};

use crate::summary::{Sink, Summary, Update};

/// Several sinks. One that fails says so at once, keeps what it has not written and tries again; the others and the watch
/// over the link go on: a full disk must not end them.
pub struct Outputs {
    outputs: Vec<Output>,
    /// Of which sinks something is missing in the end, and why.
    pub errors: Vec<anyhow::Error>,
    tell: Tell,
}

/// Takes what an operator should read at once.
type Tell = Box<dyn FnMut(&str) + Send>;

struct Output {
    sink: Box<dyn Sink>,
    /// What it said when it failed, as long as it does.
    failure: Option<String>,
}

impl Default for Outputs {
    fn default() -> Self {
        Outputs::telling(Box::new(|text| eprintln!("sluice monitor: {text}")))
    }
}

impl Outputs {
    /// Failures go to `tell`; standard error otherwise.
    pub fn telling(tell: Tell) -> Self {
        Outputs { outputs: Vec::new(), errors: Vec::new(), tell }
    }

    /// Adds a sink where there is one.
    pub fn extend<S: Sink + 'static>(&mut self, sink: Option<S>) {
        sink.into_iter().for_each(|sink| self.push(Box::new(sink)));
    }

    /// Adds a sink; it gets what comes from here on.
    pub fn push(&mut self, sink: Box<dyn Sink>) {
        self.outputs.push(Output { sink, failure: None });
    }
}

impl Output {
    /// Says when it begins to fail, and when that is over.
    fn update(&mut self, update: Update, tell: &mut Tell) {
        match (self.sink.update(update), &self.failure) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(error), None) => {
                let text = format!("{error:#}");
                tell(&format!("{text}; it is tried again"));
                self.failure = Some(text);
            }
            (Ok(()), Some(failure)) => {
                tell(&format!("over, results are written again: {failure}"));
                self.failure = None;
            }
        }
    }
}

impl Sink for Outputs {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        let Outputs { outputs, tell, .. } = self;
        let Some((last, others)) = outputs.split_last_mut() else { return Ok(()) };
        others.iter_mut().for_each(|output| output.update(update.clone(), tell));
        // The usual case, a single one, needs no copy.
        last.update(update, tell);
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        let finished = self.outputs.iter_mut().map(|output| output.sink.finish(summary));
        self.errors.extend(finished.filter_map(Result::err));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts updates; fails from one to another.
    struct Counting(Arc<AtomicU64>, std::ops::Range<u64>);

    impl Sink for Counting {
        fn update(&mut self, _: Update) -> anyhow::Result<()> {
            anyhow::ensure!(!self.1.contains(&self.0.fetch_add(1, Ordering::Relaxed)), "no more room");
            Ok(())
        }

        fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
            let failing = self.1.contains(&self.0.fetch_add(100, Ordering::Relaxed));
            anyhow::ensure!(!failing, "no more room");
            Ok(())
        }
    }

    /// One that fails for a while and one that fails for good, alone and beside others.
    #[test]
    fn a_sink_that_fails_says_so_at_once_and_does_not_stop_the_others() {
        for beside in [false, true] {
            for (until, said) in [(4, 2), (1000, 1)] {
                let (lasting, failing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
                let told = Arc::new(std::sync::Mutex::new(Vec::new()));
                let keep = Arc::clone(&told);
                let mut outputs =
                    Outputs::telling(Box::new(move |text| keep.lock().unwrap().push(text.to_owned())));
                outputs.push(Box::new(Counting(Arc::clone(&failing), 2..until)));
                outputs.extend(beside.then(|| Counting(Arc::clone(&lasting), 0..0)));
                for round in 0..6 {
                    outputs.update(Update::default()).unwrap();
                    assert_eq!(!told.lock().unwrap().is_empty(), round >= 2, "at once");
                }
                outputs.finish(&Summary::default()).unwrap();
                assert_eq!(lasting.load(Ordering::Relaxed), if beside { 106 } else { 0 });
                assert_eq!(failing.load(Ordering::Relaxed), 106, "it gets all that comes");
                assert_eq!(outputs.errors.len(), usize::from(until == 1000));
                let told = told.lock().unwrap();
                assert_eq!(told.len(), said, "{told:?}");
                assert!(told.iter().all(|text| text.contains("no more room")), "{told:?}");
            }
        }
    }
}
