//! Uplink joined with zones and NAT, beside what it may cost alone and one established flow.

use anyhow::{Context as _, Result};

use super::{MIDDLE, Scene, differences};
use crate::generator::site::Site;
use crate::generator::tunnels::Way;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure};
use crate::method::rounds::interleave;
use crate::method::suite::Context;
use crate::testbed::user_plane::{Surroundings, prepare};

pub const NAME: &str = "xdp uplink 10000 joined";
/// By which uplink alone may exceed its floor, as promised: there is no way past zones and flows to measure.
const BARE: f64 = 1.5;
const PROVEN: u32 = 100;

const EMPTY: usize = 0;
const RESIZE: usize = 1;
const FLOOR: usize = 2;
const JOINED: usize = 3;
const EMPTY_PAST: usize = 4;
const PAST: usize = 5;
const FLOOR_AGAIN: usize = 6;
const PAST_AGAIN: usize = 7;
const CONTESTANTS: usize = 8;

pub fn figure(context: &Context) -> Result<Figure> {
    let mut site = Site::create("gtpu")?;
    prepare(&mut site)?;
    site.gateway.enter(|| {
        pin(bench_cpu())?;
        let mut scene = Scene::start(&site, MIDDLE, Surroundings::Full)?;
        scene.open(&[Way::Uplink, Way::Uplink, Way::Past, Way::Past])?;
        measure(&mut scene, context)
    })?
}

fn measure(scene: &mut Scene, context: &Context) -> Result<Figure> {
    let repeat = context.pick(200_000, 400_000);
    let samples = interleave(CONTESTANTS, context.rounds, |contestant, _| {
        let past = matches!(contestant, EMPTY_PAST | PAST | PAST_AGAIN);
        let way = if past { Way::Past } else { Way::Uplink };
        scene.tunnels.set_packets(way, scene.sessions)?;
        match contestant {
            EMPTY | EMPTY_PAST => scene.own("empty", repeat),
            RESIZE => scene.own("resize", repeat),
            FLOOR | FLOOR_AGAIN => scene.own("floor", repeat),
            _ => scene.measure(way, repeat),
        }
    })?;
    let both = samples[EMPTY].iter().zip(&samples[RESIZE]);
    let wrapper: Vec<f64> = both.map(|(empty, twice)| (empty + twice) / 2.0).collect();
    let sum = |floor: usize, past: usize| -> Vec<f64> {
        let bare = differences(&samples[floor], &wrapper);
        let flow = differences(&samples[past], &samples[EMPTY_PAST]);
        bare.iter().zip(flow).map(|(bare, flow)| BARE * bare + flow).collect()
    };
    let may = sum(FLOOR, PAST);
    scene.tunnels.set_packets(Way::Uplink, scene.sessions)?;
    scene.aim_at_sluice(Way::Uplink)?;
    scene.tunnels.prove(PROVEN, Some(OUTSIDE_ADDRESS)).context("source NAT")?;
    let (distinct, sessions) = (scene.tunnels.distinct_packets(), scene.sessions);
    let figure = Figure::new(NAME, "ns/packet", Better::Lower, differences(&samples[JOINED], &wrapper));
    Ok(figure
        .against("1.5 GTP-U floors + one established flow", &may)
        .same(&may, &sum(FLOOR_AGAIN, PAST_AGAIN))
        .check(Check::new("packets as they must be", true, format!("{PROVEN} looked at byte by byte")))
        .check(checks::distinct(distinct.into(), sessions.into())))
}

/// Of the interface that packets leave by.
const OUTSIDE_ADDRESS: [u8; 4] = [198, 51, 100, 1];
