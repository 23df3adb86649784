//! The validity checks: what must hold before a figure may be believed. Each rule is a function of plain numbers, so that the
//! bench checks itself with them and tests can feed them the mistakes that published figures were made with.

use std::fs;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::method::result::Check;
use crate::method::watch::Load;

/// One repeated packet finds its entry in the first-level cache whatever the table holds. Both directions of a session are
/// packets of their own, so `sessions` counts the keys that the program looks up.
pub fn distinct(packets: u64, sessions: u64) -> Check {
    Check::new(
        "distinct packets >= sessions",
        packets >= sessions.max(1),
        format!("{packets} distinct packets, {sessions} sessions"),
    )
}

/// A capture that is read again and again repeats its sequence numbers: later passes meet warm tables, and a receiver
/// counts duplicates. `first_seen` are the records (or sequence numbers) met for the first time.
pub fn single_pass(sent: u64, first_seen: u64) -> Check {
    Check::new(
        "single pass",
        sent == first_seen && sent > 0,
        format!("{sent} packets, {first_seen} of them for the first time"),
    )
}

/// Shares of the kinds of packets, as meant and as counted where they arrived.
pub fn mix(kinds: &[(&str, f64, u64)]) -> Check {
    let total: u64 = kinds.iter().map(|(_, _, counted)| counted).sum();
    let mut worst = 0.0_f64;
    let mut told = vec![];
    for (name, meant, counted) in kinds {
        let share = *counted as f64 / total.max(1) as f64;
        // Where few packets were sent, chance alone moves the share: three standard deviations of a binomial.
        let chance = 3.0 * (meant * (1.0 - meant) / total.max(1) as f64).sqrt();
        worst = worst.max((share - meant).abs() - chance);
        told.push(format!("{name} {:.1} % of {:.1} %", 100.0 * share, 100.0 * meant));
    }
    Check::new("mix as intended", total > 0 && worst <= 0.01, told.join(", "))
}

/// Every packet is accounted for.
pub fn conserved(sent: u64, received: u64, drops: u64) -> Check {
    Check::new(
        "sent = received + drops",
        sent == received + drops && sent > 0,
        format!("{sent} sent, {received} received, {drops} counted drops"),
    )
}

/// Packets, bits and bytes must tell the same story: a rate in bits over a rate in packets is a frame size.
pub fn frame_size(bits_per_second: f64, packets_per_second: f64, frame_bytes: (f64, f64)) -> Check {
    let implied = bits_per_second / packets_per_second / 8.0;
    let (least, most) = frame_bytes;
    let holds = implied.is_finite() && implied >= 0.98 * least && implied <= 1.02 * most;
    let claimed = if least == most { format!("{least:.0}") } else { format!("{least:.0} to {most:.0}") };
    Check::new(
        "implied frame size agrees with the claimed rate",
        holds,
        format!("the rates imply {implied:.1} bytes, the frames have {claimed}"),
    )
}

/// A claimed rate must follow from the counters and the time on the clock.
pub fn rate(claimed_pps: f64, packets: u64, seconds: f64) -> Check {
    let counted = packets as f64 / seconds;
    Check::new(
        "rate agrees with its counters",
        (claimed_pps / counted - 1.0).abs() <= 0.02,
        format!("claimed {claimed_pps:.0} pps, counted {packets} in {seconds:.3} s: {counted:.0} pps"),
    )
}

/// Which of the three ways an XDP program hangs on a device, and which one the figure is named after.
pub fn native_mode(device: &str, found: &str, wanted: &str) -> Check {
    Check::new("mode as claimed", found == wanted, format!("{device}: {found}, claimed {wanted}"))
}

/// How packets came to be offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Packets a second that were asked for.
    pub wanted_pps: f64,
    /// Packets a second that were sent.
    pub offered_pps: f64,
    /// The generator waits for what it loads (inline veth, one core): the offered rate is the result, not the question.
    pub closed_loop: bool,
    /// The trial's intended and real duration.
    pub wanted_seconds: f64,
    /// As it really took.
    pub seconds: f64,
    /// The generator's rate into nothing, in the same session.
    pub ceiling_pps: f64,
}

/// A no-drop rate means something only where the generator kept offering what was asked for (RFC 2544 26.1; RFC 9971).
pub fn no_drop(offer: &Offer) -> Check {
    let reason = if offer.closed_loop {
        "closed loop: the generator waits for the device, so nothing can be lost".to_owned()
    } else if offer.wanted_pps > offer.ceiling_pps {
        format!("the generator's own ceiling is {:.0} pps", offer.ceiling_pps)
    } else if (offer.offered_pps / offer.wanted_pps - 1.0).abs() > 0.01 {
        format!("offered {:.0} of {:.0} pps", offer.offered_pps, offer.wanted_pps)
    } else if offer.seconds > 1.02 * offer.wanted_seconds {
        format!("the trial stretched from {:.2} to {:.2} s", offer.wanted_seconds, offer.seconds)
    } else {
        String::new()
    };
    let detail = if reason.is_empty() {
        format!("offered {:.0} pps, ceiling {:.0} pps", offer.offered_pps, offer.ceiling_pps)
    } else {
        reason.clone()
    };
    Check::new("generator not the limiter", reason.is_empty(), detail)
}

/// Packets without which a chi-square test of `receivers` cannot find an unfairness of `effect` (0.1: one receiver gets a
/// tenth more than its share) with 5 % false alarms and 80 % power. Where a flow stays with its receiver, flows are what
/// chance distributes: give their number instead.
pub fn enough_packets(packets: u64, receivers: u64, effect: f64) -> Check {
    let needed = fairness_needs(receivers, effect);
    Check::new(
        "enough packets to find unfairness",
        packets >= needed,
        format!(
            "{packets} packets to {receivers} receivers; a deviation of {:.0} % needs {needed}",
            100.0 * effect
        ),
    )
}

/// The squared effect size of one receiver that gets (1 + effect) of its share, at the others' expense, is
/// effect^2 / (receivers - 1) (Cohen's w); the noncentrality that gives 80 % power grows with the degrees of freedom.
pub fn fairness_needs(receivers: u64, effect: f64) -> u64 {
    let freedom = receivers.saturating_sub(1).max(1) as f64;
    // Rather more than less: 7.85 at one degree of freedom, 16.2 at ten, 40.6 at a hundred are exact.
    let noncentrality = 8.2 + 2.62 * ((2.0 * freedom).sqrt() - 2f64.sqrt());
    (noncentrality * freedom / (effect * effect)).ceil() as u64
}

/// What slows every packet down while somebody looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracing {
    /// /proc/sys/kernel/bpf_stats_enabled
    pub bpf_stats: bool,
    /// The tracer in force; empty when tracefs cannot be read.
    pub tracer: String,
    /// Events that were ever written into the trace buffers. An event that is enabled and never written costs nothing:
    /// bpf_trace_printk stays enabled from the first program that might call it.
    pub written: u64,
}

/// Whether anything that slows every program down was on.
pub fn no_tracing(before: &Tracing, after: &Tracing) -> Check {
    let mut found = vec![];
    if before.bpf_stats || after.bpf_stats {
        found.push("kernel.bpf_stats_enabled is 1".to_owned());
    }
    if let Some(on) = [before, after].iter().find(|tracing| !["", "nop"].contains(&tracing.tracer.as_str())) {
        found.push(format!("tracer {} is on", on.tracer));
    }
    let written = after.written.saturating_sub(before.written);
    if written > 0 {
        found.push(format!("{written} trace events were written"));
    }
    let clean = if after.tracer.is_empty() {
        "bpf_stats off; tracefs cannot be read"
    } else {
        "bpf_stats off, no tracer, no trace events written"
    };
    let detail = if found.is_empty() { clean.to_owned() } else { found.join("; ") };
    Check::new("no tracing", found.is_empty(), detail)
}

impl Tracing {
    /// As it is now.
    pub fn read() -> Tracing {
        let bpf_stats = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
        let trace = std::thread::spawn(read_tracefs).join().unwrap_or_default().unwrap_or_default();
        Tracing { bpf_stats: bpf_stats.is_ok_and(|text| text.trim() != "0"), ..trace }
    }
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// Tracefs is often not mounted: a thread mounts it where nobody else sees it.
fn read_tracefs() -> Option<Tracing> {
    if fs::metadata(format!("{TRACEFS}/current_tracer")).is_err() {
        unshare(CloneFlags::CLONE_NEWNS).ok()?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).ok()?;
        mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), None::<&str>).ok()?;
    }
    let tracer = fs::read_to_string(format!("{TRACEFS}/current_tracer")).ok()?.trim().to_owned();
    let cpus = fs::read_dir(format!("{TRACEFS}/per_cpu")).ok()?.flatten();
    let stats = cpus.filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok());
    Some(Tracing { bpf_stats: false, tracer, written: stats.map(|text| events_of(&text)).sum() })
}

/// Documentation/trace/ftrace.rst, `per_cpu/cpu0/stats`: what is kept, what was overwritten, what was read.
fn events_of(stats: &str) -> u64 {
    let count = |line: &str| {
        let (name, value) = line.split_once(':')?;
        ["entries", "overrun", "read events"].contains(&name).then(|| value.trim().parse::<u64>().ok())?
    };
    stats.lines().filter_map(count).sum()
}

/// Whoever else ran while rounds were timed had time that the figure was charged with.
pub fn quiet(load: &Load) -> Check {
    let doubts = load.doubts();
    let detail = if doubts.is_empty() { load.line() } else { doubts.join(", ") };
    Check::new("machine to ourselves", doubts.is_empty(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_buffers_are_counted_whole() {
        let stats = "entries: 7\noverrun: 5\ncommit overrun: 90\nbytes: 1\nnow ts: 4.2\ndropped events: 3\nread events: 2\n";
        assert_eq!(events_of(stats), 14);
    }

    #[test]
    fn tracing_is_found_by_what_it_wrote() {
        let idle = Tracing { tracer: "nop".to_owned(), written: 10, ..Tracing::default() };
        assert!(no_tracing(&idle, &idle).passed);
        assert!(!no_tracing(&idle, &Tracing { written: 11, ..idle.clone() }).passed);
        assert!(!no_tracing(&idle, &Tracing { bpf_stats: true, ..idle.clone() }).passed);
        assert!(!no_tracing(&Tracing { tracer: "function".to_owned(), ..idle.clone() }, &idle).passed);
    }
}
