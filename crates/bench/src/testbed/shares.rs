//! Who gets which share: flows over receivers, and loss over flows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::generator::ring::PacketRing;
use crate::method::affinity::{bench_cpu, pin};
use crate::testbed::trial::{Device, Stand};

/// After the last frame, for queues to empty.
const DRAIN: Duration = Duration::from_millis(300);
/// All flows of a lap fit one receiver's ring.
const RING: u32 = 1 << 16;

/// Sends one frame of every flow and counts what each of `receivers` sockets of one fanout group got.
pub fn over_receivers(stand: &mut Stand, flows: usize, receivers: usize) -> Result<Vec<u64>> {
    let site = &stand.lane.site;
    let (netns, ifindex) = match stand.device {
        Device::Through(..) => (&site.wan_host, site.wan.host_ifindex),
        _ => (&site.gateway, site.lan.ifindex),
    };
    let mut rings = (0..receivers)
        .map(|_| PacketRing::open(netns, ifindex, RING, Some(2)))
        .collect::<Result<Vec<_>>>()?;
    stand.frames.aim_sized(&site.lan, flows, 60)?;
    stand.frames.send_sized(&site.lan_host, flows as u32, 60)?;
    thread::sleep(DRAIN);
    let mut counts = vec![];
    for ring in &mut rings {
        let mut count = 0;
        while ring.next(|_| count += 1).is_some() {}
        ensure!(ring.drops()? == 0, "a receiver's ring overflowed");
        counts.push(count);
    }
    Ok(counts)
}

/// Offers `flows` flows, one frame after the other of each, to a receiver that is slower than they come, and counts
/// what arrives by flow.
pub fn over_flows(stand: &mut Stand, flows: usize, ring: u32, length: Duration) -> Result<Vec<u64>> {
    ensure!(flows <= 1 << 16, "flows are told apart by 16 bits of their address");
    let site = &stand.lane.site;
    let mut ring = PacketRing::open(&site.gateway, site.lan.ifindex, ring, None)?;
    stand.frames.aim_sized(&site.lan, flows, 60)?;
    let stop = AtomicBool::new(false);
    let mut counts = vec![0u64; flows];
    thread::scope(|scope| -> Result<()> {
        let (stop, counts) = (&stop, &mut counts);
        scope.spawn(move || {
            // Unpinned it works, too, only less steadily.
            let _ = pin(1 - bench_cpu().min(1));
            while !stop.load(Ordering::Relaxed) {
                let mut busy = 0u64;
                ring.next(|frame| {
                    let flow = usize::from(u16::from_be_bytes([frame[28], frame[29]]));
                    if flow < counts.len() {
                        counts[flow] += 1;
                    }
                    // A receiver that has something to do.
                    (0..100).for_each(|i| busy = std::hint::black_box(busy ^ i));
                });
            }
        });
        let done = stand.frames.run_for(&site.lan_host, 60, None, length);
        stop.store(true, Ordering::Relaxed);
        done.map(drop)
    })?;
    Ok(counts)
}
