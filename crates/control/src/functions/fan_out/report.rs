//! What the data plane's listeners have counted, as their metrics tell it.

use sluice_abi::DropCounters;
use sluice_abi::stages::{Reason, Stage};
use sluice_dataplane::Dataplane;
use sluice_fanout::metrics::{ListenerReport, QueueReport, ReceiverReport};
use sluice_fanout::pool::Pool;
use sluice_plan::IngressHook;
use sluice_plan::fan_out::FanOutInfo;

pub fn kernel(dataplane: &Dataplane, info: &FanOutInfo, pool: Option<&Pool>) -> ListenerReport {
    let counted = dataplane.fan_out_listener(info.index).unwrap_or_default();
    let queue = QueueReport {
        queue: "all".to_owned(),
        packets: counted.received,
        bytes: counted.received_bytes,
        drops: drops(&counted.drops),
        ..QueueReport::default()
    };
    let views = pool.map(Pool::view).unwrap_or_default();
    let receiver = |(name, address, index): &(String, std::net::SocketAddr, u32)| {
        let counted = dataplane.fan_out_receiver(*index).unwrap_or_default();
        let view = views.iter().find(|v| v.target.name == *name && v.target.address == *address);
        ReceiverReport {
            name: name.clone(),
            address: address.to_string(),
            up: view.is_none_or(|view| view.up),
            share: view.map_or(10, |view| view.share),
            packets: counted.packets,
            bytes: counted.bytes,
            ..ReceiverReport::default()
        }
    };
    let former =
        |entry: &(String, std::net::SocketAddr, u32)| ReceiverReport { is_former: true, ..receiver(entry) };
    let (mode, attach) = match info.hook {
        IngressHook::Tc => ("tc_ebpf", "tc"),
        IngressHook::XdpNative => ("xdp", "native"),
        IngressHook::XdpGeneric => ("xdp", "generic"),
    };
    ListenerReport {
        name: info.name.clone(),
        mode: mode.to_owned(),
        attach: attach.to_owned(),
        zero_copy: false,
        ring_memory: None,
        interface: info.unit.clone(),
        queues: vec![queue],
        receivers: info.receivers.iter().map(receiver).chain(info.former.iter().map(former)).collect(),
    }
}

/// Every reason that datagrams of a listener are dropped for, also those that have not come up yet: what computes an
/// increase must have seen the zero before it.
fn drops(counted: &DropCounters) -> Vec<(&'static str, u64)> {
    let last = [Reason::NexthopTableFull, Reason::RewriteFailed, Reason::NeighbourPending];
    let may = |reason: &Reason| {
        matches!(reason.stage(), Stage::Fanout | Stage::Route)
            || last.contains(reason)
            || counted.of(*reason) > 0
    };
    Reason::ALL.into_iter().filter(may).map(|reason| (reason.name(), counted.of(reason))).collect()
}
