//! One link that this router advertises itself on.

use std::io;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use sluice_language::router_advertisement::AdvertisedUnit;

use super::message;
use super::prefixes::Prefixes;
use super::random;
use super::schedule::{Due, MIN_DELAY, Schedule};
use crate::api::{AdvertisedPrefixView, RouterAdvertisementView};
use crate::kernel::LastingPrefix;
use crate::kernel::clock::unix_ms;
use crate::kernel::router_socket::{ALL_NODES, RouterSocket};

/// MAX_FINAL_RTR_ADVERTISEMENTS (RFC 4861 10).
const LAST_WORDS: u8 = 3;

/// What could not be sent is tried again so much later.
const RETRY: Duration = Duration::from_secs(1);

/// What the kernel has of a unit's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub ifindex: u32,
    pub mac: [u8; 6],
    /// The address that it speaks by.
    pub source: Ipv6Addr,
    pub prefixes: Vec<LastingPrefix>,
}

#[derive(Debug)]
pub struct Link {
    unit: AdvertisedUnit,
    /// None = it cannot speak; `missing` says why.
    found: Option<Found>,
    prefixes: Prefixes,
    schedule: Schedule,
    /// Advertisements that say that it is no router any more; Some when the configuration has let it go.
    last_words: Option<(u8, Instant)>,
    told_of_length: bool,
    /// Sending fails: nothing is tried before.
    paused: Option<Instant>,
    view: RouterAdvertisementView,
}

impl Link {
    pub fn new(unit: &AdvertisedUnit, now: Instant) -> Self {
        Self {
            unit: unit.clone(),
            found: None,
            prefixes: Prefixes::default(),
            schedule: Schedule::new(unit.min_interval_s, unit.max_interval_s, now),
            last_words: None,
            told_of_length: false,
            paused: None,
            view: RouterAdvertisementView { interface: unit.unit.clone(), ..Default::default() },
        }
    }

    pub fn name(&self) -> &str {
        &self.unit.unit
    }

    /// The configuration has let it go: it says its last words by the device that it had.
    pub fn is_leaving(&self) -> bool {
        self.last_words.is_some()
    }

    pub fn ifindex(&self) -> Option<u32> {
        self.found.as_ref().map(|found| found.ifindex)
    }

    /// What the configuration has of it now; None = nothing.
    pub fn configure(&mut self, unit: Option<&AdvertisedUnit>, now: Instant) {
        match unit {
            Some(unit) => {
                if *unit != self.unit || self.last_words.is_some() {
                    self.unit = unit.clone();
                    self.schedule.change(unit.min_interval_s, unit.max_interval_s, now);
                }
                self.last_words = None;
            }
            None => drop(self.last_words.get_or_insert((LAST_WORDS, now))),
        }
    }

    /// What the kernel has of its device now; `Err` says what it lacks. Says whether the device is another one.
    pub fn follow(&mut self, device: &str, found: Result<Found, String>, now: Instant) -> bool {
        device.clone_into(&mut self.view.device);
        let before = self.ifindex();
        let spoke = self.found.is_some();
        match found {
            Ok(found) => {
                // what cannot be sent is not sent for that
                if !spoke {
                    self.view.error = None;
                }
                let prefixes = self.prefixes.follow(&self.unit.prefixes, &found.prefixes, now);
                if !spoke || before != Some(found.ifindex) {
                    self.schedule.restart(now);
                } else if prefixes {
                    self.schedule.change(self.unit.min_interval_s, self.unit.max_interval_s, now);
                }
                self.found = Some(found);
            }
            Err(lacks) => {
                self.view.error = Some(lacks);
                self.found = None;
            }
        }
        self.ifindex().is_some() && self.ifindex() != before
    }

    pub fn heard(&mut self, bytes: &[u8], source: Ipv6Addr, hop_limit: u8, now: Instant) {
        if !message::is_solicitation(bytes, source, hop_limit) {
            self.view.invalid += 1;
            return;
        }
        self.view.solicitations += 1;
        if self.last_words.is_none() {
            self.schedule.solicited(source, now, random);
        }
    }

    /// False = all is said, and nothing remains of it.
    pub fn speak(&mut self, socket: &RouterSocket, now: Instant) -> bool {
        if let Some((left, at)) = self.last_words {
            let Some(found) = self.found.as_ref().filter(|_| left > 0 && self.view.sent > 0) else {
                return false;
            };
            if at > now {
                return true;
            }
            self.last_words = Some((left - 1, now + MIN_DELAY));
            let bytes = message::goodbye(&self.unit, found.mac);
            if let Err(error) = socket.send(&bytes, found.ifindex, found.source, ALL_NODES) {
                tracing::warn!(interface = self.name(), %error, "the last router advertisement was not sent");
            }
            return left > 1;
        }
        if self.paused.is_some_and(|until| until > now) {
            return true;
        }
        while let Some(found) = self.found.clone()
            && let Some(due) = self.schedule.due(now, random)
        {
            let sent = self.send(socket, &found, due, now);
            self.note(sent, due, now);
            if self.paused.is_some() {
                break;
            }
        }
        true
    }

    fn send(&mut self, socket: &RouterSocket, found: &Found, due: Due, now: Instant) -> io::Result<()> {
        let (bytes, fits) = message::advertisement(&self.unit, &self.prefixes.now(now), found.mac);
        if !fits && !self.told_of_length {
            tracing::warn!(
                interface = self.name(),
                "a router advertisement has no room for all that is configured; what comes last is left out"
            );
        }
        self.told_of_length = !fits;
        let to = match due {
            Due::Everybody => ALL_NODES,
            Due::Host(host) => host,
        };
        socket.send(&bytes, found.ifindex, found.source, to)
    }

    fn note(&mut self, sent: io::Result<()>, due: Due, now: Instant) {
        match sent {
            Ok(()) => {
                self.paused = None;
                self.view.error = None;
                self.view.sent += 1;
                self.view.sent_unicast += u64::from(due != Due::Everybody);
                self.view.last_sent_unix_ms = Some(unix_ms());
            }
            // a host that cannot be reached hears the next one to all
            Err(error) if due != Due::Everybody => {
                tracing::debug!(interface = self.name(), %error, "an answer to a solicitation was not sent");
            }
            Err(error) => {
                if self.view.error.is_none() {
                    tracing::warn!(interface = self.name(), %error, "a router advertisement was not sent");
                }
                self.view.error = Some(format!("cannot send: {error}"));
                self.paused = Some(now + RETRY);
                self.schedule.restart(now);
            }
        }
    }

    /// When it has something to say.
    pub fn wakes(&self) -> Option<Instant> {
        self.found.as_ref()?;
        let at = self.last_words.map_or_else(|| self.schedule.wakes(), |(_, at)| at);
        Some(self.paused.map_or(at, |paused| at.max(paused)))
    }

    pub fn view(&self, now: Instant) -> RouterAdvertisementView {
        let prefixes = self.prefixes.told().iter().map(|told| {
            let prefix = told.now(now);
            AdvertisedPrefixView {
                prefix: format!("{}/{}", prefix.prefix, prefix.length),
                valid_lifetime_s: prefix.valid_s,
                preferred_lifetime_s: prefix.preferred_s,
                on_link: prefix.on_link,
                autonomous: prefix.autonomous,
                withdrawn: told.gone,
            }
        });
        RouterAdvertisementView {
            source: self.found.as_ref().map(|found| found.source.to_string()),
            default_lifetime_s: if self.last_words.is_some() { 0 } else { self.unit.default_lifetime_s },
            prefixes: prefixes.collect(),
            ..self.view.clone()
        }
    }
}
