//! Generators of others, counted by our receiver: what they claim must be what came.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice_lab::netns::{Netns, VethEnd, veth};

use crate::generator::wire::frame::build;
use crate::generator::wire::pair::Pair;
use crate::generator::wire::receiver::Role;
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::suite::Context;

type Measure = fn(&Context) -> Result<(Vec<f64>, Vec<Check>)>;

/// (command, figure, what measures it)
const GENERATORS: [(&str, &str, Measure); 3] = [
    ("trafgen", "trafgen, one repeated 64 B frame", trafgen),
    ("sockperf", "sockperf, 18-byte UDP datagrams of one socket", sockperf),
    ("dpdk-testpmd", "dpdk-testpmd txonly on AF_PACKET, 64 B", testpmd),
];

pub fn run(context: &Context, result: &mut SuiteResult) -> Result<()> {
    for (i, (command, name, measure)) in GENERATORS.into_iter().enumerate() {
        context.progress.at(0.85 + 0.05 * i as f64, name);
        if !is_installed(command) {
            result
                .notes
                .push(format!("{command} is not installed: no cross-check with it (scripts/setup-bench.sh)"));
            continue;
        }
        match measure(context) {
            Ok((samples, checks)) => {
                let figure = Figure::new(name, "Mpps", Better::Higher, samples);
                result.figures.push(checks.into_iter().fold(figure, Figure::check));
            }
            Err(error) => result.errors.push(format!("{command}: {error:#}")),
        }
    }
    Ok(())
}

pub fn is_installed(command: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(command).is_file()))
}

/// A file of the run that goes with it.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("sluice-bench-{}-{name}", std::process::id()));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn trafgen(context: &Context) -> Result<(Vec<f64>, Vec<Check>)> {
    let mut pair = Pair::veth(Role::Drop)?;
    let frame = build(&pair.addresses, 60, 0, 0, 0);
    let bytes = frame.iter().map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(", ");
    let file = Scratch::new("trafgen", &format!("{{ {bytes} }}\n"))?;
    let count: u64 = context.pick(200_000, 2_000_000);
    let (mut samples, mut received) = (vec![], 0);
    for _ in 0..context.rounds {
        pair.receiver.expect(1, false)?;
        let netns = pair.netns().context("a pair of ours has a namespace")?;
        let mut command = netns.command("trafgen");
        command.args([
            "--dev",
            "here0",
            "--cpus",
            "1",
            "--num",
            &count.to_string(),
            "--no-sock-mem",
            "--conf",
        ]);
        command.arg(&file.0).stdout(Stdio::null()).stderr(Stdio::null());
        let (seconds, status) = timed(&pair, command)?;
        ensure!(status.success(), "trafgen ended with {status}");
        pair.receiver.settle(count);
        let came = pair.receiver.received();
        received += came;
        samples.push(came as f64 / seconds / 1e6);
    }
    let claimed = count * context.rounds as u64;
    Ok((samples, vec![checks::conserved(claimed, received, 0)]))
}

/// Runs a command; seconds from the first frame that arrived to the last.
fn timed(pair: &Pair, mut command: std::process::Command) -> Result<(f64, std::process::ExitStatus)> {
    let mut child = command.spawn().context("cannot start it")?;
    let (mut first, mut last, mut seen) = (None, Instant::now(), 0);
    loop {
        let ended = child.try_wait()?;
        let now = pair.receiver.received();
        if now != seen {
            (seen, last) = (now, Instant::now());
            first.get_or_insert(last);
        }
        if let Some(status) = ended {
            let first = first.context("no frame of it arrived")?;
            return Ok(((last - first).as_secs_f64(), status));
        }
        thread::sleep(Duration::from_micros(500));
    }
}

/// A namespace with counters of UDP for each end.
fn hosts() -> Result<(Netns, Netns)> {
    let (left, right) = (Netns::create("peer-a")?, Netns::create("peer-b")?);
    let end = |netns, name, addresses| VethEnd { netns, name, mac: None, addresses };
    veth(end(&left, "here0", &["192.0.2.1/24"]), end(&right, "there0", &["192.0.2.2/24"]))?;
    Ok((left, right))
}

fn udp_counter(netns: &Netns, name: &str) -> Result<u64> {
    let text = netns.enter(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = lines.next().zip(lines.next()).context("the kernel counts no UDP")?;
    let at = names.split(' ').position(|word| word == name).with_context(|| format!("no counter {name}"))?;
    Ok(values.split(' ').nth(at).and_then(|word| word.parse().ok()).unwrap_or(0))
}

fn sockperf(context: &Context) -> Result<(Vec<f64>, Vec<Check>)> {
    let (left, right) = hosts()?;
    // A socket must be there, or every datagram is answered with an ICMP error.
    let mut sink = right.command("sockperf");
    let sink =
        sink.args(["server", "-i", "192.0.2.2", "-p", "5001"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut sink = sink.spawn().context("cannot start sockperf")?;
    thread::sleep(Duration::from_millis(300));
    let mut checks = vec![];
    let samples = (0..context.rounds).map(|_| -> Result<f64> {
        let (began, before) = (Instant::now(), udp_counter(&left, "OutDatagrams")?);
        let words = "throughput -i 192.0.2.2 -p 5001 -t 1 -m 18";
        let text = left.run("sockperf", words.split(' '))?;
        let (sent, seconds) = (udp_counter(&left, "OutDatagrams")? - before, began.elapsed().as_secs_f64());
        let claimed = claimed_messages(&text).context("sockperf named no message rate")?;
        // Its own start takes time that its rate leaves out.
        let plausible = claimed <= 1.02 * sent as f64 && claimed * seconds >= 0.9 * sent as f64;
        checks = vec![Check::new(
            "external generator's rate agrees with the kernel's counters",
            plausible,
            format!("sockperf claims {claimed:.0} a second; the kernel sent {sent} in {seconds:.2} s, start included"),
        )];
        Ok(claimed / 1e6)
    });
    let samples = samples.collect::<Result<Vec<_>>>();
    // It ends with its namespace at the latest.
    let _ = sink.kill();
    let _ = sink.wait();
    Ok((samples?, checks))
}

/// `Summary: Message Rate is 1234 [msg/sec]`
fn claimed_messages(text: &str) -> Option<f64> {
    let rest = text.split_once("Message Rate is ")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

fn testpmd(context: &Context) -> Result<(Vec<f64>, Vec<Check>)> {
    let pair = Pair::veth(Role::Drop)?;
    let netns = pair.netns().context("a pair of ours has a namespace")?;
    let seconds = context.pick(3, 8).to_string();
    let words = "--no-huge --no-pci --no-telemetry --no-shconf -m 256 -l 0,1 --vdev net_af_packet0,iface=here0 \
                 -- --forward-mode=txonly --txpkts=60 --total-num-mbufs=8192 --auto-start --stats-period 1";
    let mut command = netns.command("timeout");
    command.args(["--signal=INT", &seconds, "dpdk-testpmd"]).args(words.split_whitespace());
    let before = foreign(&pair);
    let output = command.output().context("cannot start dpdk-testpmd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let came = foreign(&pair) - before;
    let claimed = claimed_packets(&text).with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("it sent nothing: {}", error.lines().last().unwrap_or_default())
    })?;
    let rates = claimed_rates(&text);
    ensure!(!rates.is_empty(), "it named no rate");
    // Frames of the kernel's own (none with IPv6 off) would be counted as its.
    let check = Check::new(
        "external generator's count agrees with ours",
        came > 0 && came.abs_diff(claimed) <= claimed / 100,
        format!("dpdk-testpmd claims {claimed}, {came} arrived"),
    );
    Ok((rates.iter().map(|pps| pps / 1e6).collect(), vec![check]))
}

fn foreign(pair: &Pair) -> u64 {
    pair.receiver.report(0).foreign
}

/// The largest of `TX-packets: 1234`: the last, and the sum at the end.
fn claimed_packets(text: &str) -> Option<u64> {
    let counts =
        text.split("TX-packets:").skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
    counts.max()
}

/// Of `Tx-pps: 1234`; the first is of the start.
fn claimed_rates(text: &str) -> Vec<f64> {
    let rates = text.split("Tx-pps:").skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
    rates.filter(|rate| *rate > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read() {
        assert_eq!(
            claimed_messages("sockperf: Summary: Message Rate is 716417 [msg/sec]\n"),
            Some(716_417.0)
        );
        let text =
            "TX-packets: 64 TX-errors: 0\n Tx-pps: 0 Tx-bps: 0\nTX-packets: 900 \n Tx-pps:  450 Tx-bps: 1\n";
        assert_eq!((claimed_packets(text), claimed_rates(text)), (Some(900), vec![450.0]));
        assert_eq!((claimed_messages(""), claimed_packets("")), (None, None));
    }
}
