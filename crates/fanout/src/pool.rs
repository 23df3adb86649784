//! The receivers of one listener: who is there, who is coming back, who is leaving, and the table that follows from it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_language::fan_out::{self as configured, Balance, HealthCheck, Listener, NoneLeft};

use sluice_plan::{balance, fan_out};

use crate::counters;

/// A receiver, whatever becomes of the configuration around it.
#[derive(Debug)]
pub struct Target {
    /// As configured.
    pub name: String,
    /// Datagrams go here.
    pub address: SocketAddr,
    /// Kept as long as the receiver is known, through every change of the configuration.
    pub counters: counters::Receiver,
}

/// Which receiver each packet goes to.
#[derive(Debug, Clone)]
pub struct Table {
    /// How a target is picked.
    pub balance: Balance,
    /// Receivers of the listener; `positions` says which of them have a share.
    pub targets: Vec<Arc<Target>>,
    /// Indexes into `targets`; empty while no receiver is up.
    pub positions: Vec<u16>,
    /// Send from the sender's address.
    pub keep_source: bool,
    /// Longest datagram, in bytes of UDP payload.
    pub max_packet_size: u32,
}

impl Table {
    /// Where a packet from `source` goes; `position` is the last one this thread used, for round robin.
    pub fn pick(&self, source: &SocketAddr, position: &mut usize) -> Option<usize> {
        if self.positions.is_empty() {
            return None;
        }
        let index = match self.balance {
            Balance::RoundRobin => {
                *position = if *position + 1 >= self.positions.len() { 0 } else { *position + 1 };
                *position
            }
            Balance::Flow => balance::position(hash(source, true), self.positions.len()),
            Balance::Source => balance::position(hash(source, false), self.positions.len()),
        };
        Some(usize::from(self.positions[index]))
    }
}

impl Table {
    /// Where the fragments of one datagram go.
    pub fn pick_fragment(&self, source: IpAddr, identification: u32) -> Option<usize> {
        if self.positions.is_empty() {
            return None;
        }
        let hash = match source {
            IpAddr::V4(source) => balance::hash(&source.octets(), u64::from(identification)),
            IpAddr::V6(source) => balance::hash(&source.octets(), u64::from(identification)),
        };
        Some(usize::from(self.positions[balance::position(hash, self.positions.len())]))
    }
}

fn hash(source: &SocketAddr, with_port: bool) -> u64 {
    let port = if with_port { source.port() } else { 0 };
    match source {
        SocketAddr::V4(source) => balance::hash(&source.ip().octets(), u64::from(port)),
        SocketAddr::V6(source) => balance::hash(&source.ip().octets(), u64::from(port)),
    }
}

/// What reports show of a receiver.
#[derive(Debug, Clone)]
pub struct View {
    /// The receiver itself.
    pub target: Arc<Target>,
    /// It gets datagrams, as checks and connection have it.
    pub up: bool,
    /// Share of its weight, in tenths.
    pub share: u32,
    /// It has left: only what it counted is of interest.
    pub is_former: bool,
}

#[derive(Debug, Clone)]
struct Member {
    target: Arc<Target>,
    weight: u32,
    /// As the checks have it.
    up: bool,
    /// As its TCP connection has it.
    connected: bool,
    /// Answers, or failures, in a row.
    in_a_row: u32,
    since: Option<Instant>,
    leaving: Option<Instant>,
    /// The configuration has it.
    wanted: bool,
}

#[derive(Debug, Clone)]
struct State {
    members: Vec<Member>,
    /// Those that left: what they counted stays part of the sum, and is theirs again when they come back.
    gone: Vec<Arc<Target>>,
    listener: Listener,
    /// As the table has them.
    weights: Vec<u32>,
}

/// The receivers of one listener: who is up, and who gets which share.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    table: Mutex<Arc<Table>>,
    version: AtomicU64,
}

/// A receiver's share is moved in this many steps.
const STEPS: u32 = 10;

impl Pool {
    /// All receivers are taken for up until a check says otherwise.
    pub fn new(listener: &Listener) -> Pool {
        let now = Instant::now();
        let mut state = State { members: vec![], gone: vec![], listener: listener.clone(), weights: vec![] };
        state.members = listener.receivers.iter().filter_map(|r| member(r, None)).collect();
        for (member, receiver) in state.members.iter_mut().zip(&listener.receivers) {
            member.leaving = receiver.drain.then(|| drained(listener, now));
        }
        let table = Arc::new(state.table(now));
        Pool { state: Mutex::new(state), table: Mutex::new(table), version: AtomicU64::new(1) }
    }

    /// Takes over a changed configuration; receivers that stay keep what is known of them and what they counted.
    pub fn configure(&self, listener: &Listener) {
        self.configure_with(listener, |_| ());
    }

    /// The same; `prepare` is called with the receivers before any of them gets something.
    pub(crate) fn configure_with(&self, listener: &Listener, prepare: impl FnOnce(&[Arc<Target>])) {
        let now = Instant::now();
        let mut state = self.state();
        state.configure(listener, now);
        state.settle(now);
        let targets: Vec<_> = state.members.iter().map(|member| member.target.clone()).collect();
        prepare(&targets);
        self.publish(&mut state, now);
    }

    /// What [`Pool::weights`] would be with another configuration.
    pub fn weights_with(&self, listener: &Listener) -> Vec<(SocketAddr, String, u32)> {
        let now = Instant::now();
        let mut state = self.state().clone();
        state.configure(listener, now);
        state.settle(now);
        state.named_weights(now)
    }

    /// Receivers that `wanted` does not have any more and that still get a share, as such that drain.
    pub fn leaving(&self, wanted: &[configured::Receiver]) -> Vec<configured::Receiver> {
        let (state, now) = (self.state(), Instant::now());
        let drain = state.ramp(false);
        let left = |m: &Member| match m.leaving {
            Some(since) => now.saturating_duration_since(since) < drain,
            None => !drain.is_zero(),
        };
        let stays = |m: &Member| {
            wanted.iter().any(|r| r.name == m.target.name && r.address() == Some(m.target.address))
        };
        let receiver = |m: &Member| configured::Receiver {
            name: m.target.name.clone(),
            target: configured::Target::Address(m.target.address),
            weight: m.weight as u16,
            drain: true,
        };
        state.members.iter().filter(|m| left(m) && m.up && !stays(m)).map(receiver).collect()
    }

    /// The result of one check. True when the receiver went up or down by it.
    pub fn report(&self, target: &Target, answered: bool) -> bool {
        let mut state = self.state();
        let (rise, fall) = state.listener.health.as_ref().map_or((2, 2), |health| (health.rise, health.fall));
        let Some(member) = state.member(target) else { return false };
        member.in_a_row = if answered == member.up { 0 } else { member.in_a_row + 1 };
        let enough = if answered { rise } else { fall };
        if answered == member.up || member.in_a_row < enough {
            return false;
        }
        member.up = answered;
        member.in_a_row = 0;
        member.since = answered.then(Instant::now);
        self.publish(&mut state, Instant::now());
        true
    }

    /// A connection came or went. True when that is news.
    pub fn connected(&self, target: &Target, connected: bool) -> bool {
        let mut state = self.state();
        let Some(member) = state.member(target) else { return false };
        if std::mem::replace(&mut member.connected, connected) == connected {
            return false;
        }
        member.since = connected.then(Instant::now);
        self.publish(&mut state, Instant::now());
        true
    }

    /// Moves shares of those that come and go.
    pub fn tick(&self, now: Instant) {
        let mut state = self.state();
        if !state.moves() {
            return;
        }
        let members = state.members.len();
        state.settle(now);
        if state.members.len() != members || state.weights(now) != state.weights {
            self.publish(&mut state, now);
        }
    }

    /// Changes with the table.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The one in force; threads keep it until `version` changes.
    pub fn table(&self) -> Arc<Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// None = its receivers are not checked.
    pub fn health(&self) -> Option<HealthCheck> {
        self.state().listener.health.clone()
    }

    /// Every receiver with its state, those that are leaving behind.
    pub fn view(&self) -> Vec<View> {
        let now = Instant::now();
        let state = self.state();
        let view = |member: &Member| View {
            target: member.target.clone(),
            up: member.up && member.connected,
            share: state.share(member, now),
            is_former: false,
        };
        let former =
            |target: &Arc<Target>| View { target: target.clone(), up: false, share: 0, is_former: true };
        let gone = state.gone.iter().map(former);
        state.members.iter().map(view).chain(gone).collect()
    }

    /// Whom to ask whether they are there.
    pub fn targets(&self) -> Vec<Arc<Target>> {
        self.state().members.iter().map(|member| member.target.clone()).collect()
    }

    /// Receiver and weight as shares have it now; for the tables of the data plane.
    pub fn weights(&self) -> Vec<(SocketAddr, String, u32)> {
        self.state().named_weights(Instant::now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &mut State, now: Instant) {
        state.settle(now);
        let table = Arc::new(state.table(now));
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = table;
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// When the drain of a receiver began that is over.
fn drained(listener: &Listener, now: Instant) -> Instant {
    let drain = Duration::from_millis(listener.health.as_ref().map_or(0, |health| health.drain_ms).into());
    now.checked_sub(drain).unwrap_or(now)
}

fn member(receiver: &sluice_language::fan_out::Receiver, since: Option<Instant>) -> Option<Member> {
    let target = Target {
        name: receiver.name.clone(),
        address: receiver.address()?,
        counters: counters::Receiver::default(),
    };
    Some(Member {
        target: Arc::new(target),
        weight: receiver.weight.into(),
        up: true,
        connected: true,
        in_a_row: 0,
        since,
        leaving: None,
        wanted: true,
    })
}

impl State {
    fn member(&mut self, target: &Target) -> Option<&mut Member> {
        self.members.iter_mut().find(|m| m.target.name == target.name && m.target.address == target.address)
    }

    fn configure(&mut self, listener: &Listener, now: Instant) {
        let mut before = std::mem::take(&mut self.members);
        for receiver in &listener.receivers {
            let Some(address) = receiver.address() else { continue };
            let same = |m: &Member| m.target.name == receiver.name && m.target.address == address;
            match before.iter().position(same) {
                Some(index) => {
                    let mut known = before.remove(index);
                    known.weight = receiver.weight.into();
                    known.leaving = receiver.drain.then(|| known.leaving.unwrap_or(now));
                    known.wanted = true;
                    self.members.push(known);
                }
                None => {
                    let mut new = member(receiver, Some(now));
                    if let Some(new) = &mut new {
                        new.leaving = receiver.drain.then(|| drained(listener, now));
                    }
                    let same = |t: &Arc<Target>| t.name == receiver.name && t.address == address;
                    if let (Some(new), Some(index)) = (&mut new, self.gone.iter().position(same)) {
                        new.target = self.gone.remove(index);
                    }
                    self.members.extend(new);
                }
            }
        }
        for mut gone in before {
            gone.leaving = gone.leaving.or(Some(now));
            gone.wanted = false;
            self.members.push(gone);
        }
        if self.listener.health.is_some() && listener.health.is_none() {
            // no check would ever find them up again
            for member in &mut self.members {
                (member.up, member.in_a_row) = (true, 0);
            }
        }
        self.listener = listener.clone();
    }

    fn named_weights(&self, now: Instant) -> Vec<(SocketAddr, String, u32)> {
        let weights = self.weights(now);
        let name = |member: &Member| (member.target.address, member.target.name.clone());
        self.members.iter().zip(weights).map(|(m, w)| (name(m).0, name(m).1, w)).collect()
    }

    fn ramp(&self, slow: bool) -> Duration {
        let ramp = |health: &HealthCheck| if slow { health.slow_start_ms } else { health.drain_ms };
        Duration::from_millis(self.listener.health.as_ref().map_or(0, ramp).into())
    }

    /// In tenths: all of it, or what slow start and drain leave of it.
    fn share(&self, member: &Member, now: Instant) -> u32 {
        if !member.up || !member.connected {
            return 0;
        }
        let gone = |since: Instant, ramp: Duration| {
            let part = now.saturating_duration_since(since).as_secs_f64() / ramp.as_secs_f64().max(1e-9);
            (part * f64::from(STEPS)).min(f64::from(STEPS)) as u32
        };
        if let Some(since) = member.leaving {
            return STEPS - gone(since, self.ramp(false));
        }
        match member.since {
            Some(since) => gone(since, self.ramp(true)).max(1),
            None => STEPS,
        }
    }

    /// Forgets what has left, and that the others were ever away.
    fn settle(&mut self, now: Instant) {
        let (drain, slow) = (self.ramp(false), self.ramp(true));
        let stays = |m: &Member| {
            m.wanted || m.leaving.is_none_or(|since| now.saturating_duration_since(since) < drain)
        };
        self.gone.extend(self.members.iter().filter(|m| !stays(m)).map(|m| m.target.clone()));
        self.members.retain(stays);
        for member in &mut self.members {
            member.since = member.since.filter(|since| now.saturating_duration_since(*since) < slow);
        }
    }

    fn moves(&self) -> bool {
        self.members.iter().any(|member| member.since.is_some() || member.leaving.is_some())
    }

    fn weights(&self, now: Instant) -> Vec<u32> {
        let weights: Vec<u32> = self.members.iter().map(|m| m.weight * self.share(m, now)).collect();
        if weights.iter().all(|weight| *weight == 0) && self.listener.none_left == NoneLeft::All {
            return self.members.iter().map(|m| if m.leaving.is_none() { m.weight } else { 0 }).collect();
        }
        weights
    }

    fn table(&mut self, now: Instant) -> Table {
        let weights = self.weights(now);
        let names: Vec<String> = self.members.iter().map(|m| m.target.address.to_string()).collect();
        let positions = fan_out::positions(self.listener.balance, &names, &weights);
        self.weights = weights;
        Table {
            balance: self.listener.balance,
            targets: self.members.iter().map(|member| member.target.clone()).collect(),
            positions,
            keep_source: self.listener.keep_source,
            max_packet_size: self.listener.max_packet_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(receivers: usize, more: &str) -> Listener {
        let mut text = String::from(
            "set services fan-out listener l mode userspace\nset services fan-out listener l address 127.0.0.1\n\
             set services fan-out listener l port 9\n",
        );
        for n in 0..receivers {
            text += &format!("set services fan-out listener l receiver r{n} address 10.0.0.{}\n", n + 1);
            text += &format!("set services fan-out listener l receiver r{n} port 514\n");
        }
        for line in more.lines() {
            text += &format!("set services fan-out listener l {line}\n");
        }
        let tree = sluice_language::parse(&text, "test").unwrap();
        sluice_language::compile(&tree).unwrap().fan_out.listeners.remove(0)
    }

    fn shares(pool: &Pool) -> Vec<usize> {
        let table = pool.table();
        let of = |index| table.positions.iter().filter(|p| usize::from(**p) == index).count();
        (0..table.targets.len()).map(of).collect()
    }

    #[test]
    fn a_receiver_that_falls_is_left_out_at_once_and_comes_back_slowly() {
        let check =
            "health-check method tcp\nhealth-check fall 2\nhealth-check rise 1\nhealth-check slow-start 1000";
        let pool = Pool::new(&listener(3, check));
        let target = pool.table().targets[1].clone();
        assert_eq!(shares(&pool), [1, 1, 1]);
        assert!(!pool.report(&target, false));
        assert!(pool.report(&target, false));
        assert_eq!(shares(&pool), [1, 0, 1]);
        assert!(pool.report(&target, true));
        assert_eq!(shares(&pool), [10, 1, 10]);
        pool.tick(Instant::now() + Duration::from_millis(510));
        assert_eq!(shares(&pool), [2, 1, 2]);
        pool.tick(Instant::now() + Duration::from_secs(2));
        assert_eq!(shares(&pool), [1, 1, 1]);
    }

    #[test]
    fn with_none_left_packets_go_nowhere_or_everywhere() {
        for (more, wanted) in [("none-left drop", vec![0, 0]), ("none-left all", vec![1, 1])] {
            let pool =
                Pool::new(&listener(2, &format!("{more}\nhealth-check method icmp\nhealth-check fall 1")));
            for target in pool.table().targets.clone() {
                assert!(pool.report(&target, false));
            }
            assert_eq!(shares(&pool), wanted);
        }
    }

    #[test]
    fn a_receiver_that_leaves_drains_and_the_others_keep_their_counts() {
        let check = "health-check method icmp\nhealth-check drain 1000";
        let pool = Pool::new(&listener(3, check));
        counters::add(&pool.table().targets[0].counters.packets, 7);
        pool.configure(&listener(2, check));
        assert_eq!(shares(&pool), [1, 1, 1]);
        pool.tick(Instant::now() + Duration::from_millis(550));
        assert_eq!(shares(&pool), [2, 2, 1]);
        pool.tick(Instant::now() + Duration::from_secs(2));
        assert_eq!(shares(&pool), [1, 1]);
        assert_eq!(counters::get(&pool.table().targets[0].counters.packets), 7);
    }

    #[test]
    fn a_receiver_that_drains_stays_without_a_share() {
        let check = "health-check method icmp\nhealth-check drain 1000";
        let pool = Pool::new(&listener(3, check));
        let draining = listener(3, &format!("{check}\nreceiver r1 drain"));
        pool.configure(&draining);
        assert_eq!(shares(&pool), [1, 1, 1]);
        pool.tick(Instant::now() + Duration::from_millis(550));
        assert_eq!(shares(&pool), [2, 1, 2]);
        pool.tick(Instant::now() + Duration::from_secs(2));
        let version = pool.version();
        pool.tick(Instant::now() + Duration::from_secs(3));
        assert_eq!((shares(&pool), pool.version()), (vec![1, 0, 1], version), "and nothing moves any more");
        assert_eq!(shares(&Pool::new(&draining)), [1, 0, 1], "nothing is given to it to begin with");
        pool.configure(&listener(3, check));
        assert_eq!(shares(&pool), [1, 1, 1], "it is wanted again");
    }

    #[test]
    fn those_who_leave_are_known_until_their_drain_is_over() {
        let check = "health-check method icmp\nhealth-check drain 60000";
        let pool = Pool::new(&listener(3, check));
        let fewer = listener(2, check);
        let leaving = pool.leaving(&fewer.receivers);
        assert_eq!(leaving.iter().map(|r| (r.name.as_str(), r.drain)).collect::<Vec<_>>(), [("r2", true)]);
        let all = Listener { receivers: [fewer.receivers.clone(), leaving].concat(), ..fewer.clone() };
        pool.configure(&all);
        assert_eq!(shares(&pool), [1, 1, 1]);
        pool.tick(Instant::now() + Duration::from_secs(61));
        assert_eq!(shares(&pool), [1, 1, 0]);
        let pool = Pool::new(&listener(3, ""));
        assert!(pool.leaving(&fewer.receivers).is_empty(), "without `drain` it goes at once");
    }

    #[test]
    fn without_a_check_any_more_nobody_is_down() {
        let check = "health-check method icmp\nhealth-check fall 1";
        let pool = Pool::new(&listener(3, check));
        let target = pool.table().targets[1].clone();
        assert!(pool.report(&target, false));
        pool.configure(&listener(3, &format!("{check}\nhealth-check rise 5")));
        assert_eq!(shares(&pool), [1, 0, 1], "another check knows it, too");
        let without = listener(3, "");
        let with: Vec<u32> = pool.weights_with(&without).into_iter().map(|(_, _, weight)| weight).collect();
        assert_eq!(with, [10, 10, 10]);
        pool.configure(&without);
        assert_eq!(shares(&pool), [1, 1, 1]);
        pool.connected(&target, false);
        pool.configure(&listener(3, "balance flow"));
        assert_eq!(shares(&pool)[1], 0, "what its connection says stands");
    }

    #[test]
    fn picks_follow_the_balance() {
        let source = |n: u16| SocketAddr::from(([10, 1, 0, (n >> 4) as u8], 1000 + (n & 15)));
        let table = Pool::new(&listener(3, "")).table();
        let mut position = 0;
        let mut counts = [0; 3];
        (0..90_001).for_each(|n| counts[table.pick(&source(n as u16 & 255), &mut position).unwrap()] += 1);
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        let table = Pool::new(&listener(3, "balance source")).table();
        for n in 0..256 {
            assert_eq!(table.pick(&source(n), &mut position), table.pick(&source(n | 15), &mut position));
        }
        let table = Pool::new(&listener(3, "balance flow")).table();
        let picks: Vec<_> = (0..256).map(|n| table.pick(&source(n), &mut position)).collect();
        assert_eq!(picks, (0..256).map(|n| table.pick(&source(n), &mut position)).collect::<Vec<_>>());
        assert!((0..3).all(|one| picks.iter().filter(|pick| **pick == Some(one)).count() > 50));
    }
}
