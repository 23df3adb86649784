//! Bulk TCP through a gateway on the tc hook: iperf3 between the hosts of a site, paired with Linux forwarding and with
//! the least a tc redirect can do.

use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use sluice_dataplane::Sizes;

use crate::frames::Frames;
use crate::gateway::{Side, Site, Sluice, WAN_HOST_ADDRESS};
use crate::harness::Hook;
use crate::layouts::BarePort;
use crate::link::Place;
use crate::rounds::{bench_cpu, interleave};
use crate::stats::{Estimate, estimate, paired_ratio};

const SECONDS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    Sluice,
    Linux,
    BareRedirect,
}

pub const PATHS: [Path; 3] = [Path::Sluice, Path::Linux, Path::BareRedirect];

struct Lane {
    path: Path,
    site: Site,
    server: Child,
    sluice: Option<Sluice>,
    bare: Option<(Frames, Vec<OwnedFd>)>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        // It ends with its namespace at the latest.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Lane {
    fn new(path: Path) -> Result<Lane> {
        let site = Site::create("bulk")?;
        let (mut sluice, mut bare) = (None, None);
        match path {
            Path::Sluice => {
                let start = || Sluice::start(&site, Hook::Tc, Sizes::default(), true);
                sluice = Some(site.gateway.enter(start)??);
            }
            Path::BareRedirect => bare = Some(bare_redirect(&site)?),
            Path::Linux => {}
        }
        let mut command = site.wan_host.command("iperf3");
        let server = command.arg("-s").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.context("cannot start iperf3; scripts/setup.sh installs it")?;
        let mut lane = Lane { path, site, server, sluice, bare };
        lane.wait_for_server()?;
        Ok(lane)
    }

    fn wait_for_server(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match self.transfer(1, 1) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error.context("no traffic passes")),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Gb/s that arrived, and what the gateway's own counters say of the way it took.
    fn measure(&mut self, streams: u32) -> Result<f64> {
        let redirected = self.redirected()?;
        let gbps = self.transfer(streams, SECONDS)?;
        let passed = self.redirected()? - redirected;
        ensure!(
            self.path == Path::Linux || passed > 1000,
            "{:?} redirected {passed} packets: the transfer went another way",
            self.path
        );
        Ok(gbps)
    }

    fn redirected(&self) -> Result<u64> {
        if let Some(sluice) = &self.sluice {
            return Ok(sluice.dataplane.counters()?.total().redirected);
        }
        Ok(self.bare.as_ref().map_or(0, |(frames, _)| frames.bare.read(0).redirected.iter().sum()))
    }

    /// Client on one CPU, server on the other, so that every path has the same two.
    fn transfer(&self, streams: u32, seconds: u32) -> Result<f64> {
        let arguments = format!(
            "-c {WAN_HOST_ADDRESS} -J -t {seconds} -P {streams} -A 0,{} --connect-timeout 1000",
            bench_cpu()
        );
        let text = self.site.lan_host.run("iperf3", arguments.split(' '))?;
        let report: Value = serde_json::from_str(&text).context("iperf3 gave no JSON")?;
        match report["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) if rate > 0.0 => Ok(rate / 1e9),
            _ => bail!("iperf3 reports no rate: {}", report["error"]),
        }
    }
}

fn bare_redirect(site: &Site) -> Result<(Frames, Vec<OwnedFd>)> {
    let mut frames = Frames::load()?;
    let port = |from: &Side, to: &Side| BarePort {
        in_ifindex: from.ifindex,
        out_ifindex: to.ifindex,
        dmac: to.host_mac,
        smac: to.mac,
        zero: 0,
    };
    let ports = [port(&site.lan, &site.wan), port(&site.wan, &site.lan)];
    frames.bare.update(0, |bare| bare.port = ports);
    let links = [site.lan.ifindex, site.wan.ifindex]
        .map(|ifindex| frames.attach("bare_redirect", &site.gateway, ifindex, Place::TcxIngress));
    Ok((frames, links.into_iter().collect::<Result<Vec<_>>>()?))
}

#[derive(Debug, Clone, Serialize)]
pub struct BulkRow {
    pub path: Path,
    pub streams: u32,
    pub gbps: Estimate,
    /// Sluice's throughput relative to this path's, paired by round; of Sluice itself: 1.
    pub sluice_ratio: Estimate,
    pub samples: Vec<f64>,
}

pub fn run(streams: &[u32], rounds: usize) -> Result<Vec<BulkRow>> {
    let lane =
        |path: &Path| Lane::new(*path).with_context(|| format!("cannot set up iperf3 through {path:?}"));
    let mut lanes = PATHS.iter().map(lane).collect::<Result<Vec<_>>>()?;
    let mut rows = vec![];
    for streams in streams {
        let samples = interleave(lanes.len(), rounds, |contestant, _| {
            let lane = &mut lanes[contestant];
            lane.measure(*streams).with_context(|| format!("iperf3 through {:?}", lane.path))
        })?;
        rows.extend(PATHS.iter().enumerate().map(|(i, path)| BulkRow {
            path: *path,
            streams: *streams,
            gbps: estimate(&samples[i]),
            sluice_ratio: paired_ratio(&samples[0], &samples[i]),
            samples: samples[i].clone(),
        }));
    }
    Ok(rows)
}
