use sluice_bench::harness::*;
use sluice_bench::packets::*;
use sluice_bench::*;
fn main() -> anyhow::Result<()> {
    rounds::pin(rounds::bench_cpu())?;
    let _l = environment::exclusive()?;
    for hook in [Hook::Xdp, Hook::Tc] {
        for family in [Family::V4, Family::V6] {
            let mut h = Harness::load(hook, family, 1 << 20, 2 << 20, ([2; 6], [4; 6]))?;
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let mut filled = 0;
                for sessions in [1usize, 10_000, 100_000, 1_000_000] {
                    h.set_packets(protocol, TCP_ACK, filled, sessions - filled, Direction::Initiator)?;
                    h.set_target(Target::Own(&h.floor("insert")))?;
                    let s = h.run((sessions - filled) as u32, 1)?;
                    anyhow::ensure!(s.misses == 0, "{s:?}");
                    let ins = s.ns;
                    filled = sessions;
                    h.set_established(protocol, sessions)?;
                    let mut v = vec![];
                    for t in ["empty".to_string(), h.floor("lookup"), h.floor("lookup")] {
                        h.set_target(Target::Own(&t))?;
                        let s = h.run(400_000, 1)?;
                        if t != "empty" {
                            assert_eq!(s.hits, 400_000);
                        }
                        v.push(s.ns);
                    }
                    println!(
                        "{hook:?} {family:?} {protocol:?} {sessions}: empty {:.2} floor {:.2} {:.2} insert {ins:.1}",
                        v[0], v[1], v[2]
                    );
                }
                h.set_packets(protocol, TCP_ACK, 0, filled, Direction::Initiator)?;
                h.set_target(Target::Own(&h.floor("delete")))?;
                let s = h.run(filled as u32, 1)?;
                println!("delete {:.1} {}", s.ns, s.hits);
            }
        }
    }
    Ok(())
}
