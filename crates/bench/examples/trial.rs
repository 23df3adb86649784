use sluice_bench::trial::*;
use sluice_bench::way::Way;
use std::time::Duration;
fn main() {
    let s = Sink::Socket { ring: 4096 };
    let devices = [
        Device::Nobody,
        Device::RawReceive { ring: 4096, workers: 1 },
        Device::RawReceive { ring: 4096, workers: 2 },
        Device::RawForward { ring: 4096 },
        Device::Through(Way::Linux, Sink::Xdp),
        Device::Through(Way::Nftables, Sink::Xdp),
        Device::Through(Way::Masquerade, Sink::Xdp),
        Device::Through(Way::Xdp, Sink::Xdp),
        Device::Through(Way::Xdp, s),
        Device::Through(Way::Linux, s),
        Device::Through(Way::Masquerade, s),
    ];
    for device in devices {
        for bytes in [60usize, 1486] {
            let mut stand = match Stand::new(device, bytes) {
                Ok(s) => s,
                Err(e) => {
                    println!("{} {e:#}", device.name());
                    continue;
                }
            };
            for pps in [Some(100e3), Some(400e3), Some(841e3), Some(2e6), None] {
                match stand.trial(pps, Duration::from_millis(300)) {
                    Ok(o) => println!(
                        "{:40} {bytes:5} {:?} offered {:.0} loss {:.4} sent {} received {} dropped {}",
                        device.name(),
                        pps,
                        o.offered_pps(),
                        o.loss_ratio(),
                        o.sent,
                        o.received,
                        o.dropped
                    ),
                    Err(e) => println!("{:40} {bytes:5} {:?} ERROR {e:#}", device.name(), pps),
                }
            }
        }
    }
}
