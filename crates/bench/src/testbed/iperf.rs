//! iperf3 between the hosts of a lane.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::generator::site::WAN_HOST_ADDRESS;
use crate::method::affinity::bench_cpu;
use crate::testbed::forwarder::{Forwarder, Lane};

/// A lane with an iperf3 server at its wan host.
pub struct Bulk {
    pub lane: Lane,
    server: Child,
}

/// What to transfer.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub streams: u32,
    pub length: Length,
    /// From the server to the client (`-R`).
    pub reverse: bool,
}

/// For a server that begins, or that ends with the client before.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a client says of a server that clears up after the one before, or opens its socket anew.
const NOT_YET: [&str; 2] = ["the server is busy", "Connection refused"];

#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// Whole ones.
    Seconds(f64),
    Bytes(u64),
}

impl Length {
    fn words(self) -> String {
        match self {
            Length::Seconds(seconds) => format!("-t {seconds:.0}"),
            Length::Bytes(bytes) => format!("-n {bytes}"),
        }
    }
}

/// What arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrived {
    pub gbps: f64,
    /// Slowest stream over fastest.
    pub similar: f64,
    pub retransmits: u64,
    /// Bytes and segments of the data's direction that Sluice counted, where it forwards.
    pub counted: Option<(u64, u64)>,
}

impl Drop for Bulk {
    fn drop(&mut self) {
        // It ends with its namespace at the latest.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Bulk {
    pub fn new(forwarder: Forwarder) -> Result<Bulk> {
        Bulk::over(Lane::new(forwarder, "bulk")?)
    }

    pub fn over(lane: Lane) -> Result<Bulk> {
        let mut command = lane.site.wan_host.command("iperf3");
        let server = command.arg("-s").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.context("cannot start iperf3; scripts/setup.sh installs it")?;
        let bulk = Bulk { lane, server };
        bulk.wait_for_server()?;
        Ok(bulk)
    }

    fn wait_for_server(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let first = Transfer { streams: 1, length: Length::Bytes(1 << 20), reverse: false };
        loop {
            match self.transfer(first, [0, bench_cpu()]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error.context("no traffic passes")),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Client on one CPU, server on the other, so that every way has the same two. Asserts that the packets took the way
    /// that is being judged.
    pub fn measure(&self, transfer: Transfer) -> Result<Arrived> {
        self.measure_on(transfer, [0, bench_cpu()])
    }

    /// The same with client and server on these CPUs.
    pub fn measure_on(&self, transfer: Transfer, cpus: [usize; 2]) -> Result<Arrived> {
        let name = self.lane.forwarder.name();
        let (passed, counted) = (self.lane.passed()?, self.counted(transfer)?);
        let mut arrived = self.transfer(transfer, cpus).with_context(|| format!("iperf3 through {name}"))?;
        if let (Some(before), Some(after)) = (passed, self.lane.passed()?) {
            let passed = after - before;
            let least = least_packets(arrived.gbps, transfer.length);
            ensure!(
                passed >= least,
                "{name} redirected {passed} packets, the transfer had {least} at least: it went another way"
            );
        }
        if let (Some(before), Some(after)) = (counted, self.counted(transfer)?) {
            arrived.counted = Some((after.0 - before.0, after.1 - before.1));
        }
        Ok(arrived)
    }

    /// Bytes and segments that Sluice has received where the data comes in: unit 0 is lan0, unit 1 wan0.
    fn counted(&self, transfer: Transfer) -> Result<Option<(u64, u64)>> {
        let Some(sluice) = &self.lane.sluice else { return Ok(None) };
        let units = &sluice.plan.units;
        let device = if transfer.reverse { &self.lane.site.wan } else { &self.lane.site.lan };
        let unit =
            units.iter().find(|unit| unit.device == device.device).context("a unit for every device")?;
        let counters = sluice.dataplane.counters()?.unit(unit.index as u16);
        Ok(Some((counters.received_bytes, counters.received)))
    }

    fn transfer(&self, transfer: Transfer, [client, server]: [usize; 2]) -> Result<Arrived> {
        let Transfer { streams, length, reverse } = transfer;
        let arguments = format!(
            "-c {WAN_HOST_ADDRESS} -J {} -P {streams} -A {client},{server} --connect-timeout 1000{}",
            length.words(),
            if reverse { " -R" } else { "" }
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.lane.site.lan_host.run("iperf3", arguments.split(' '))?;
            if !NOT_YET.iter().any(|word| report.contains(word)) || Instant::now() > deadline {
                return read_report(&report);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// No packet is longer than 64 KiB; a tenth less, since the rate is iperf3's over its own time.
fn least_packets(gbps: f64, length: Length) -> u64 {
    let bytes = match length {
        Length::Seconds(seconds) => gbps * 1e9 / 8.0 * seconds,
        Length::Bytes(bytes) => bytes as f64,
    };
    ((0.9 * bytes / 65_536.0) as u64).max(1)
}

fn read_report(text: &str) -> Result<Arrived> {
    let report: Value = serde_json::from_str(text).context("iperf3 gave no JSON")?;
    let end = &report["end"];
    let rate = match end["sum_received"]["bits_per_second"].as_f64() {
        Some(rate) if rate > 0.0 => rate,
        _ => bail!("iperf3 reports no rate: {}", report["error"]),
    };
    let streams = end["streams"].as_array().context("iperf3 reports no streams")?;
    let rates: Vec<f64> =
        streams.iter().filter_map(|stream| stream["receiver"]["bits_per_second"].as_f64()).collect();
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    Ok(Arrived {
        gbps: rate / 1e9,
        similar: if fastest > 0.0 { slowest / fastest } else { 0.0 },
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        counted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_stream_is_seen() {
        let report = |a: f64, b: f64| {
            format!(
                r#"{{"end":{{"sum_received":{{"bits_per_second":8e9}},"sum_sent":{{"retransmits":3}},
                "streams":[{{"receiver":{{"bits_per_second":{a}}}}},{{"receiver":{{"bits_per_second":{b}}}}}]}}}}"#
            )
        };
        let arrived = read_report(&report(4e9, 4e9)).unwrap();
        assert_eq!((arrived.gbps, arrived.similar, arrived.retransmits), (8.0, 1.0, 3));
        assert_eq!(read_report(&report(8e9, 0.0)).unwrap().similar, 0.0);
        assert!(read_report(r#"{"error":"unable to connect"}"#).is_err());
    }
}
