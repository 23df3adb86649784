//! A client of DHCPv6: exchanges of RFC 8415 section 18.2, and what they put into the kernel.

mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_language::dhcp::Dhcpv6Client;

use super::chance::{self, Sparing};
use super::client4::{Around, Client, backoff, note_no_socket};
use super::lease::{Given, Lease6, Until};
use super::placed6::is_to;
use super::reply6::{Judged, judge};
use super::wire6::{Association, Message, Type, status};
use crate::kernel::packet::{Port546, solicit_routers};
use crate::kernel::{Kernel, Link};

/// RFC 8415, section 7.6; seconds. The last is how long an exchange may take, the one before how many messages; 0 = no limit.
#[derive(Debug, Clone, Copy)]
struct Pace {
    first_s: u32,
    longest_s: u32,
    most: u32,
    span_s: u32,
}

const SOLICIT: Pace = Pace { first_s: 1, longest_s: 3600, most: 0, span_s: 0 };
const REQUEST: Pace = Pace { first_s: 1, longest_s: 30, most: 10, span_s: 0 };
const CONFIRM: Pace = Pace { first_s: 1, longest_s: 4, most: 0, span_s: 10 };
const RENEW: Pace = Pace { first_s: 10, longest_s: 600, most: 0, span_s: 0 };
const INFORMATION: Pace = Pace { first_s: 1, longest_s: 3600, most: 0, span_s: 0 };

/// Section 21.24: what a server may make of the longest pause.
const SOLICIT_LONGEST_S: std::ops::RangeInclusive<u32> = 60..=86400;
/// RFC 4242: how often what is no lease is asked for again.
const INFORMED: Duration = Duration::from_secs(86400);
const REST: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 32;
/// After the kernel has asked who has an address (RFC 4862, section 5.4, begins within a second) its answer is there.
pub const TRIED: Duration = Duration::from_secs(3);
const ROUTERS_ASKED: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Down,
    Soliciting,
    Requesting,
    Confirming,
    Bound,
    Renewing,
    Rebinding,
    Informing,
    Informed,
    Released,
}

#[derive(Debug)]
pub struct Client6 {
    pub unit: String,
    pub device: String,
    pub config: Dhcpv6Client,
    /// Devices of the units that get sub-prefixes, in the order of the configuration.
    pub lans: Vec<String>,
    pub state: State,
    pub lease: Option<Lease6>,
    pub note: String,
    pub changed: bool,
    is_new: bool,
    pub link: Option<(u32, [u8; 6])>,
    port: Option<Arc<Port546>>,
    /// The server that was chosen, and what it offered.
    server: Option<Vec<u8>>,
    offered: Vec<Association>,
    solicit_longest_s: u32,
    xid: [u8; 3],
    begun: Instant,
    sent: u32,
    pause: Duration,
    next: Option<Instant>,
    /// When to see whether the kernel has found the address elsewhere; none once that is known.
    pub tried: Option<Instant>,
    routers: (u32, Option<Instant>),
    /// Since a server has given something.
    refusals: u32,
    sparing: Sparing,
}

impl Client6 {
    pub fn new(
        unit: String,
        device: String,
        config: Dhcpv6Client,
        lans: Vec<String>,
        lease: Option<Lease6>,
    ) -> Self {
        Self {
            unit,
            device,
            config,
            lans,
            state: State::Down,
            lease,
            note: String::new(),
            changed: false,
            is_new: true,
            link: None,
            port: None,
            server: None,
            offered: vec![],
            solicit_longest_s: SOLICIT.longest_s,
            xid: [0; 3],
            begun: Instant::now(),
            sent: 0,
            pause: Duration::ZERO,
            next: None,
            tried: None,
            routers: (0, None),
            refusals: 0,
            sparing: Sparing::default(),
        }
    }

    pub fn socket(&self) -> Option<&Arc<Port546>> {
        self.port.as_ref()
    }

    pub fn next(&self) -> Option<Instant> {
        let given = self.lease.iter().flat_map(Lease6::given);
        let end = given.filter_map(|given| given.valid.left()).min().map(|left| Instant::now() + left);
        [self.next, end, self.tried, self.routers.1].into_iter().flatten().min()
    }

    /// Another configuration of the same unit. What another client would have, and what is not asked for any more, is given
    /// back; the rest is kept, and what is asked for besides is asked with it (section 18.2.4).
    pub fn configure(&mut self, config: &Dhcpv6Client, lans: Vec<String>, around: &Around<'_>) {
        let asks_for = |config: &Dhcpv6Client| {
            (config.address, config.prefix, config.duid, config.prefix_length, config.dns)
        };
        let asks_otherwise = asks_for(&self.config) != asks_for(config);
        let moves = self.lans != lans || self.config.sub_prefix_length != config.sub_prefix_length;
        let is_left = |given: &Given| if given.is_prefix() { !config.prefix } else { !config.address };
        let is_all = asks_otherwise && self.lease.as_ref().is_some_and(|lease| lease.given().all(is_left));
        // all this as the one that the server knows
        if is_all || config.duid != self.config.duid && self.state != State::Down {
            self.release(around);
        } else if let Some(part) = self.lease.as_mut().and_then(|lease| lease.take(is_left)) {
            self.give_back(&part, around);
        }
        (self.config, self.lans) = (config.clone(), lans);
        if let Some(prefix) = self.lease.as_ref().and_then(|lease| lease.prefix.clone()).filter(|_| moves) {
            self.assign(&prefix, &prefix.valid);
        }
        match self.state {
            State::Down => {}
            State::Renewing | State::Rebinding if asks_otherwise && self.lease.is_some() => {
                self.enter(self.state);
            }
            State::Bound if asks_otherwise && self.lease.is_some() => self.enter(State::Renewing),
            _ if asks_otherwise => self.begin(),
            _ => {}
        }
    }

    pub fn look(&mut self, link: Option<&Link>, around: &Around<'_>) {
        let now = link.and_then(Link::on_air);
        let is_first = std::mem::take(&mut self.is_new);
        if now == self.link && (now.is_none() || self.port.is_some()) {
            return;
        }
        self.link = now;
        self.port = None;
        let Some((ifindex, _)) = now else {
            if self.state != State::Released {
                self.state = State::Down;
            }
            (self.next, self.tried) = (None, None);
            return;
        };
        self.accept_advertisements(around.kernel);
        self.routers = (0, Some(Instant::now()));
        match Port546::open(ifindex, &self.device) {
            Ok(port) => self.port = Some(Arc::new(port)),
            Err(error) => {
                self.is_new = is_first;
                return self.is_deaf(&error);
            }
        }
        match &self.lease {
            _ if self.state == State::Released => {}
            Some(lease) if is_first && self.is_in_the_kernel(lease, around) => {
                tracing::info!(interface = self.unit, "DHCPv6: the lease of before is taken up");
                self.enter(State::Renewing);
            }
            _ => self.begin(),
        }
    }

    /// Until the next look: nothing that is sent would have an answer.
    fn is_deaf(&mut self, error: &io::Error) {
        note_no_socket("DHCPv6", &self.unit, &mut self.note, error);
        if self.state != State::Released {
            self.state = State::Down;
        }
        self.next = None;
    }

    fn is_in_the_kernel(&self, lease: &Lease6, around: &Around<'_>) -> bool {
        let present = around.kernel.leased().unwrap_or_default();
        let has = |given: &Given| present.iter().any(|leased| leased.prefix == given.net.into());
        // addresses of units are not there as long as their devices are not
        let routes = around.kernel.leased_routes().unwrap_or_default();
        let leads = |given: &Given| routes.iter().any(|route| is_to(route, given.net));
        !lease.has_ended()
            && lease.address.as_ref().is_none_or(has)
            && lease.prefix.as_ref().is_none_or(leads)
    }

    /// Section 18.2.12: who may be elsewhere asks whether addresses still fit, and with a prefix asks any server for all of it.
    fn begin(&mut self) {
        (self.server, self.offered) = (None, vec![]);
        let lease = self.lease.as_ref().filter(|lease| !lease.has_ended());
        let state = match lease {
            Some(lease) if lease.prefix.is_some() => State::Rebinding,
            Some(_) => State::Confirming,
            None if self.config.address || self.config.prefix => State::Soliciting,
            None => State::Informing,
        };
        self.enter(state);
    }

    fn enter(&mut self, state: State) {
        let [_, x, y, z] = chance::word().to_be_bytes();
        (self.state, self.xid, self.begun, self.sent) = (state, [x, y, z], Instant::now(), 0);
        // section 18.2.1: up to a second before the first
        let late =
            if matches!(state, State::Soliciting | State::Confirming | State::Informing) { 200 } else { 0 };
        self.next = Some(Instant::now() + chance::up_to(Duration::from_millis(late)));
    }

    pub fn turn(&mut self, around: &Around<'_>) {
        let messages = self.port.iter().flat_map(|port| (0..AT_ONCE).map_while(|_| port.receive()));
        let messages: Vec<_> = messages.collect();
        for (bytes, from) in messages {
            // section 18.2.9: a server answers from its link-local address or through a relay's
            if !from.is_multicast()
                && let Some(message) = Message::parse(&bytes)
            {
                self.hear(message, around);
            }
        }
        let now = Instant::now();
        self.expire(around);
        if self.tried.take_if(|tried| *tried <= now).is_some() {
            self.is_tried(around);
        }
        if self.routers.1.is_some_and(|at| at <= now) {
            self.ask_routers(around.kernel);
        }
        if self.next.is_some_and(|next| next <= now) {
            self.due(around);
        }
    }

    /// RFC 4861, section 6.3.7.
    fn ask_routers(&mut self, kernel: &Kernel) {
        let Some((ifindex, _)) = self.link else { return self.routers.1 = None };
        self.accept_advertisements(kernel);
        let sent = solicit_routers(ifindex, &self.device);
        self.routers.0 += u32::from(sent.is_ok());
        let pause = Duration::from_millis(if sent.is_ok() { 4000 } else { 500 });
        self.routers.1 = (self.routers.0 < ROUTERS_ASKED).then(|| Instant::now() + pause);
    }

    /// What has ended goes; as long as something is good, it is asked for all (section 18.2.5).
    fn expire(&mut self, around: &Around<'_>) {
        let Some(lease) = &mut self.lease else { return };
        lease.former.retain(|(_, _, until)| !until.has_passed());
        let Some(ended) = lease.take(|given| given.valid.has_passed()) else { return };
        self.lose(&ended, "expired", around);
        if self.state == State::Bound {
            self.enter(State::Renewing);
        }
    }

    /// Takes away what is no longer part of the lease, and begins anew where that was all.
    fn lose(&mut self, part: &Lease6, why: &str, around: &Around<'_>) {
        for given in part.given() {
            tracing::warn!(interface = self.unit, what = %given.net, "DHCPv6: {why}");
        }
        self.drop_given(part, around.kernel);
        self.changed = true;
        if part.address.is_some() {
            self.tried = None;
        }
        let is_all = self.lease.take_if(|lease| lease.is_empty()).is_some();
        if is_all && self.state != State::Released && self.link.is_some() {
            self.begin();
        }
    }

    fn due(&mut self, around: &Around<'_>) {
        if self.has_given_up() {
            return self.give_up();
        }
        let is_late =
            |when: fn(&Lease6) -> &Until| self.lease.as_ref().is_none_or(|lease| when(lease).has_passed());
        match self.state {
            State::Down | State::Released => self.next = None,
            State::Bound => self.enter(State::Renewing),
            State::Informed => self.enter(State::Informing),
            State::Renewing if is_late(|lease| &lease.t2) => self.enter(State::Rebinding),
            _ => self.send(around),
        }
    }

    fn pace(&self) -> Pace {
        match self.state {
            State::Soliciting => Pace { longest_s: self.solicit_longest_s, ..SOLICIT },
            State::Requesting => REQUEST,
            State::Confirming => CONFIRM,
            State::Informing => INFORMATION,
            // what is asked for because the link came back must not wait
            State::Rebinding if self.lease.as_ref().is_some_and(|lease| !lease.t2.has_passed()) => {
                Pace { first_s: 1, ..RENEW }
            }
            _ => RENEW,
        }
    }

    fn has_given_up(&self) -> bool {
        let Pace { most, span_s, .. } = self.pace();
        let rests =
            self.state == State::Soliciting && self.config.attempts.is_some_and(|most| self.sent >= most);
        rests
            || most > 0 && self.sent >= most
            || span_s > 0 && self.begun.elapsed().as_secs() >= u64::from(span_s)
    }

    fn give_up(&mut self) {
        match self.state {
            // section 18.2.3: what was given may still be used
            State::Confirming => self.wait_for_t1(),
            State::Soliciting => {
                self.note = "no server answers".to_owned();
                tracing::warn!(interface = self.unit, "DHCPv6: no server answers");
                self.enter(State::Soliciting);
                self.next = Some(Instant::now() + chance::about(REST));
            }
            _ => self.begin(),
        }
    }

    fn send(&mut self, around: &Around<'_>) {
        let kind = match self.state {
            State::Soliciting => Type::Solicit,
            State::Requesting => Type::Request,
            State::Confirming => Type::Confirm,
            State::Renewing => Type::Renew,
            State::Rebinding => Type::Rebind,
            _ => Type::InformationRequest,
        };
        let mut message = self.message(kind, around);
        message.rapid = kind == Type::Solicit && self.config.rapid_commit;
        message.associations = match kind {
            Type::InformationRequest => vec![],
            Type::Request => self.offered.clone(),
            Type::Confirm => self.associations(self.lease.iter().flat_map(|lease| &lease.address)),
            _ => self.associations(self.lease.iter().flat_map(Lease6::given)),
        };
        message.server = match kind {
            Type::Request => self.server.clone(),
            Type::Renew => self.lease.as_ref().map(|lease| lease.server.clone()),
            _ => None,
        };
        // without a link-local address nothing leaves: that is no attempt
        if !self.transmit(&message) {
            self.next = Some(Instant::now() + Duration::from_millis(250));
            return;
        }
        // section 15
        let Pace { first_s, longest_s, .. } = self.pace();
        let (first, longest) = (Duration::from_secs(first_s.into()), Duration::from_secs(longest_s.into()));
        self.pause = chance::about(if self.sent == 0 { first } else { (self.pause * 2).min(longest) });
        self.sent += 1;
        // sections 18.2.4 and 18.2.5: from T2 on any server is asked
        let ends = self.lease.as_ref().and_then(|lease| lease.t2.left()).filter(|_| kind == Type::Renew);
        self.next = Some(Instant::now() + ends.map_or(self.pause, |left| self.pause.min(left)));
    }

    fn hear(&mut self, message: Message, around: &Around<'_>) {
        let is_ours = message.xid == self.xid && message.client == self.duid(around);
        let Some(server) = message.server.clone().filter(|server| is_ours && !server.is_empty()) else {
            return;
        };
        if let Some(longest_s) = message.solicit_max_s.filter(|s| SOLICIT_LONGEST_S.contains(s)) {
            self.solicit_longest_s = longest_s;
        }
        match (message.kind, self.state) {
            (Type::Advertise, State::Soliciting) => {
                let judged = judge(&message, chance::iaid(&self.unit), &self.device, around.taken);
                if judged.address.is_none() && judged.prefix.is_none() {
                    return self.refuse(&message, judged.left_out.join("; "));
                }
                (self.server, self.offered) = (Some(server), message.associations);
                self.enter(State::Requesting);
            }
            (Type::Reply, State::Soliciting) if !(message.rapid && self.config.rapid_commit) => {}
            (Type::Reply, State::Confirming) => match message.status {
                status::SUCCESS => self.wait_for_t1(),
                _ => self.start_over(around, "the addresses do not fit this link"),
            },
            (Type::Reply, State::Informing) => self.informed(&message),
            (Type::Reply, State::Soliciting | State::Requesting | State::Renewing | State::Rebinding) => {
                self.answered(&message, server, around);
            }
            _ => {}
        }
    }

    fn refuse(&mut self, message: &Message, why: String) {
        let why = if why.is_empty() { format!("it gives nothing (status {})", message.status) } else { why };
        if self.note != why && self.sparing.may_say() {
            tracing::warn!(interface = self.unit, "DHCPv6: a server's answer is not taken: {why}");
        }
        self.note = why;
    }

    fn informed(&mut self, message: &Message) {
        let mut lease = self.lease.take().unwrap_or_default();
        (lease.device, lease.dns) = (self.device.clone(), message.dns.clone());
        (self.lease, self.changed, self.state) = (Some(lease), true, State::Informed);
        self.next = Some(Instant::now() + chance::about(INFORMED));
        tracing::info!(interface = self.unit, "DHCPv6: informed");
    }

    fn answered(&mut self, message: &Message, server: Vec<u8>, around: &Around<'_>) {
        let judged = judge(message, chance::iaid(&self.unit), &self.device, around.taken);
        if message.status == status::NOT_ON_LINK {
            return self.start_over(around, "the addresses do not fit this link");
        }
        if judged.no_binding
            && self.lease.is_some()
            && matches!(self.state, State::Renewing | State::Rebinding)
        {
            // section 18.2.10.1: it is asked for as if it were new, and kept meanwhile
            if self.sparing.may_say() {
                tracing::info!(
                    interface = self.unit,
                    "DHCPv6: the server does not know the lease; it is asked for anew"
                );
            }
            self.offered = self.associations(self.lease.iter().flat_map(Lease6::given));
            self.server = Some(server);
            self.enter(State::Requesting);
            return self.hold_back();
        }
        self.end(&judged, around);
        if judged.address.is_none() && judged.prefix.is_none() {
            return self.refuse(message, judged.left_out.join("; "));
        }
        self.note = judged.left_out.join("; ");
        self.refusals = 0;
        let what = if matches!(self.state, State::Renewing | State::Rebinding) { "renewed" } else { "bound" };
        let old = self.lease.take().unwrap_or_default();
        let mut lease = Lease6 {
            device: self.device.clone(),
            server,
            t1: Until::after(judged.t1),
            t2: Until::after(judged.t2),
            address: judged.address.or_else(|| old.address.clone()),
            prefix: judged.prefix.or_else(|| old.prefix.clone()),
            dns: message.dns.clone(),
            lans: old.lans.clone(),
            former: old.former.clone(),
        };
        let text = |given: &Option<Given>| {
            given.as_ref().map_or_else(|| "none".to_owned(), |given| given.net.to_string())
        };
        tracing::info!(
            interface = self.unit,
            address = text(&lease.address),
            prefix = text(&lease.prefix),
            "DHCPv6: {what}"
        );
        lease.lans.clone_from(&old.lans);
        self.lease = Some(lease.clone());
        if let Some(prefix) = &lease.prefix {
            self.assign(prefix, old.prefix.as_ref().map_or(&prefix.valid, |old| &old.valid));
        }
        self.replace(&old, &lease, around.kernel);
        self.tried = None;
        self.place(around, true);
        self.changed = true;
        self.wait_for_t1();
    }

    /// Section 18.2.10.1: a lifetime of 0 ends what the server gives no more, unless it gives another instead.
    fn end(&mut self, judged: &Judged, around: &Around<'_>) {
        let is_replaced = |given: &Given| {
            if given.is_prefix() { judged.prefix.is_some() } else { judged.address.is_some() }
        };
        let is_ended = |given: &Given| judged.ended.contains(&given.net) && !is_replaced(given);
        if let Some(ended) = self.lease.as_mut().and_then(|lease| lease.take(is_ended)) {
            self.lose(&ended, "ended by the server", around);
        }
    }

    fn wait_for_t1(&mut self) {
        self.state = State::Bound;
        let left = self.lease.as_ref().and_then(|lease| lease.t1.left());
        self.next = left.map(|left| Instant::now() + left);
    }

    /// Section 14.1: a server that refuses again and again is asked less and less often.
    fn hold_back(&mut self) {
        self.refusals += 1;
        if self.refusals > 1 {
            self.next = Some(Instant::now() + chance::about(backoff(1, self.refusals)));
        }
    }

    fn start_over(&mut self, around: &Around<'_>, why: &str) {
        if self.sparing.may_say() {
            tracing::warn!(interface = self.unit, "DHCPv6: {why}");
        }
        self.note = why.to_owned();
        if let Some(lease) = self.lease.take() {
            self.drop_given(&lease, around.kernel);
            self.changed = true;
        }
        self.begin();
        self.hold_back();
    }

    /// Of a lease what its server is to have again (section 18.2.7).
    fn give_back(&mut self, part: &Lease6, around: &Around<'_>) {
        let mut message = self.message(Type::Release, around);
        (message.server, message.associations) = (Some(part.server.clone()), self.associations(part.given()));
        let has = |is_prefix| if is_prefix { part.prefix.is_some() } else { part.address.is_some() };
        message.associations.retain(|association| has(association.is_prefix));
        if !part.is_empty() {
            self.transmit(&message);
            tracing::info!(interface = self.unit, "DHCPv6: released");
        }
        for (device, net) in &part.lans {
            self.take_away(device, *net, around.kernel);
        }
        for (device, net, _) in &part.former {
            self.take_away(device, *net, around.kernel);
        }
        self.drop_given(part, around.kernel);
        self.changed = true;
        if part.address.is_some() {
            self.tried = None;
        }
    }

    /// The kernel has asked who has the address.
    fn is_tried(&mut self, around: &Around<'_>) {
        if self.lease.as_ref().is_some_and(|lease| !self.has(lease, around.kernel)) {
            self.decline(around);
        }
    }

    /// Another host has the address (section 18.2.10.1, and DECLINE in 18.2.8).
    pub fn decline(&mut self, around: &Around<'_>) {
        self.tried = None;
        let Some(address) = self.lease.as_ref().and_then(|lease| lease.address.clone()) else { return };
        tracing::warn!(interface = self.unit, address = %address.net, "DHCPv6: conflict: another host has the address; declined");
        self.note = format!("{} belongs to another host; declined", address.net);
        let mut message = self.message(Type::Decline, around);
        message.server = self.lease.as_ref().map(|lease| lease.server.clone());
        message.associations = self.associations(std::iter::once(&address));
        message.associations.retain(|association| !association.is_prefix);
        self.transmit(&message);
        self.take_away(&self.device.clone(), address.net, around.kernel);
        if let Some(lease) = &mut self.lease {
            lease.address = None;
        }
        self.lease.take_if(|lease| lease.prefix.is_none());
        self.changed = true;
        (self.server, self.offered) = (None, vec![]);
        self.enter(State::Soliciting);
        self.next = Some(Instant::now() + Duration::from_secs(10));
    }
}

impl Client for Client6 {
    fn renew_now(&mut self) {
        match self.state {
            State::Bound | State::Renewing | State::Rebinding => self.enter(State::Renewing),
            State::Down => {}
            _ => self.begin(),
        }
    }

    fn release(&mut self, around: &Around<'_>) -> bool {
        let Some(lease) = self.lease.take() else { return false };
        self.give_back(&lease, around);
        true
    }

    fn rest(&mut self) {
        (self.state, self.next) = (State::Released, None);
    }
}
