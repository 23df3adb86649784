//! dpdk-testpmd between the two devices of a gateway, on packet sockets: no hugepages, no network card.

use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_lab::netns::Netns;

use crate::generator::site::{LAN, WAN};
use crate::method::affinity::bench_cpu;

/// Ends with the value.
pub struct Testpmd(Child);

/// From start to forwarding.
const START: Duration = Duration::from_millis(2500);

/// Whether scripts/setup-bench.sh could install it.
pub fn is_installed() -> bool {
    std::process::Command::new("dpdk-testpmd")
        .args(["--no-huge", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn()
        .is_ok_and(|mut child| child.kill().is_ok() && child.wait().is_ok())
}

impl Testpmd {
    pub fn start(gateway: &Netns, peer: [u8; 6]) -> Result<Testpmd> {
        let peer = peer.map(|byte| format!("{byte:02x}")).join(":");
        let core = 1 - bench_cpu().min(1);
        // The main core only waits, so it may share the generator's.
        let arguments = format!(
            "--no-huge --no-pci --no-shconf --no-telemetry -m 256 --lcores 0@{main},1@{core} --main-lcore 0 \
             --vdev=net_af_packet0,iface={LAN},qdisc_bypass=1 --vdev=net_af_packet1,iface={WAN},qdisc_bypass=1 \
             -- --total-num-mbufs=16384 --forward-mode=mac --eth-peer=1,{peer} --auto-start --no-lsc-interrupt --stats-period=3600",
            main = bench_cpu()
        );
        let mut command = gateway.command("dpdk-testpmd");
        command.args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            command.spawn().context("cannot start dpdk-testpmd; scripts/setup-bench.sh installs it")?;
        thread::sleep(START);
        if let Some(status) = child.try_wait()? {
            bail!("dpdk-testpmd ended at once ({status})");
        }
        Ok(Testpmd(child))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It ends with its namespace at the latest.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
