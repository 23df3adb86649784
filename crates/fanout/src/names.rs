//! Receivers that are names: A and AAAA, and SRV (RFC 2782). Names are asked for on a thread of its own; whoever wants to
//! know what they mean is told what the last answers said, at once. So a DNS server that does not answer holds up nothing.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use sluice_language::fan_out::{FanOut, Listener, Mode, Receiver, Target, can_receive, comes_back};
use tokio::sync::Notify;

use crate::lookup::{self, Meaning, REMEMBERED};

/// How often a name is asked for.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a start or a reload waits for names that are asked for the first time.
pub const PATIENCE: Duration = Duration::from_secs(1);
#[derive(Debug, Default)]
struct State {
    known: HashMap<Target, Meaning>,
    wanted: HashSet<Target>,
    /// Of those who wait for a first answer, with how many they are.
    curious: HashMap<Target, usize>,
    /// When a name was asked for last; an absent one is due.
    asked: HashMap<Target, Instant>,
    under_way: HashSet<Target>,
    /// Why a name has no answer, so that it is said once.
    failing: HashMap<Target, String>,
    /// Addresses of receivers that are none, so that it is said once.
    unfit: HashSet<(String, SocketAddr)>,
    is_running: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    hosts: lookup::Hosts,
    answered: Condvar,
    version: AtomicU64,
}

/// What names mean; a name that has no answer keeps its meaning.
#[derive(Debug, Clone, Default)]
pub struct Names {
    inner: Arc<Inner>,
    due: Arc<Notify>,
}

/// Whether any receiver is a name.
pub fn has_names(fan_out: &FanOut) -> bool {
    names_in(fan_out).next().is_some()
}

fn names_in(fan_out: &FanOut) -> impl Iterator<Item = &Target> {
    let all = fan_out.listeners.iter().flat_map(|listener| &listener.receivers);
    all.filter(|receiver| receiver.address().is_none()).map(|receiver| &receiver.target)
}

impl Names {
    /// The same fan-out with addresses in the place of names, as far as they are known. Never waits. What two names of a
    /// listener share is one receiver, of the first. Addresses of the other family are left out where the mode cannot
    /// change it.
    pub fn expand(&self, fan_out: &FanOut) -> FanOut {
        let mut state = self.inner.state();
        let mut expanded = fan_out.clone();
        let binds: Vec<SocketAddr> = fan_out.listeners.iter().map(|listener| listener.bind).collect();
        let mut unfit = HashSet::new();
        for listener in &mut expanded.listeners {
            expand(listener, &state.known, &binds, &mut unfit);
        }
        for (receiver, address) in unfit.difference(&state.unfit) {
            tracing::warn!(receiver, %address, "it resolves to what is no receiver: a listener here, or no host");
        }
        state.unfit = unfit;
        expanded
    }

    /// From now on the names of this fan-out are asked for again and again, and no others.
    pub fn want(&self, fan_out: &FanOut) {
        let mut state = self.inner.state();
        let wanted: HashSet<Target> = names_in(fan_out).cloned().collect();
        if state.wanted == wanted {
            return;
        }
        state.wanted = wanted;
        state.forget();
        self.run(&mut state);
    }

    /// Asks for names that are new, and waits until each has an answer, or has none, or `patience` is over.
    pub fn learn(&self, fan_out: &FanOut, patience: Duration) {
        let mut state = self.inner.state();
        let new: Vec<Target> = names_in(fan_out).filter(|name| !state.is_settled(name)).cloned().collect();
        if new.is_empty() {
            return;
        }
        for name in &new {
            *state.curious.entry(name.clone()).or_default() += 1;
        }
        self.run(&mut state);
        let waits = |state: &mut State| new.iter().any(|name| !state.is_settled(name));
        let waited = self.inner.answered.wait_timeout_while(state, patience, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        for name in &new {
            let last = state.curious.get_mut(name).is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if last {
                state.curious.remove(name);
            }
        }
    }

    /// Changes with the meaning of any name.
    pub fn version(&self) -> u64 {
        self.inner.version.load(Ordering::Acquire)
    }

    /// Starts the thread when there is a first name to ask for.
    fn run(&self, state: &mut State) {
        let any = !state.wanted.is_empty() || !state.curious.is_empty();
        if any && !state.is_running {
            let (inner, due) = (Arc::downgrade(&self.inner), self.due.clone());
            match Builder::new().name("fan-names".into()).spawn(move || serve(&inner, &due)) {
                Ok(_) => state.is_running = true,
                Err(error) => tracing::error!(%error, "names are not looked up: cannot start a thread"),
            }
        }
        self.due.notify_one();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, name: &Target, result: Result<Meaning, String>) {
        let mut state = self.state();
        state.under_way.remove(name);
        state.asked.insert(name.clone(), Instant::now());
        match result {
            Ok(found) => {
                if state.failing.remove(name).is_some() {
                    tracing::info!(name = lookup::text(name), "the name is answered again");
                }
                if state.known.get(name) != Some(&found) {
                    state.known.insert(name.clone(), found);
                    self.version.fetch_add(1, Ordering::Release);
                }
            }
            Err(error) => {
                if state.failing.get(name) != Some(&error) {
                    tracing::warn!(
                        name = lookup::text(name),
                        error,
                        "the name cannot be looked up; what it meant stays"
                    );
                    state.failing.insert(name.clone(), error);
                }
            }
        }
        self.answered.notify_all();
    }
}

impl State {
    /// It has been asked for, whatever came of it.
    fn is_settled(&self, name: &Target) -> bool {
        self.asked.contains_key(name)
    }

    fn take_due(&mut self) -> Vec<Target> {
        let is_due = |name: &&Target| {
            !self.under_way.contains(*name) && self.asked.get(*name).is_none_or(|at| at.elapsed() >= AGAIN)
        };
        let all: HashSet<&Target> = self.wanted.iter().chain(self.curious.keys()).collect();
        let due: Vec<Target> = all.into_iter().filter(is_due).cloned().collect();
        self.under_way.extend(due.iter().cloned());
        due
    }

    fn forget(&mut self) {
        if self.known.len() <= REMEMBERED {
            return;
        }
        let wanted: HashSet<Target> = self.wanted.iter().chain(self.curious.keys()).cloned().collect();
        self.known.retain(|name, _| wanted.contains(name));
        self.asked.retain(|name, _| wanted.contains(name));
        self.failing.retain(|name, _| wanted.contains(name));
    }
}

/// Whether a datagram that goes there would come back, or go to no host.
fn is_fit(address: SocketAddr, mode: Mode, binds: &[SocketAddr]) -> bool {
    let is_back = |bind: &SocketAddr| comes_back(*bind, address, |ip: IpAddr| ip.is_loopback());
    can_receive(address.ip()) && (mode == Mode::TcpForward || !binds.iter().any(is_back))
}

/// `unfit` gets what names resolve to and is left out.
fn expand(
    listener: &mut Listener,
    known: &HashMap<Target, Meaning>,
    binds: &[SocketAddr],
    unfit: &mut HashSet<(String, SocketAddr)>,
) {
    let mut taken: HashSet<SocketAddr> = listener.receivers.iter().filter_map(Receiver::address).collect();
    let receivers = std::mem::take(&mut listener.receivers);
    for receiver in receivers {
        if receiver.address().is_some() {
            listener.receivers.push(receiver);
            continue;
        }
        for (address, weight) in known.get(&receiver.target).into_iter().flatten() {
            let is_within_reach = listener.changes_family() || address.is_ipv4() == listener.bind.is_ipv4();
            if is_within_reach && !is_fit(*address, listener.mode, binds) {
                unfit.insert((receiver.name.clone(), *address));
                continue;
            }
            if !is_within_reach || !taken.insert(*address) {
                continue;
            }
            listener.receivers.push(Receiver {
                name: format!("{}/{}", receiver.name, address.ip()),
                target: Target::Address(*address),
                weight: receiver.weight.saturating_mul(*weight),
                drain: receiver.drain,
            });
        }
    }
}

/// The thread: runs until every handle is dropped.
fn serve(inner: &Weak<Inner>, due: &Notify) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            if let Some(inner) = inner.upgrade() {
                inner.state().is_running = false;
            }
            return tracing::error!(%error, "names are not looked up");
        }
    };
    runtime.block_on(async {
        while let Some(inner) = inner.upgrade() {
            let due_now = inner.state().take_due();
            for name in due_now {
                let inner = inner.clone();
                tokio::spawn(async move {
                    let result = lookup::look_up(&name, &inner.hosts).await;
                    inner.settle(&name, result);
                });
            }
            drop(inner);
            // a new name is asked for at once, the others when they are due
            let _ = tokio::time::timeout(Duration::from_millis(200), due.notified()).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_language::fan_out::Mode;

    fn fan_out(receivers: &str) -> FanOut {
        let mut text = String::from(
            "set services fan-out listener l mode userspace\nset services fan-out listener l address 127.0.0.1\n\
             set services fan-out listener l port 9\n",
        );
        for line in receivers.lines() {
            text += &format!("set services fan-out listener l receiver {line}\n");
        }
        sluice_language::compile(&sluice_language::parse(&text, "test").unwrap()).unwrap().fan_out
    }

    fn host(name: &str) -> Target {
        Target::Host(name.to_owned(), 514)
    }

    fn answer(names: &Names, name: &str, addresses: &[&str]) {
        let found = addresses.iter().map(|address| (address.parse().unwrap(), 1)).collect();
        names.inner.settle(&host(name), Ok(found));
    }

    fn expanded(names: &Names, fan_out: &FanOut) -> Vec<String> {
        names.expand(fan_out).listeners[0].receivers.iter().map(|r| r.name.clone()).collect()
    }

    #[test]
    fn a_name_without_an_answer_keeps_its_meaning() {
        let (names, both) =
            (Names::default(), fan_out("a host a.example\na port 514\nb host b.example\nb port 514"));
        assert!(expanded(&names, &both).is_empty());
        answer(&names, "a.example", &["10.0.0.1:514", "10.0.0.2:514"]);
        let version = names.version();
        names.inner.settle(&host("a.example"), Err("silent".to_owned()));
        assert_eq!(
            (expanded(&names, &both), names.version()),
            (vec!["a/10.0.0.1".into(), "a/10.0.0.2".into()], version)
        );
        answer(&names, "a.example", &["10.0.0.2:514"]);
        assert_eq!(expanded(&names, &both), ["a/10.0.0.2"]);
        assert_ne!(names.version(), version);
    }

    #[test]
    fn an_address_that_two_names_share_is_one_receiver() {
        let both = fan_out(
            "a host a.example\na port 514\nb host b.example\nb port 514\nc address 10.0.0.2\nc port 514",
        );
        let names = Names::default();
        answer(&names, "a.example", &["10.0.0.1:514", "10.0.0.2:514"]);
        answer(&names, "b.example", &["10.0.0.1:514", "10.0.0.3:514"]);
        assert_eq!(expanded(&names, &both), ["a/10.0.0.1", "b/10.0.0.3", "c"]);
    }

    #[test]
    fn only_modes_that_can_change_the_family_have_receivers_of_the_other_one() {
        let mut of = fan_out("a host a.example\na port 514");
        let names = Names::default();
        answer(&names, "a.example", &["10.0.0.1:514", "[2001:db8::1]:514"]);
        for (mode, wanted) in [
            (Mode::Userspace, 2),
            (Mode::TcpForward, 2),
            (Mode::AfXdp, 1),
            (Mode::Xdp, 1),
            (Mode::TcEbpf, 1),
            (Mode::Auto, 1),
        ] {
            of.listeners[0].mode = mode;
            assert_eq!(expanded(&names, &of).len(), wanted, "{}", mode.name());
        }
        (of.listeners[0].mode, of.listeners[0].keep_source) = (Mode::Userspace, true);
        assert_eq!(expanded(&names, &of), ["a/10.0.0.1"], "a sender that is kept is of one family");
        of.listeners[0].mode = Mode::Auto;
        of.listeners[0].bind = "[2001:db8::514]:514".parse().unwrap();
        assert_eq!(expanded(&names, &of), ["a/2001:db8::1"]);
    }

    #[test]
    fn what_would_come_back_or_is_no_host_is_no_receiver() {
        let mut of = fan_out("a host a.example\na port 514");
        let names = Names::default();
        answer(
            &names,
            "a.example",
            &["0.0.0.0:9", "224.0.0.1:9", "127.0.0.1:9", "127.0.0.2:9", "127.0.0.3:10"],
        );
        assert_eq!(expanded(&names, &of), ["a/127.0.0.2", "a/127.0.0.3"]);
        assert_eq!(names.inner.state().unfit.len(), 3);
        of.listeners[0].bind = "0.0.0.0:9".parse().unwrap();
        assert_eq!(expanded(&names, &of), ["a/127.0.0.3"], "who listens everywhere has the loopback, too");
        of.listeners[0].mode = Mode::TcpForward;
        assert_eq!(expanded(&names, &of).len(), 3, "a datagram is no connection");
    }

    #[test]
    fn names_are_due_at_once_and_then_by_and_by() {
        let names = Names::default();
        let mut state = names.inner.state();
        state.wanted.insert(host("a.example"));
        state.curious.insert(host("b.example"), 1);
        assert_eq!(state.take_due().len(), 2);
        assert!(state.take_due().is_empty(), "both are under way");
        drop(state);
        answer(&names, "a.example", &[]);
        let mut state = names.inner.state();
        assert!(state.is_settled(&host("a.example")) && !state.is_settled(&host("b.example")));
        assert!(state.take_due().is_empty(), "not before time");
        state.asked.clear();
        assert_eq!(state.take_due(), [host("a.example")]);
    }
}
