//! Suite `routes`: what many routes of the kernel, and many changes of them, cost packets.

mod changes;
mod instances;
mod judged;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_lab::gateway::Gateway;
use sluice_lab::state::StateDirectory;
use sluice_libbpf::Link;

use self::changes::Changes;
use crate::generator::frames::Frames;
use crate::generator::harness::Hook;
use crate::generator::link::Target;
use crate::generator::packets::Tuple;
use crate::generator::site::{LAN, LAN_HOST, Site, WAN, WAN_HOST, WAN_HOST_ADDRESS};
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::{Action, Mode, configuration};

pub const SUITE: Suite = Suite {
    name: "routes",
    help: "What 100,000 routes of the kernel, 10,000 changes of them a second, routing instances, and judging a million sessions again cost",
    says: "A daemon as users run it, between two hosts. `changes`: what forwarding of 10,000 established flows loses while `ip` adds, \
        replaces and deletes 10,000 routes a second in the gateway, one in ten of them on the flows' way, against the same flows turn by \
        turn without changes. `established` and `first packet`: a packet with 100,000 routes in the main table, half of them IPv6, beside a \
        gateway with 10. `judged again`: seconds from one change of a route until each of a million sessions, whose packets one CPU \
        takes, was judged again. `more in an instance`: what the first packet of a session costs more where both its links are in a routing \
        instance. `instances`: a packet of established sessions in test runs, spread over so many instances, beside the same sessions in \
        one. VRF devices are emulated by `ip rule iif`, so that kernels without them measure the same: what the kernel itself pays for \
        them is not in it.",
    silent: &[
        "`ip`, the daemon and the kernel's notifications have the other CPU: on a machine with one, forwarding loses more.",
        "Sessions are judged again at their next packet: who sends nothing waits, and loses nothing by it.",
        "Of 256 instances 250 have a unit: a unit needs a zone, of which there are 254.",
        "How fast sessions leave a next hop that has died is a test, `sessions_leave_a_dead_next_hop_at_their_next_packet`.",
    ],
    run: suite,
};

const FLOWS: usize = 10_000;
/// First packets of one look.
const FIRST: usize = 50_000;
const FEW: usize = 10;
const MANY: usize = 100_000;
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];
const FRAME_BYTES: usize = 60;
/// What is in force before anything is measured, and what `ip` begins with.
const SETTLE: Duration = Duration::from_millis(200);

/// A daemon between two hosts, and the flows.
struct Lane<'a> {
    site: &'a Site,
    gateway: Gateway<'a>,
    frames: Frames,
    sink: Option<Link>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let directory = StateDirectory::new("bench-routes")?;
    let wants = |of_instances: bool| {
        let mut names = context.wanted.iter();
        names.len() == 0 || names.any(|name| name.contains("instance") == of_instances)
    };
    for (i, hook) in HOOKS.into_iter().enumerate().filter(|_| wants(false)) {
        let name = Mode::from(hook).word();
        context.progress.at(i as f64 / 2.0, &format!("{name}: setting up"));
        let sites = [Site::create("few")?, Site::create("many")?];
        let mut few = Lane::new(&sites[0], hook, FEW, &directory.of_gateway(&format!("{name}-few")))?;
        let mut many = Lane::new(&sites[1], hook, MANY, &directory.of_gateway(&format!("{name}-many")))?;
        context.progress.at((i as f64 + 0.2) / 2.0, &format!("{name}: changes"));
        result.figures.push(changing(&mut few, hook, context)?);
        context.progress.at((i as f64 + 0.5) / 2.0, &format!("{name}: many routes"));
        result.figures.push(established(&mut few, &mut many, hook, context)?);
        result.figures.push(first_packets(&mut few, &mut many, hook, context)?);
        many.gateway.finish()?;
        if hook == Hook::Xdp {
            context.progress.at(0.4, "a million sessions judged again");
            match judged::again(&mut few, context) {
                Ok(figure) => result.figures.push(figure),
                Err(error) => result.errors.push(format!("judged again: {error:#}")),
            }
        }
        few.gateway.finish()?;
    }
    context.progress.at(0.95, "routing instances");
    match Some(context).filter(|_| wants(true)).map(instances::figures).transpose() {
        Ok(figures) => result.figures.extend(figures.into_iter().flatten()),
        Err(error) => result.errors.push(format!("routing instances: {error:#}")),
    }
    Ok(result)
}

impl<'a> Lane<'a> {
    fn new(site: &'a Site, hook: Hook, routes: usize, state: &Path) -> Result<Lane<'a>> {
        let file = state.with_extension("conf");
        std::fs::write(&file, configuration(hook.into(), Action::Permit))?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        for (host, device) in [
            (&site.lan_host, LAN_HOST),
            (&site.wan_host, WAN_HOST),
            (&site.gateway, LAN),
            (&site.gateway, WAN),
        ] {
            // Frames made in the kernel reach a device without an XDP program only when it polls.
            host.run("ethtool", ["-K", device, "gro", "on"])?;
        }
        let mut gateway = Gateway::new(&program, &site.gateway, &file, state)?;
        gateway.start()?;
        site.gateway.ip_batch(&many_routes(routes))?;
        let mut lane = Lane { site, gateway, frames: Frames::load()?, sink: None };
        lane.sink = Some(lane.sink()?);
        lane.establish()?;
        Ok(lane)
    }

    /// Where frames end.
    fn sink(&self) -> Result<Link> {
        let host = &self.site.wan_host;
        self.frames.attach("frames_sink", host, self.site.wan.host_ifindex, Target::XdpNative)
    }

    /// No other sessions than those of the flows.
    fn establish(&mut self) -> Result<()> {
        self.gateway.sluice(&["clear", "sessions"])?;
        self.pass(0, FLOWS)?;
        Ok(())
    }

    /// Nanoseconds a packet: one frame of each of these sessions, all of which arrive.
    fn pass(&mut self, first: usize, count: usize) -> Result<f64> {
        let entry = |template: &crate::generator::packets::Template, i: usize| {
            template.entry4(Tuple::of_session(first + i), false)
        };
        self.frames.aim_entries(&self.site.lan, count, entry)?;
        let (sent, arrived) = (self.frames.sent(), self.frames.total_arrived());
        let each = self.frames.send(&self.site.lan_host, count as u32)?.as_secs_f64() * 1e9;
        self.frames.account(sent, arrived, count as u32)?;
        Ok(each)
    }

    /// Millions of packets a second, none of which is lost.
    fn rate(&mut self, length: Duration) -> Result<f64> {
        let arrived = self.frames.total_arrived();
        let (sent, seconds) = self.frames.run_for(&self.site.lan_host, FRAME_BYTES, None, length)?;
        self.frames.wait_for_quiet();
        let arrived = self.frames.total_arrived() - arrived;
        ensure!(arrived == sent, "of {sent} frames {arrived} arrived");
        Ok(sent as f64 / seconds / 1e6)
    }
}

/// Half of them of each family, none of them on the flows' way.
fn many_routes(count: usize) -> String {
    let each = |n: usize| {
        format!(
            "route add 11.{}.{}.0/24 via {WAN_HOST_ADDRESS}\nroute add fd10:{n:x}::/32 via fd00:2::100\n",
            n >> 8,
            n & 255
        )
    };
    (0..count / 2).map(each).collect()
}

fn changing(lane: &mut Lane<'_>, hook: Hook, context: &Context) -> Result<Figure> {
    let length = context.pick(Duration::from_millis(700), Duration::from_secs(2));
    let (mut losses, mut made) = (vec![], vec![]);
    lane.establish()?;
    let rates = interleave(2, context.rounds, |contestant, _| {
        if contestant == 0 {
            std::thread::sleep(SETTLE);
            return lane.rate(length);
        }
        let changes = Changes::start(&lane.site.gateway)?;
        std::thread::sleep(SETTLE);
        let rate = lane.rate(length);
        made.push(changes.stop()?);
        rate
    })?;
    losses.extend(rates[0].iter().zip(&rates[1]).map(|(without, with)| 100.0 * (1.0 - with / without)));
    let enough = made.iter().all(|pace| *pace >= changes::A_SECOND as f64 * 0.95);
    let told: Vec<String> = made.iter().map(|pace| format!("{pace:.0}")).collect();
    let figure = Figure::new(format!("{} changes", Mode::from(hook).word()), "%", Better::Lower, losses);
    Ok(figure.check(Check::new("so many changes", enough, format!("{} a second", told.join(", ")))))
}

fn established(few: &mut Lane<'_>, many: &mut Lane<'_>, hook: Hook, context: &Context) -> Result<Figure> {
    let length = context.pick(Duration::from_millis(400), Duration::from_secs(1));
    few.establish()?;
    many.establish()?;
    let rates = interleave(3, context.rounds, |contestant, _| match contestant {
        0 => many.rate(length),
        _ => few.rate(length),
    })?;
    let name = format!("{} established, {MANY} routes", Mode::from(hook).word());
    let figure = Figure::new(name, "Mpps", Better::Higher, rates[0].clone());
    Ok(figure.against(format!("{FEW} routes"), &rates[1]).same(&rates[1], &rates[2]))
}

fn first_packets<'a>(
    few: &mut Lane<'a>,
    many: &mut Lane<'a>,
    hook: Hook,
    context: &Context,
) -> Result<Figure> {
    let times = interleave(3, context.rounds, |contestant, _| {
        let lane = if contestant == 0 { &mut *many } else { &mut *few };
        lane.gateway.sluice(&["clear", "sessions"])?;
        lane.pass(0, FIRST)
    })?;
    let name = format!("{} first packet, {MANY} routes", Mode::from(hook).word());
    let figure = Figure::new(name, "ns/packet", Better::Lower, times[0].clone());
    Ok(figure.against(format!("{FEW} routes"), &times[1]).same(&times[1], &times[2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_routes_as_asked_for_and_each_once() {
        let text = many_routes(MANY);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), MANY);
        assert_eq!(many_routes(FEW).lines().count(), FEW);
    }
}
