//! Five benchmarks under the names, with the sizes and the lines of output that users of such gates know.

use std::time::Instant;

use anyhow::{Result, bail};

use super::bed::{GateBed, Traffic, specs};
use crate::generator::packets::Family;

const ATTACK: &str = "benchmark_attack_scenario_dropped_packets";
const LEGITIMATE: &str = "benchmark_legitimate_traffic_accepted_packets";
const MIXED: &str = "benchmark_mixed_traffic";
const MAP: &str = "benchmark_map_operations";
const SCALABILITY: &str = "benchmark_scalability_varying_map_sizes";
const ALL: &str = "benchmarks";

const SESSIONS: usize = 5_000;
const UNIQUE: usize = 100;
const REPEATS: usize = 10_000;
const TARGET_NS: f64 = 2_000.0;

pub fn parser() -> clap::builder::PossibleValuesParser {
    [ATTACK, LEGITIMATE, MIXED, MAP, SCALABILITY, ALL].into()
}

pub fn run(name: &str) -> Result<()> {
    match name {
        ATTACK => dropped(),
        LEGITIMATE => accepted(),
        MIXED => mixed(),
        MAP => operations(),
        SCALABILITY => scalability(),
        ALL => [ATTACK, LEGITIMATE, MIXED, MAP, SCALABILITY].into_iter().try_for_each(|one| {
            run(one)?;
            println!();
            Ok(())
        }),
        _ => bail!("there is no benchmark `{name}`"),
    }
}

/// Nanoseconds a packet, the wrapper taken off.
fn measure(bed: &mut GateBed, traffic: Traffic) -> Result<f64> {
    let packets = (UNIQUE * REPEATS) as u32;
    bed.set_traffic(traffic, UNIQUE)?;
    bed.run_gate(traffic, 100_000)?;
    let wrapper = bed.run_own("empty", packets)?.ns;
    Ok((bed.run_gate(traffic, packets)? - wrapper).max(0.1))
}

fn filled(sessions: usize) -> Result<GateBed> {
    let bed = GateBed::new(Family::V4, sessions, UNIQUE)?;
    println!("Pre-filled session map with {sessions} entries");
    Ok(bed)
}

fn rating(ns: f64) -> &'static str {
    match ns {
        ns if ns < 100.0 => "Excellent",
        ns if ns < 500.0 => "Good",
        ns if ns <= TARGET_NS => "Acceptable",
        _ => "Poor",
    }
}

fn results(title: &str, ns: f64, tested: &str) {
    println!(" {title} RESULTS");
    println!("  Average Latency:  {ns:.2} ns/packet");
    println!("  Throughput:       {:.0} packets/sec", 1e9 / ns);
    println!("  Map Size:         {SESSIONS} sessions");
    println!("  Packets Tested:   {}{tested}", UNIQUE * REPEATS);
    println!("  Status:           {} (< 2µs)", if ns < TARGET_NS { "PASS" } else { "FAIL" });
    println!("  Rating:           {}", rating(ns));
}

fn dropped() -> Result<()> {
    println!("BENCHMARK: Attack Scenario (Dropped Packets)");
    let mut bed = filled(SESSIONS)?;
    println!(" Generating {UNIQUE} unique random packets...");
    println!(" Map contains {SESSIONS} authorized sessions\n");
    println!(" Running benchmark: {UNIQUE} unique packets x {REPEATS} repeats each");
    results("ATTACK SCENARIO", measure(&mut bed, Traffic::Drop)?, " (all dropped)");
    Ok(())
}

fn accepted() -> Result<()> {
    println!("BENCHMARK: Legitimate Traffic (Accepted Packets)");
    let mut bed = filled(SESSIONS)?;
    println!(" Generating {UNIQUE} unique valid packets...");
    println!(" Map contains {SESSIONS} authorized sessions\n");
    println!(" Running benchmark: {UNIQUE} unique packets x {REPEATS} repeats each...");
    results("LEGITIMATE TRAFFIC", measure(&mut bed, Traffic::Accept)?, " (all accepted)");
    Ok(())
}

fn mixed() -> Result<()> {
    println!("BENCHMARK: Mixed Traffic (Attack + Legitimate)");
    let mut bed = filled(SESSIONS)?;
    println!(" Testing with {} packets (50% legitimate, 50% attack)", UNIQUE * REPEATS);
    println!(" Map contains {SESSIONS} authorized sessions\n");
    results("MIXED TRAFFIC", measure(&mut bed, Traffic::Mixed)?, "");
    Ok(())
}

fn operations() -> Result<()> {
    println!("BENCHMARK: eBPF Map Operations Performance");
    let bed = GateBed::new(Family::V4, 0, UNIQUE)?;
    let (grants, now) = (bed.sluice.dataplane.grants(), bed.sluice.dataplane.now_jiffies()?);
    let specs = specs(Family::V4, SESSIONS);
    let timed = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let begun = Instant::now();
        work()?;
        Ok(begun.elapsed().as_secs_f64() * 1e6 / SESSIONS as f64)
    };
    let mut given = vec![];
    let insert = timed(&mut || {
        given = grants.give(&specs, now)??;
        Ok(())
    })?;
    let lookup = timed(&mut || {
        specs.iter().try_for_each(|spec| match grants.find(&spec.key, now) {
            Some(_) => Ok(()),
            None => bail!("a grant has vanished"),
        })
    })?;
    let delete = timed(&mut || match grants.revoke(&sluice_dataplane::Pick::All, now)?.len() {
        SESSIONS => Ok(()),
        other => bail!("{other} grants were revoked"),
    })?;
    println!(" MAP OPERATIONS RESULTS");
    println!("  Operations:       {SESSIONS} per test\n");
    for (name, us) in [("Insert", insert), ("Lookup", lookup), ("Delete", delete)] {
        println!("  {name} Latency:   {us:.2} µs/op");
        println!("  {name} Throughput: {:.0} ops/sec\n", 1e6 / us);
    }
    Ok(())
}

fn scalability() -> Result<()> {
    println!("BENCHMARK: Scalability with Varying Map Sizes");
    for sessions in [100, 500, 1000, 2500, 5000] {
        let ns = measure(&mut filled(sessions)?, Traffic::Accept)?;
        println!(
            "  Map Size: {sessions:>5} → Latency: {ns:.2} ns/pkt | Throughput: {:>10.0} pkt/s",
            1e9 / ns
        );
    }
    println!(" Scalability benchmark complete");
    Ok(())
}
