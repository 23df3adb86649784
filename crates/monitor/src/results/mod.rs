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

/// Several sinks. One that fails is set aside with its error, and the others go on: a full disk must not end the
/// watch over a link.
#[derive(Default)]
pub struct Outputs {
    sinks: Vec<Box<dyn Sink>>,
    /// Why sinks were given up.
    pub errors: Vec<anyhow::Error>,
}

impl Outputs {
    /// Adds a sink where there is one.
    pub fn extend<S: Sink + 'static>(&mut self, sink: Option<S>) {
        self.sinks.extend(sink.map(|sink| Box::new(sink) as Box<dyn Sink>));
    }

    /// Adds a sink; it gets what comes from here on.
    pub fn push(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    fn each(&mut self, mut call: impl FnMut(&mut Box<dyn Sink>) -> anyhow::Result<()>) {
        let errors = &mut self.errors;
        self.sinks.retain_mut(|sink| match call(sink) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("{error:#}");
                errors.push(error);
                false
            }
        });
    }
}

impl Sink for Outputs {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        if let [only] = &mut self.sinks[..]
            && self.errors.is_empty()
        {
            // The usual case needs no copy.
            if let Err(error) = only.update(update) {
                self.errors.push(error);
                self.sinks.clear();
            }
            return Ok(());
        }
        self.each(|sink| sink.update(update.clone()));
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.each(|sink| sink.finish(summary));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Counting(Arc<AtomicU64>, u64);

    impl Sink for Counting {
        fn update(&mut self, _: Update) -> anyhow::Result<()> {
            anyhow::ensure!(self.0.fetch_add(1, Ordering::Relaxed) < self.1, "no more room");
            Ok(())
        }

        fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
            self.0.fetch_add(100, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_fails_does_not_stop_the_others() {
        let (lasting, failing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut outputs = Outputs::default();
        outputs.push(Box::new(Counting(Arc::clone(&failing), 2)));
        outputs.push(Box::new(Counting(Arc::clone(&lasting), u64::MAX)));
        for _ in 0..5 {
            outputs.update(Update::default()).unwrap();
        }
        outputs.finish(&Summary::default()).unwrap();
        assert_eq!(lasting.load(Ordering::Relaxed), 105);
        assert_eq!(failing.load(Ordering::Relaxed), 3, "two taken, one refused, then left alone");
        assert_eq!(outputs.errors.len(), 1);
    }
}
