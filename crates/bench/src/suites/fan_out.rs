//! Suite `fanout`: datagrams of one listener spread over three receivers, each mode beside the least that does so and what
//! else there is.

mod kernel;
mod process;
mod queues;
mod user;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::generator::packets::{CLIENTS4, Template, Tuple, address4};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult, Table};
use crate::method::rounds::{alone, interleave};
use crate::method::stats::{estimate, paired_ratio};
use crate::method::suite::{Context, Suite};

pub const SUITE: Suite = Suite {
    name: "fanout",
    help: "Datagrams spread over three receivers: each mode against the least that does it, nftables, Envoy and nginx",
    says: "UDP to one address and port, as fast as the generator can, by turns to three receivers behind \
        another device; 10,000 flows for the data plane, 1,000 for relays. In the data plane generator, gateway and sink share one core. The least program compares address \
        and port, takes turns, writes the destination and both checksums, lowers the TTL, and redirects to a device and MAC \
        addresses that it was told. nftables translates by `numgen inc mod 3`, which decides for a flow, and tracks \
        connections. In user space the generator and the kernel's way to the socket have a core, and one thread of the \
        relay the other, with the way to the sink: a rate is what arrived while more was offered. The plain relay receives \
        64 datagrams at once (recvmmsg) and sends them at once (sendmmsg), by turns. Envoy balances packet by packet, nginx \
        makes a session of each packet. The ring forwarder receives by AF_XDP from one device and sends the same memory to \
        the other, and changes nothing. A rate without loss is the highest of twentieths of the most that came through. \
        Datagrams of many flows over a device of four queues, far below what the workers take, must all arrive.",
    silent: &[
        "Every frame arrives through the data plane, or there is no figure: this is capacity, not a rate without loss. \
            User space is overloaded, and loses what it cannot take before the socket, which is counted.",
        "Frames go over veth pairs; a network card takes and gives them otherwise.",
        "Relays of user space have one thread; what more of them would do is not measured.",
    ],
    run: suite,
};

const LISTENER: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 514;
const RECEIVERS: [[u8; 4]; 3] = [[198, 51, 100, 100], [10, 128, 0, 1], [10, 128, 0, 2]];
const RECEIVER_PORT: u16 = 5514;
const FLOWS: usize = 10_000;
/// Each costs Envoy a session, with a socket towards every receiver.
const FLOWS_OF_RELAYS: usize = 1_000;
/// Of one measurement.
const LENGTH: Duration = Duration::from_millis(300);
/// Bytes of a frame without its check sequence.
const SIZES: [usize; 2] = [60, 508];
/// What a mode of rings takes without losing any, beside the most that it takes.
const WITHOUT_LOSS: &str = " without loss";
/// What a worker may hold.
const MEMORY: [(user::Who, &str); 2] = [
    (user::Who::Userspace, "userspace, memory a worker"),
    (user::Who::AfXdp, "af_xdp, memory a worker beside its frames"),
];

/// Who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Kernel(kernel::Who),
    User(user::Who),
}

/// Whom a mode is compared with, and what the figure adds to the mode's name.
const PAIRS: [(Who, Who, &str); 7] = {
    use Who::{Kernel, User};
    use kernel::Who::{LeastTc, LeastXdp, Nftables, Tc, Xdp};
    use user::Who::{AfXdp, Envoy, Nginx, Plain, Rings, Userspace};
    [
        (Kernel(Xdp), Kernel(LeastXdp), ""),
        (Kernel(Tc), Kernel(LeastTc), ""),
        (Kernel(Tc), Kernel(Nftables), " beside nftables"),
        (User(Userspace), User(Plain), ""),
        (User(Userspace), User(Envoy), " beside Envoy"),
        (User(Userspace), User(Nginx), " beside nginx"),
        (User(AfXdp), User(Rings), ""),
    ]
};

/// The mode that works on rings.
const RINGS: Who = Who::User(user::Who::AfXdp);

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Kernel(who) => who.name(),
            Who::User(who) => who.name(),
        }
    }
}

fn row_name(who: Who, bytes: usize) -> String {
    format!("{}, {} B", who.name(), bytes + 4)
}

fn entry(template: &Template, number: usize) -> crate::generator::layouts::RingEntry4 {
    let tuple = Tuple::of_session(number);
    template.entry4_between(address4(CLIENTS4, tuple.client), LISTENER, tuple.client_port, PORT)
}

/// One measurement of one contestant.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    /// Delivered, millions a second.
    mpps: f64,
    /// By the generator, at the same time.
    offered: f64,
    /// CPUs in use, by the clock of the scheduler.
    cpu: f64,
    /// Resident, of a process.
    rss: u64,
    sent: u64,
    arrived: u64,
    /// Counted by the kernel where they were lost.
    overflow: u64,
}

enum Lane {
    Kernel(Box<kernel::Lane>),
    User(Box<user::Lane>),
    #[cfg(test)]
    None,
}

struct Contestant {
    who: Who,
    bytes: usize,
    /// A floor once more, with everything of its own (A/A).
    again: bool,
    lane: Lane,
    samples: Vec<Sample>,
}

impl Contestant {
    fn new(who: Who, bytes: usize, again: bool) -> Result<Contestant> {
        let lane = match who {
            Who::Kernel(who) => Lane::Kernel(Box::new(kernel::Lane::new(who, bytes)?)),
            Who::User(who) => Lane::User(Box::new(user::Lane::new(who, bytes)?)),
        };
        Ok(Contestant { who, bytes, again, lane, samples: vec![] })
    }

    fn name(&self) -> String {
        row_name(self.who, self.bytes)
    }

    fn measure(&mut self, length: Duration) -> Result<f64> {
        let sample = match &mut self.lane {
            Lane::Kernel(lane) => lane.measure(length),
            Lane::User(lane) => lane.measure(None, length),
            #[cfg(test)]
            Lane::None => Ok(Sample::default()),
        };
        let sample = sample.with_context(|| format!("frames through {}", self.name()))?;
        self.samples.push(sample);
        Ok(sample.mpps)
    }

    fn of(&self, field: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(field).collect()
    }

    fn sum(&self, field: fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(field).sum()
    }

    /// What must hold before its rate is believed.
    fn checks(&self) -> Vec<Check> {
        let Who::User(who) = self.who else { return vec![] };
        let offered = estimate(&self.of(|sample| sample.offered)).value;
        let taken = estimate(&self.of(|sample| sample.mpps)).value;
        let mut checks = vec![Check::new(
            "generator not the limiter",
            offered >= 1.1 * taken,
            format!("{}: {offered:.3} Mpps offered, {taken:.3} taken", self.name()),
        )];
        if who.counts_everything() {
            checks.push(checks::conserved(
                self.sum(|sample| sample.sent),
                self.sum(|sample| sample.arrived),
                self.sum(|sample| sample.overflow),
            ));
        }
        checks
    }
}

/// Both sides of every pair that is wanted, once.
fn contestants(context: &Context, notes: &mut Vec<String>) -> Result<Vec<Contestant>> {
    let mut found: Vec<Contestant> = vec![];
    for bytes in SIZES {
        for (own, other, suffix) in PAIRS {
            let memory = MEMORY.iter().any(|(who, name)| own == Who::User(*who) && context.wants(name));
            let without_loss = own == RINGS && context.wants(&figure_name(own, bytes, WITHOUT_LOSS));
            if !context.wants(&figure_name(own, bytes, suffix)) && !memory && !without_loss {
                continue;
            }
            for (who, again) in [(own, false), (other, false), (other, true)] {
                if found.iter().any(|c| (c.who, c.bytes, c.again) == (who, bytes, again)) {
                    continue;
                }
                if let Who::User(who) = who
                    && let Some(missing) = who.missing()
                {
                    notes.push(missing);
                    continue;
                }
                let name = row_name(who, bytes);
                let contestant = Contestant::new(who, bytes, again);
                found.push(contestant.with_context(|| format!("cannot set up {name}"))?);
            }
        }
    }
    notes.dedup();
    Ok(found)
}

fn figure_name(who: Who, bytes: usize, suffix: &str) -> String {
    format!("{}{suffix}", row_name(who, bytes))
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let mut all = contestants(context, &mut result.notes)?;
    let total = (all.len() * context.rounds) as f64;
    let mut done = 0.0;
    let samples = interleave(all.len(), context.rounds, |contestant, _| {
        context.progress.at(done / total, &all[contestant].name());
        done += 1.0;
        all[contestant].measure(LENGTH)
    })?;
    let found = |who, bytes, again| all.iter().position(|c| (c.who, c.bytes, c.again) == (who, bytes, again));
    let index = |who: Who, bytes: usize| found(who, bytes, false);
    for (own, other, suffix) in PAIRS {
        for bytes in SIZES {
            let (Some(own_place), Some(other_place)) = (index(own, bytes), index(other, bytes)) else {
                continue;
            };
            let name = figure_name(own, bytes, suffix);
            let figure = Figure::new(name, "Mpps", Better::Higher, samples[own_place].clone());
            let mut figure = figure.against(other.name(), &samples[other_place]);
            if let Some(again) = found(other, bytes, true) {
                figure = figure.same(&samples[other_place], &samples[again]);
            }
            figure.checks = all[own_place].checks();
            figure.checks.extend(all[other_place].checks());
            result.figures.push(figure);
        }
    }
    result.tables.push(table(&all, &samples));
    for contestant in all.iter_mut().filter(|contestant| contestant.who == RINGS) {
        context.progress.at(1.0, "a rate without loss");
        result.figures.push(without_loss(contestant, context.rounds)?);
    }
    if context.wants(queues::NAME) {
        context.progress.at(1.0, queues::NAME);
        result.figures.push(queues::measure(context.rounds)?);
    }
    result.figures.extend(MEMORY.iter().filter_map(|(who, name)| memory(&all, *who, name)));
    Ok(result)
}

fn without_loss(contestant: &mut Contestant, rounds: usize) -> Result<Figure> {
    let most: Vec<f64> = contestant.of(|sample| sample.mpps);
    let name = figure_name(contestant.who, contestant.bytes, WITHOUT_LOSS);
    let Lane::User(lane) = &mut contestant.lane else { bail!("{name}: not a mode of user space") };
    let (mut asked, mut again) = (vec![], vec![]);
    let rate = |round: usize| {
        let (held, wanted) = lane.without_loss(most[round], LENGTH)?;
        asked.push(wanted);
        again.push(lane.measure(None, LENGTH)?.mpps);
        Ok(held)
    };
    let samples = alone(rounds, rate).with_context(|| name.clone())?;
    let held = held_the_rate(&name, estimate(&samples).value, estimate(&asked).value);
    let mut figure = Figure::new(name, "Mpps", Better::Higher, samples).against("the most it takes", &most);
    figure = figure.same(&most, &again);
    figure.checks.push(held);
    Ok(figure)
}

/// A generator that is kept from its pace loses nothing either, and proves nothing.
fn held_the_rate(name: &str, offered: f64, asked: f64) -> Check {
    let detail = format!("{name}: {offered:.3} Mpps offered of {asked:.3} asked for");
    Check::new("generator held the rate", offered >= 0.9 * asked, detail)
}

/// Of a process with one worker, at its largest.
fn memory(all: &[Contestant], who: user::Who, name: &str) -> Option<Figure> {
    let own = all.iter().filter(|c| c.who == Who::User(who));
    let rounds: Vec<Vec<f64>> = own.map(|c| c.of(|sample| sample.rss as f64 / f64::from(1 << 20))).collect();
    let most =
        |round: usize| rounds.iter().filter_map(|samples| samples.get(round)).copied().fold(0.0, f64::max);
    let samples: Vec<f64> = (0..rounds.first()?.len()).map(most).collect();
    Some(Figure::new(name, "MB", Better::Lower, samples))
}

fn table(all: &[Contestant], samples: &[Vec<f64>]) -> Table {
    let once = |(contestant, _): &(&Contestant, &Vec<f64>)| !contestant.again;
    let row = |(contestant, mpps): (&Contestant, &Vec<f64>)| {
        let peer = PAIRS.iter().find(|(own, _, _)| *own == contestant.who).and_then(|(_, other, _)| {
            all.iter().position(|c| (c.who, c.bytes) == (*other, contestant.bytes))
        });
        let ratio = peer.map(|index| format!("{:.2}", paired_ratio(mpps, &samples[index]).value));
        let value = |field: fn(&Sample) -> f64| estimate(&contestant.of(field)).value;
        let process = matches!(contestant.who, Who::User(_));
        let (sent, arrived) = (contestant.sum(|s| s.sent), contestant.sum(|s| s.arrived));
        let percent = |lost: u64| format!("{:.1}", 100.0 * lost as f64 / sent.max(1) as f64);
        let overflow = contestant.sum(|s| s.overflow);
        vec![
            contestant.name(),
            format!("{:.3}", estimate(mpps).value),
            ratio.unwrap_or_default(),
            format!("{:.0}", 1e3 * value(|s| s.cpu) / estimate(mpps).value),
            format!("{:.0}", 100.0 * value(|s| s.cpu)),
            if process {
                format!("{:.1}", value(|s| s.rss as f64) / f64::from(1 << 20))
            } else {
                "0".to_owned()
            },
            format!("{:.3}", value(|s| s.offered)),
            percent(overflow),
            percent(sent.saturating_sub(arrived + overflow)),
        ]
    };
    let header = [
        "through",
        "Mpps",
        "to its floor",
        "ns/packet",
        "CPU %",
        "RSS MB",
        "offered",
        "overflow %",
        "unexplained %",
    ];
    Table {
        title: "64- and 512-byte frames to three receivers".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: all.iter().zip(samples).filter(once).map(row).collect(),
        note: "CPU: of the data plane with generator and sink, of a relay its process with its way to the sink. RSS: of the \
            relay's process; the data plane is in the kernel. Overflow: lost before the relay's socket and counted there."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_own_name_and_its_budget() {
        let mut names: Vec<String> = SIZES
            .iter()
            .flat_map(|bytes| PAIRS.map(|(own, _, suffix)| figure_name(own, *bytes, suffix)))
            .collect();
        names.extend(SIZES.map(|bytes| figure_name(RINGS, bytes, WITHOUT_LOSS)));
        names.extend(MEMORY.map(|(_, name)| name.to_owned()));
        names.push(queues::NAME.to_owned());
        let budgets = include_str!("../../../../bench/budgets.toml");
        for name in &names {
            assert_eq!(budgets.matches(&format!("row = \"{name}\"")).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_generator_that_does_not_hold_the_rate_makes_no_figure() {
        assert!(held_the_rate("x", 0.19, 0.2).passed && held_the_rate("x", 0.0, 0.0).passed);
        assert!(!held_the_rate("x", 0.1, 0.2).passed);
    }

    #[test]
    fn a_generator_that_is_not_faster_than_the_relay_makes_no_figure() {
        let who = Who::User(user::Who::Plain);
        let sample = |offered, overflow| Sample {
            mpps: 1.0,
            offered,
            sent: 30,
            arrived: 20,
            overflow,
            ..Sample::default()
        };
        let passes = |sample: Sample| {
            let lane = Lane::None;
            let contestant = Contestant { who, bytes: 60, again: false, lane, samples: vec![sample] };
            contestant.checks().iter().all(|check| check.passed)
        };
        assert!(passes(sample(1.2, 10)));
        assert!(!passes(sample(1.05, 10)));
        assert!(!passes(sample(1.2, 9)), "a packet that nobody counted");
    }
}
