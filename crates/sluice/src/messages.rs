//! What the daemon logs, besides its standard error: a layer that hands it on to the hosts and files of `system syslog`.

use std::fmt::Debug;

use sluice_control::api::LogFields;
use sluice_control::{OWN_OUTPUTS, Said};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Hands messages on.
pub struct Messages;

/// Targets of what has other ways: the session log, and how these messages fare.
const OTHERS: [&str; 2] = ["session", OWN_OUTPUTS];

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(severity) = severity(*metadata.level()) else { return };
        if OTHERS.contains(&metadata.target()) {
            return;
        }
        let mut read = Read::default();
        event.record(&mut read);
        sluice_control::say(Said::new(metadata.target(), severity, read.text, read.fields));
    }
}

/// As RFC 5424 6.2.1 numbers it; None = it is for those who look for a defect.
fn severity(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(3),
        Level::WARN => Some(4),
        Level::INFO => Some(6),
        _ => None,
    }
}

#[derive(Default)]
struct Read {
    text: String,
    fields: LogFields,
}

impl Read {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.text = value,
            name => self.fields.add(name, value),
        }
    }
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }
}
