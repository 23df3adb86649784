//! A page of metrics in the Prometheus text format 0.0.4, which every collector of Prometheus, node_exporter included, reads.
//!
//! `prometheus-client` writes it: names, types, labels, what is escaped in them and in help. Two things are done here:
//!
//! - A counter is told by its whole name, which ends in `_total` and is what one searches for in code and dashboards.
//!   `prometheus-client` wants it without the ending, as OpenMetrics does, and puts the ending back.
//! - Fractions are written here. `prometheus-client` writes 0 as `0.0`, and others by Grisu2 (the crate `dtoa`), whose digits are
//!   not always the shortest, or nearest, that read back as the same number; Rust's are.
//!
//! Its counters and gauges, which add up by themselves, are not used: what we tell is counted in the kernel, or by threads of
//! their own, so that a page is made anew from what is read for it.
#![warn(missing_docs)]

#[cfg(feature = "judge")]
pub mod judge;

use std::fmt::{self, Write as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Content-Type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// What a family counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Families in the order in which they are told.
#[derive(Debug, Default)]
pub struct Page(Vec<Family>);

/// Samples of one name, which differ in their labels. It is announced even where it has none.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: Vec<Sample>,
    fraction: Option<f64>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// A whole number.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Of what cannot be below 0.
    Unsigned(u64),
    /// Of what can.
    Signed(i64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Unsigned(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Unsigned(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl Page {
    /// Announces a family, once a page.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        debug_assert!(self.0.iter().all(|family| family.name != name), "{name} is announced twice");
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}: counters end in _total");
        self.0.push_mut(Family { name, kind, help, samples: Vec::new(), fraction: None })
    }

    /// The page in the text format of Prometheus.
    pub fn text(self) -> String {
        let mut text = String::new();
        for family in self.0 {
            let (name, fraction) = (family.name, family.fraction);
            let mut registry = Registry::default();
            registry.register_collector(Box::new(family));
            prometheus_text::encode(&mut text, &registry).expect("a String has room");
            if let Some(value) = fraction {
                let _ = writeln!(text, "{name} {value}");
            }
        }
        text
    }
}

impl Family {
    /// Adds a sample; its labels differ from those of all others of the family.
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) -> &mut Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value: value.into() });
        self
    }

    /// The one sample of a gauge without labels, where it need not be a whole number.
    pub fn fraction(&mut self, value: f64) {
        self.fraction = Some(value);
    }
}

impl Collector for Family {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (name, kind) = match self.kind {
            Kind::Counter => (self.name.strip_suffix("_total").unwrap_or(self.name), MetricType::Counter),
            Kind::Gauge => (self.name, MetricType::Gauge),
        };
        let mut family = encoder.encode_descriptor(name, self.help, None, kind)?;
        for Sample { labels, value } in &self.samples {
            let mut sample = family.encode_family(labels)?;
            match (self.kind, value) {
                (Kind::Counter, Value::Unsigned(value)) => {
                    sample.encode_counter::<NoLabelSet, _, f64>(value, None)?
                }
                (Kind::Gauge, Value::Unsigned(value)) => sample.encode_gauge(value)?,
                (_, Value::Signed(value)) => sample.encode_gauge(value)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge;

    fn text(family: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        family(&mut page);
        page.text()
    }

    #[test]
    fn a_counter_has_its_whole_name_in_every_line() {
        let text = text(|page| {
            page.family("sluice_sent_total", Kind::Counter, "Packets sent")
                .sample(&[("unit", "wan0.100"), ("zone", "wan")], u64::MAX)
                .sample(&[], 0_u32);
        });
        assert_eq!(
            text,
            "# HELP sluice_sent_total Packets sent\n\
             # TYPE sluice_sent_total counter\n\
             sluice_sent_total{unit=\"wan0.100\",zone=\"wan\"} 18446744073709551615\n\
             sluice_sent_total 0\n"
        );
    }

    #[test]
    fn gauges_may_be_below_zero_yes_or_no_and_fractions() {
        let gauge = |value: Value| text(|page| _ = page.family("g", Kind::Gauge, "h").sample(&[], value));
        let head = "# HELP g h\n# TYPE g gauge\n";
        for (value, written) in
            [(Value::from(-3_i64), "-3"), (true.into(), "1"), (u64::MAX.into(), "18446744073709551615")]
        {
            assert_eq!(gauge(value), format!("{head}g {written}\n"));
        }
        // the shortest digits that read back as the number; those of Grisu2 end in 7285
        for (value, written) in
            [(0.0, "0"), (2.0, "2"), (0.25, "0.25"), (1604724074.0037285, "1604724074.0037284")]
        {
            let text = text(|page| page.family("g", Kind::Gauge, "h").fraction(value));
            assert_eq!(text, format!("{head}g {written}\n"));
        }
    }

    #[test]
    fn families_are_announced_in_order_even_without_samples() {
        let text = text(|page| {
            page.family("b", Kind::Gauge, "second");
            page.family("a_total", Kind::Counter, "first");
        });
        assert_eq!(text, "# HELP b second\n# TYPE b gauge\n# HELP a_total first\n# TYPE a_total counter\n");
    }

    #[test]
    #[should_panic = "a is announced twice"]
    fn a_family_is_announced_once() {
        text(|page| {
            page.family("a", Kind::Gauge, "");
            page.family("a", Kind::Gauge, "");
        });
    }

    #[test]
    #[should_panic = "sent: counters end in _total"]
    fn a_counter_without_its_ending_is_noticed() {
        text(|page| _ = page.family("sent", Kind::Counter, ""));
    }

    /// Text format 0.0.4: `\`, `"` and line feeds in values of labels, `\` and line feeds in help.
    #[test]
    fn what_would_end_a_label_or_a_line_is_escaped() {
        let (help, label) = ("a \\ \"b\"\nc", "\\ \" \n } , = # é \\n");
        let text = text(|page| _ = page.family("g", Kind::Gauge, help).sample(&[("l", label)], 1_u64));
        assert_eq!(
            text,
            "# HELP g a \\\\ \"b\"\\nc\n\
             # TYPE g gauge\n\
             g{l=\"\\\\ \\\" \\n } , = # é \\\\n\"} 1\n"
        );
        let families = judge::read(&text).unwrap();
        assert_eq!((families[0].help.as_str(), families[0].samples[0].labels["l"].as_str()), (help, label));
    }

    #[test]
    fn another_reader_reads_what_was_meant() {
        let text = text(|page| {
            page.family("sent_total", Kind::Counter, "Sent").sample(&[("to", "a")], 7_u64);
            page.family("difference", Kind::Gauge, "Lost").sample(&[("at", "b")], -2_i64);
            page.family("seconds", Kind::Gauge, "Time").fraction(1604724074.0037285);
            page.family("nothing_total", Kind::Counter, "None yet");
        });
        let families = judge::read(&text).unwrap();
        let read: Vec<_> = families
            .iter()
            .map(|family| {
                let values: Vec<f64> = family.samples.iter().map(|sample| sample.value).collect();
                (family.name.as_str(), family.kind.as_str(), values)
            })
            .collect();
        let wanted = [
            ("sent", "counter", vec![7.0]),
            ("difference", "gauge", vec![-2.0]),
            ("seconds", "gauge", vec![1604724074.0037285]),
            ("nothing", "counter", vec![]),
        ];
        assert_eq!(read, wanted);
        assert_eq!(families[0].samples[0].name, "sent_total");
    }
}
