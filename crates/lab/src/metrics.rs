//! The metrics of a daemon in a namespace, in the Prometheus text format.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use crate::netns::Netns;

/// What a daemon tells at one time.
#[derive(Debug)]
pub struct Metrics(pub String);

impl Metrics {
    /// Asks who listens at this address of the namespace.
    pub fn read(netns: &Netns, address: &str) -> Result<Metrics> {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: sluice\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let answer = netns.enter(ask)?.with_context(|| format!("no metrics from {address}"))?;
        let (head, page) = answer.split_once("\r\n\r\n").context("metrics without a head")?;
        ensure!(head.contains(" 200 "), "metrics of {address}: {head}");
        Ok(Metrics(page.to_owned()))
    }

    /// Sum of a family's samples that have all of these labels, each written `name="value"`.
    pub fn sum(&self, family: &str, labels: &[&str]) -> Result<u64> {
        let is_one = |line: &&str| {
            line.strip_prefix(family).is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| {
            let number = line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok());
            number.with_context(|| format!("no whole number: {line}"))
        };
        self.0.lines().filter(is_one).map(value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_are_summed_by_their_labels() {
        let page = "# TYPE a_total counter\na_total{x=\"1\",y=\"1\"} 2\na_total{x=\"1\",y=\"2\"} 3\n\
                    a_total_more{x=\"1\"} 9\nb{x=\"1\"} 0.5\n";
        let metrics = Metrics(page.to_owned());
        let sum = |labels: &[&str]| metrics.sum("a_total", labels).unwrap();
        assert_eq!((sum(&[]), sum(&["x=\"1\""]), sum(&["x=\"1\"", "y=\"2\""])), (5, 5, 3));
        assert_eq!((sum(&["y=\"3\""]), metrics.sum("c", &[]).unwrap()), (0, 0));
        assert!(metrics.sum("b", &[]).unwrap_err().to_string().contains("0.5"));
    }
}
