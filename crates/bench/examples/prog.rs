use sluice_bench::harness::Hook;
use sluice_bench::packets::{Family, Protocol};
use sluice_bench::prog::*;
fn main() -> anyhow::Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let _l = sluice_bench::environment::exclusive()?;
    let o = Options {
        hooks: vec![Hook::Xdp, Hook::Tc],
        families: vec![Family::V4, Family::V6],
        protocols: vec![Protocol::Udp, Protocol::Tcp],
        sessions: a.get(1).map_or("1,10000", |s| s).split(',').map(|s| s.parse().unwrap()).collect(),
        kinds: vec![Kind::Established, Kind::New],
        rounds: a.get(2).map_or(5, |s| s.parse().unwrap()),
        repeat: 400_000,
    };
    run(&o, |r| {
        println!(
            "{:40} wrap {:6.2} floor {:7.2} target {:7.2} ratio {:.2} [{:.2}-{:.2}] raw {:.2} same {:.3} {}",
            r.name,
            r.wrapper_ns.value,
            r.floor_ns.value,
            r.target_ns.value,
            r.ratio.value,
            r.ratio.low,
            r.ratio.high,
            r.ratio_raw.value,
            r.same_ratio.value,
            if r.unsteady { "unsteady" } else { "" }
        )
    })?;
    Ok(())
}
