//! The gate inside of the gateway: packets it refuses, and established sessions that live by a grant.

use std::net::IpAddr;
use std::os::fd::AsFd;

use anyhow::{Context as _, Result};
use sluice_dataplane::{GrantKey, GrantSpec};

use super::bed::{GateBed, Traffic};
use crate::generator::harness::{Hook, Target};
use crate::generator::packets::{CLIENTS4, CLIENTS6, Family, Protocol, address4, address6};
use crate::generator::site::Site;
use crate::method::checks;
use crate::method::result::{Better, Figure};
use crate::method::rounds::interleave;
use crate::testbed::bed::{Bed, DEFAULT_CAPACITY};
use crate::testbed::gateway::{Action, Mode, Tally, configuration};

/// Sessions, and as many grants: one for each client.
const SESSIONS: usize = 10_000;

pub fn name(family: Family) -> String {
    format!("inside {} established {SESSIONS}", format!("{family:?}").to_lowercase())
}

pub fn drop_name(family: Family, grants: usize) -> String {
    format!("inside {} drop {grants}", format!("{family:?}").to_lowercase())
}

/// Packets of sources without a grant through the whole gateway, in the bed whose floor they miss as well.
pub fn refused(
    bed: &mut GateBed,
    family: Family,
    grants: usize,
    rounds: usize,
    repeat: u32,
) -> Result<Figure> {
    bed.set_traffic(Traffic::Drop, grants)?;
    let mut one = |contestant: usize, repeat| match contestant {
        0 => bed.run_own("empty", repeat).map(|sample| sample.ns),
        2 => bed.run_inside(repeat),
        _ => bed.run_floor(Traffic::Drop, contestant == 3, repeat),
    };
    one(2, (grants as u32).min(repeat))?;
    let samples = interleave(4, rounds, |contestant, _| one(contestant, repeat))?;
    let off = |which: usize| less(&samples[which], &samples[0]);
    let figure = Figure::new(drop_name(family, grants), "ns/packet", Better::Lower, off(2))
        .against(Traffic::Drop.floor(), &off(1))
        .same(&off(1), &off(3));
    Ok(figure.check(checks::distinct(bed.distinct().into(), grants as u64)))
}

fn less(raw: &[f64], taken_off: &[f64]) -> Vec<f64> {
    raw.iter().zip(taken_off).map(|(raw, off)| raw - off).collect()
}

const SERVICES: &str = "services { gate { zone inside; service all { \
    destination-address [ 10.128.0.0/16 fd00:128::/64 ]; protocol udp; } } }\n";

/// One Sluice with the gate and a grant for each client, two without; the same sessions in all.
struct Pair {
    gated: Bed,
    plain: Bed,
    again: Bed,
}

const WRAPPER_PLAIN: usize = 0;
const PLAIN: usize = 1;
const WRAPPER_GATED: usize = 2;
const GATED: usize = 3;
const PARSE: usize = 4;
const ARRAY: usize = 5;
const PLAIN_AGAIN: usize = 6;
const CONTESTANTS: usize = 7;

impl Pair {
    fn new(site: &Site, family: Family) -> Result<Pair> {
        let text = configuration(Mode::Xdp, Action::Permit);
        let bed = |text: &str| Bed::with(site, text, &[Hook::Xdp], family, Protocol::Udp, DEFAULT_CAPACITY);
        let (mut plain, mut again) = (bed(&text)?, bed(&text)?);
        let mut gated = bed(&(text + SERVICES))?;
        let dataplane = &gated.sluice.dataplane;
        let service = gated.sluice.plan.gate.service("all").context("the service has no id")? as u16;
        let specs: Vec<GrantSpec> =
            (0..SESSIONS).map(|client| spec(family, client as u16, service)).collect();
        dataplane.grants().give(&specs, dataplane.now_jiffies()?)??;
        for bed in [&mut plain, &mut gated, &mut again] {
            bed.fill(SESSIONS)?;
            bed.harness(Hook::Xdp).set_established(Protocol::Udp, SESSIONS)?;
        }
        Ok(Pair { gated, plain, again })
    }

    fn run(&mut self, contestant: usize, repeat: u32) -> Result<f64> {
        let bed = match contestant {
            WRAPPER_GATED | GATED => &mut self.gated,
            PLAIN_AGAIN => &mut self.again,
            _ => &mut self.plain,
        };
        let ingress = bed.ingress;
        if !matches!(contestant, GATED | PLAIN | PLAIN_AGAIN) {
            let harness = bed.harness(Hook::Xdp);
            let program = match contestant {
                PARSE => harness.floor("parse"),
                ARRAY => harness.floor("array"),
                _ => "empty".to_owned(),
            };
            harness.set_target(Target::Own(&program))?;
            return Ok(harness.run(repeat, ingress)?.ns);
        }
        let root = bed.root(Hook::Xdp).try_clone()?;
        bed.harness(Hook::Xdp).set_target(Target::Foreign(root.as_fd()))?;
        let before = Tally::read(&bed.sluice.dataplane)?;
        let sample = bed.harness(Hook::Xdp).run(repeat, ingress)?;
        let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
        tally.all_replayed(repeat.into())?;
        Ok(sample.ns)
    }
}

fn spec(family: Family, client: u16, service: u16) -> GrantSpec {
    let (source, length): (IpAddr, u8) = match family {
        Family::V4 => (address4(CLIENTS4, client).into(), 32),
        Family::V6 => (address6(CLIENTS6, client).into(), 128),
    };
    let key = GrantKey { source, length, service };
    GrantSpec { key, user: "bench".to_owned(), idle_s: Some(3600), absolute_s: Some(36_000) }
}

/// Established packets with a grant, beside the same without a gate and one array read, all in the same rounds.
pub fn established(family: Family, rounds: usize, repeat: u32) -> Result<Figure> {
    let site = Site::create("gate")?;
    let measure = || -> Result<Figure> {
        let mut pair = Pair::new(&site, family)?;
        for contestant in [PLAIN, GATED, ARRAY] {
            pair.run(contestant, repeat.min(100_000))?;
        }
        let samples = interleave(CONTESTANTS, rounds, |contestant, _| pair.run(contestant, repeat))?;
        let gated = less(&samples[GATED], &samples[WRAPPER_GATED]);
        let read = less(&samples[ARRAY], &samples[PARSE]);
        let floor_of = |plain: usize| -> Vec<f64> {
            let plain = less(&samples[plain], &samples[WRAPPER_PLAIN]);
            plain.iter().zip(&read).map(|(plain, read)| plain + read.max(0.0)).collect()
        };
        let floor = floor_of(PLAIN);
        let figure = Figure::new(name(family), "ns/packet", Better::Lower, gated)
            .against("established without a gate + one array read", &floor)
            .same(&floor, &floor_of(PLAIN_AGAIN));
        let distinct = pair.gated.harness(Hook::Xdp).distinct_packets();
        Ok(figure.check(checks::distinct(distinct.into(), 2 * SESSIONS as u64)))
    };
    site.gateway.enter(measure)?
}
