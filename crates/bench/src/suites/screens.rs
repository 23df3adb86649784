//! Suite `screens`: what a packet costs that a screen drops, against a program that drops everything unseen.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::Sizes;
use sluice_dataplane::abi::stages::Reason;
use sluice_libbpf::Link;

use crate::generator::frames::Frames;
use crate::generator::layouts::{FRAME4_LEN, RingEntry4};
use crate::generator::link::Target;
use crate::generator::packets::{CLIENTS4, Template, Tuple, address4};
use crate::generator::site::Site;
use crate::method::result::{Better, Figure, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::{Action, Mode, Sluice, configuration};

pub const SUITE: Suite = Suite {
    name: "screens",
    help: "Packets that screens drop: time a packet on live frames, against an empty drop",
    says: "64-byte UDP frames from many sources enter a veth as fast as they can be made, and all are dropped: by an empty \
        program, by a screen that looks at one packet, by one that counts. Generator, device and program share a core, \
        so the time a packet is that of all three, and the empty drop shows how much is not Sluice's.",
    silent: &[
        "A native driver hands frames over faster than veth does; there the programs' own time weighs more.",
        "Packets that screens let through are in no row: suite prog has them.",
    ],
    run: suite,
};

const FLOOR: &str = "empty drop";
const SOURCES: usize = 10_000;
const FLOODED_PORT: u16 = 4000;
const SERVER: [u8; 4] = [10, 128, 0, 1];

/// A row: its name, the screen's statement, the reason that must count every packet, and the packets.
struct Row {
    name: &'static str,
    statement: &'static str,
    reason: Reason,
    entry: fn(&Template, usize) -> RingEntry4,
}

const ROWS: [Row; 2] = [
    Row { name: "land", statement: "tcp { land; }", reason: Reason::Land, entry: land },
    Row {
        name: "udp flood",
        statement: "udp { flood { threshold 1; } }",
        reason: Reason::UdpFlood,
        entry: flood,
    },
];

fn source(number: usize) -> ([u8; 4], u16) {
    let tuple = Tuple::of_session(number);
    (address4(CLIENTS4, tuple.client), tuple.client_port)
}

fn land(template: &Template, number: usize) -> RingEntry4 {
    let (address, port) = source(number);
    template.entry4_between(address, address, port, FLOODED_PORT)
}

fn flood(template: &Template, number: usize) -> RingEntry4 {
    let (address, port) = source(number);
    template.entry4_between(address, SERVER, port, FLOODED_PORT)
}

struct Lane {
    /// None: the floor.
    row: Option<&'static Row>,
    site: Site,
    frames: Frames,
    sluice: Option<Sluice>,
    _links: Vec<Link>,
}

impl Lane {
    fn new(row: Option<&'static Row>) -> Result<Lane> {
        let site = Site::create("scrn")?;
        let mut frames = Frames::load()?;
        let mut links =
            vec![frames.attach("frames_sink", &site.lan_host, site.lan.host_ifindex, Target::XdpNative)?];
        let mut sluice = None;
        match row {
            Some(row) => {
                let zone = "security-zone inside {";
                let text = configuration(Mode::Xdp, Action::Permit)
                    .replace(zone, &format!("{zone} screen s;"))
                    + &format!("security {{ screen {{ ids-option s {{ {} }} }} }}\n", row.statement);
                let start = || Sluice::start_with(&site, &text, Sizes::default(), true);
                sluice = Some(site.gateway.enter(start)??);
            }
            None => {
                links.push(frames.attach(
                    "frames_drop",
                    &site.gateway,
                    site.lan.ifindex,
                    Target::XdpNative,
                )?);
            }
        }
        let entry = row.map_or(flood as fn(&Template, usize) -> RingEntry4, |row| row.entry);
        frames.aim_entries(&site.lan, SOURCES, entry)?;
        Ok(Lane { row, site, frames, sluice, _links: links })
    }

    fn dropped(&self) -> Result<u64> {
        let (Some(sluice), Some(row)) = (&self.sluice, self.row) else { return Ok(0) };
        Ok(sluice.dataplane.counters()?.drops(row.reason))
    }

    /// Nanoseconds a packet. Every packet that was sent must have been dropped for the row's reason.
    fn measure(&mut self, length: Duration) -> Result<f64> {
        let before = self.dropped()?;
        let (sent, seconds) = self.frames.run_for(&self.site.lan_host, FRAME4_LEN as usize, None, length)?;
        if let Some(row) = self.row {
            let dropped = self.dropped()? - before;
            // a flood's threshold lets one packet of every second through
            let passed = sent.saturating_sub(dropped);
            ensure!(
                dropped <= sent && passed as f64 <= 2.0 * seconds + 3.0,
                "of {sent} frames {dropped} were dropped as {}",
                row.reason.name()
            );
        }
        Ok(seconds * 1e9 / sent as f64)
    }
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let rows: Vec<&'static Row> = ROWS.iter().filter(|row| context.wants(row.name)).collect();
    // the floor stands at both ends (A/A)
    let contestants = std::iter::once(None).chain(rows.iter().copied().map(Some)).chain([None]);
    let mut lanes = contestants.map(Lane::new).collect::<Result<Vec<_>>>()?;
    let length = context.pick(Duration::from_millis(300), Duration::from_millis(700));
    let total = (lanes.len() * context.rounds) as f64;
    let mut done = 0.0;
    let samples = interleave(lanes.len(), context.rounds, |contestant, _| {
        let name = lanes[contestant].row.map_or(FLOOR, |row| row.name);
        context.progress.at(done / total, name);
        done += 1.0;
        lanes[contestant].measure(length).with_context(|| format!("packets of row `{name}`"))
    })?;
    let mut result = SuiteResult::new(SUITE.name);
    let (floor, again) = (&samples[0], &samples[samples.len() - 1]);
    for (row, own) in rows.iter().zip(&samples[1..]) {
        let figure = Figure::new(row.name, "ns/packet", Better::Lower, own.clone());
        result.figures.push(figure.against(FLOOR, floor).same(floor, again));
    }
    Ok(result)
}
