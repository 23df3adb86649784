//! Rows of `prog` by stage: packets that end at each stage in turn, so that the next one's cost is the difference.

use std::os::fd::AsFd;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::abi::stages::Reason;

use crate::generator::harness::{Harness, Hook, Target};
use crate::generator::layouts::RingEntry4;
use crate::generator::packets::{CLIENTS4, Direction, Family, Protocol, TCP_ACK, Template, Tuple, address4};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::{Better, Chart, Figure, Step, SuiteResult, Table, Waterfall};
use crate::method::rounds::interleave;
use crate::method::stats::estimate;
use crate::method::suite::Context;
use crate::testbed::bed::Bed;
use crate::testbed::gateway::{DENIED_PORT, Tally, denying_configuration};

/// Where the packets of a row end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Established: fast path, redirected. Not part of the sum.
    Fast,
    /// Another host's frame: the least the slow path can do.
    Entry,
    Land,
    Fragment,
    Session,
    Local,
    Route,
    Policy,
    /// A session is made and the packet redirected.
    Exit,
}

/// In the order of the stages.
const ENDS: [End; 9] = [
    End::Fast,
    End::Entry,
    End::Land,
    End::Fragment,
    End::Session,
    End::Local,
    End::Route,
    End::Policy,
    End::Exit,
];
const HOOK: Hook = Hook::Xdp;
const SESSIONS: usize = 10_000;
/// Distinct packets of a row; of first packets as many as a round makes sessions.
const PACKETS: usize = 20_000;
/// The gateway's own address on the link, as `Site` sets it.
const OWN: [u8; 4] = [192, 0, 2, 1];
/// Where a blackhole route leads: the one way to end at `route` that is not answered.
const NOWHERE: [u8; 2] = [172, 16];

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Fast => "established, for comparison",
            End::Entry => "entry",
            End::Land => "land",
            End::Fragment => "fragment",
            End::Session => "session",
            End::Local => "local",
            End::Route => "route",
            End::Policy => "policy",
            End::Exit => "create + exit",
        }
    }

    /// The named drop that proves where a packet ended.
    fn reason(self) -> Option<Reason> {
        match self {
            End::Fast | End::Exit => None,
            End::Entry => Some(Reason::OtherHost),
            End::Land => Some(Reason::Land),
            End::Fragment => Some(Reason::FragmentNoFirst),
            End::Session => Some(Reason::TcpNotSyn),
            End::Local => Some(Reason::HostInbound),
            End::Route => Some(Reason::RouteProhibited),
            End::Policy => Some(Reason::PolicyDeny),
        }
    }

    fn template(self, harness: &Harness) -> Template {
        let mut template = match self {
            End::Session => harness.template(Protocol::Tcp, TCP_ACK),
            _ => harness.template(Protocol::Udp, 0),
        };
        match self {
            End::Entry => template.bytes[..6].copy_from_slice(&[2, 0xbe, 0, 0, 9, 9]),
            // The last of a datagram, whose first was not seen: offset 1480.
            End::Fragment => template.bytes[21] = 185,
            _ => {}
        }
        template
    }

    /// The n-th packet. Sessions of other numbers than the established ones.
    fn entry(self, template: &Template, n: usize) -> RingEntry4 {
        let tuple = Tuple::of_session(SESSIONS + n);
        let client = address4(CLIENTS4, tuple.client);
        let number = (n as u16).wrapping_mul(7);
        match self {
            End::Fast => template.entry4(Tuple::of_session(n / 2 % SESSIONS), n % 2 == 1),
            End::Land => template.entry4_between(client, client, tuple.client_port, tuple.server_port),
            End::Local => template.entry4_between(client, OWN, tuple.client_port, 4000 + number % 1000),
            End::Route => template.entry4_between(
                client,
                address4(NOWHERE, number),
                tuple.client_port,
                tuple.server_port,
            ),
            End::Policy => template.entry4(Tuple { server_port: DENIED_PORT, ..tuple }, false),
            _ => template.entry4(tuple, false),
        }
    }
}

/// Adds the rows of all stages, and the waterfall, to the result of `prog`.
pub fn extend(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let site = Site::create("stage")?;
    site.gateway.ip(&format!("route add blackhole {}.{}.0.0/16", NOWHERE[0], NOWHERE[1]))?;
    let samples = site.gateway.enter(|| measure(&site, context))??;
    let off = |i: usize| -> Vec<f64> {
        samples[i + 1].iter().zip(&samples[0]).map(|(raw, wrapper)| raw - wrapper).collect()
    };
    let totals: Vec<Vec<f64>> = (0..ENDS.len()).map(off).collect();
    for (end, total) in ENDS.iter().zip(&totals).skip(1) {
        let name = format!("xdp v4 first packet up to {}", end.name());
        result.figures.push(Figure::new(name, "ns/packet", Better::Lower, total.clone()));
    }
    result.tables.push(table(&totals));
    result.charts.push(waterfall(&totals));
    Ok(())
}

/// What a stage adds: the difference of two totals of the same round.
fn added(totals: &[Vec<f64>], i: usize) -> Vec<f64> {
    match i {
        0 | 1 => totals[i].clone(),
        _ => totals[i].iter().zip(&totals[i - 1]).map(|(with, without)| with - without).collect(),
    }
}

fn measure(site: &Site, context: &Context) -> Result<Vec<Vec<f64>>> {
    pin(bench_cpu())?;
    let text = denying_configuration(HOOK.into());
    let mut bed = Bed::with(site, &text, &[HOOK], Family::V4, Protocol::Udp, 1 << 16)?;
    bed.fill(SESSIONS)?;
    let repeat = context.pick(100_000, 400_000);
    interleave(ENDS.len() + 1, context.rounds, |contestant, _| match contestant {
        0 => wrapper(&mut bed, repeat),
        i => one(&mut bed, ENDS[i - 1], repeat)
            .with_context(|| format!("packets that end at {}", ENDS[i - 1].name())),
    })
}

fn wrapper(bed: &mut Bed, repeat: u32) -> Result<f64> {
    let ingress = bed.ingress;
    let harness = bed.harness(HOOK);
    harness.set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Both)?;
    harness.set_target(Target::Own("empty"))?;
    Ok(harness.run(repeat, ingress)?.ns)
}

fn one(bed: &mut Bed, end: End, repeat: u32) -> Result<f64> {
    let (ingress, root) = (bed.ingress, bed.root(HOOK).try_clone()?);
    let harness = bed.harness(HOOK);
    let template = end.template(harness);
    let entries: Vec<RingEntry4> = (0..PACKETS).map(|n| end.entry(&template, n)).collect();
    harness.set_entries4(template, &entries)?;
    harness.set_target(Target::Foreign(root.as_fd()))?;
    // A first packet is one only once.
    let packets = if end == End::Exit { PACKETS as u32 } else { repeat };
    let (before, dropped) = (Tally::read(&bed.sluice.dataplane)?, drops(bed, end)?);
    let ns = bed.harness(HOOK).run(packets, ingress)?.ns;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    let dropped = drops(bed, end)? - dropped;
    let packets = u64::from(packets);
    let (through, made) = match end {
        End::Fast => (packets, 0),
        End::Exit => (packets, packets),
        _ => (0, 0),
    };
    ensure!(
        tally.received == packets
            && tally.redirected == through
            && tally.sessions == made
            && dropped == packets - through,
        "of {packets} packets {dropped} ended where they should: {tally:?}; {}",
        bed.reasons()?
    );
    if end == End::Exit {
        bed.close(SESSIONS, PACKETS)?;
    }
    Ok(ns)
}

fn drops(bed: &Bed, end: End) -> Result<u64> {
    let Some(reason) = end.reason() else { return Ok(0) };
    Ok(bed.sluice.dataplane.counters()?.drops(reason))
}

fn table(totals: &[Vec<f64>]) -> Table {
    let row = |(i, end): (usize, &End)| {
        let (total, added) = (estimate(&totals[i]), estimate(&added(totals, i)));
        vec![
            end.name().to_owned(),
            end.reason().map_or("redirected".to_owned(), |reason| reason.name().to_owned()),
            format!("{:.1}", total.value),
            if i == 0 { String::new() } else { format!("{:.1}", added.value) },
            if i == 0 { String::new() } else { format!("{:.1} to {:.1}", added.low, added.high) },
        ]
    };
    Table {
        title: "First packets by the stage they end at, ns".to_owned(),
        header: ["up to", "as", "total", "added", "95 %"].map(str::to_owned).to_vec(),
        rows: ENDS.iter().enumerate().map(row).collect(),
        note: "Distinct packets, 10,000 sessions in the tables. Every row's packets were counted under the reason beside \
            it. A drop costs its counting, too, so what a stage adds is near, not exact; `session` packets are TCP."
            .to_owned(),
    }
}

fn waterfall(totals: &[Vec<f64>]) -> Chart {
    let mut steps: Vec<Step> = ENDS
        .iter()
        .enumerate()
        .skip(1)
        .map(|(i, end)| Step {
            name: end.name().to_owned(),
            estimate: estimate(&added(totals, i)),
            total: false,
        })
        .collect();
    let last = totals.len() - 1;
    steps.push(Step { name: "first packet".to_owned(), estimate: estimate(&totals[last]), total: true });
    steps.push(Step { name: ENDS[0].name().to_owned(), estimate: estimate(&totals[0]), total: true });
    Chart::Waterfall(Waterfall {
        title: "What each stage adds to a first packet".to_owned(),
        unit: "ns/packet".to_owned(),
        steps,
        note: "Root and fast path's miss are in `entry`.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_stand_in_the_order_of_the_one_list() {
        let reasons: Vec<usize> = ENDS.iter().filter_map(|end| Some(end.reason()? as usize)).collect();
        assert!(reasons.is_sorted(), "{reasons:?}");
    }

    #[test]
    fn differences_are_taken_within_a_round() {
        let totals = vec![vec![10.0, 20.0], vec![50.0, 70.0], vec![55.0, 77.0]];
        assert_eq!(added(&totals, 2), [5.0, 7.0]);
        assert_eq!(added(&totals, 1), [50.0, 70.0]);
    }
}
