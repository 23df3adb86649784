//! A client of DHCP: the states of RFC 2131 section 4.4, from one message, moment or change of its device to the next.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_language::dhcp::DhcpClient;
use socket2::Socket;

use super::chance::{self, Sparing};
use super::lease::{Lease4, Until};
use super::offer::{Taken, judge};
use super::packets;
use super::wire4::{Reply, Request, Type, code};
use crate::kernel::packet::{PacketSocket, Taken as Kind, port_68, send_to_server};
use crate::kernel::{Kernel, Link};

/// RFC 2131, section 4.1: pauses double up to this, each shifted by up to a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// After so many messages that nobody answered.
const REST: Duration = Duration::from_secs(60);
/// Requests for one offer, or for a lease of before.
const REQUESTS: u32 = 4;
/// RFC 2131, section 4.4.5: the least between two renewals.
const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// The most: a message of a lease that lasts for ever, or for years, may be lost like any other.
const LONGEST_RENEWAL: Duration = Duration::from_secs(1800);
/// RFC 2131, section 3.1 (5): the least after an address was declined.
const DECLINED: Duration = Duration::from_secs(10);
/// RFC 5227 has seconds; an answer on a link takes milliseconds, and users wait.
const PROBES: u32 = 3;
const PROBE_PAUSE: Duration = Duration::from_millis(200);
const PROBED: Duration = Duration::from_millis(300);
/// Packets that are read in one go: another client's turn comes.
const AT_ONCE: usize = 32;

/// RFC 2131, figure 5; `Probing` is between its REQUESTING and BOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The device is not there, or has no carrier.
    Down,
    Init,
    Selecting,
    Requesting,
    Rebooting,
    Probing,
    Bound,
    Renewing,
    Rebinding,
    /// An operator has given the lease back.
    Released,
}

/// What clients work with.
pub struct Around<'a> {
    pub kernel: &'a Kernel,
    pub duid: &'a [u8],
    /// Addresses of this host that the configuration has.
    pub taken: Taken<'a>,
}

/// What a client of either protocol can be asked for.
pub trait Client {
    /// At once, whenever it would.
    fn renew_now(&mut self);
    /// An operator, or a configuration without the client, gives the lease back. False = there is none.
    fn release(&mut self, around: &Around<'_>) -> bool;
    /// Until it is asked to renew.
    fn rest(&mut self);
}

#[derive(Debug)]
pub struct Client4 {
    pub unit: String,
    pub device: String,
    pub config: DhcpClient,
    pub state: State,
    /// In the kernel, whatever is asked for meanwhile.
    pub lease: Option<Lease4>,
    /// Why there is none, or what of it was left out.
    pub note: String,
    /// Its routes that are left out as long as others have them.
    pub held: String,
    /// It is to be written down.
    pub changed: bool,
    /// The kernel has its address, or the server has said since that it is ours: another host may have one of before by now.
    is_proven: bool,
    /// Its device was never looked at: a lease may be in the kernel from before.
    is_new: bool,
    pub link: Option<(u32, [u8; 6])>,
    socket: Option<Arc<PacketSocket>>,
    arp: Option<Arc<PacketSocket>>,
    port: Option<Socket>,
    offer: Option<Lease4>,
    xid: u32,
    begun: Instant,
    sent: u32,
    naks: u32,
    /// A server has answered what is asked now, with an offer that is not taken.
    was_refused: bool,
    next: Option<Instant>,
    sparing: Sparing,
}

impl Client4 {
    pub fn new(unit: String, device: String, config: DhcpClient, lease: Option<Lease4>) -> Self {
        Self {
            unit,
            device,
            config,
            state: State::Down,
            lease,
            note: String::new(),
            held: String::new(),
            changed: false,
            is_proven: false,
            is_new: true,
            link: None,
            socket: None,
            arp: None,
            port: None,
            offer: None,
            xid: 0,
            begun: Instant::now(),
            sent: 0,
            naks: 0,
            was_refused: false,
            next: None,
            sparing: Sparing::default(),
        }
    }

    /// What something may arrive on.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<PacketSocket>> {
        self.socket.iter().chain(&self.arp)
    }

    /// When [`Self::turn`] has something to do, if nothing arrives.
    pub fn next(&self) -> Option<Instant> {
        let end = self.lease.as_ref().and_then(|lease| lease.ends.left()).map(|left| Instant::now() + left);
        [self.next, end].into_iter().flatten().min()
    }

    /// Another configuration of the same unit. The lease is given back where it is another client's from here on, or of a
    /// server that is not listened to; whatever else is asked for is asked with it (section 4.4.5).
    pub fn configure(&mut self, config: &DhcpClient, around: &Around<'_>) {
        let asks_for = |config: &DhcpClient| {
            (config.server, config.vendor.clone(), config.lease_s, config.host_name.clone())
        };
        let is_refused =
            |lease: &Lease4| config.server != self.config.server && !listens_to(config, lease.server);
        let is_another =
            config.identifier != self.config.identifier || self.lease.as_ref().is_some_and(is_refused);
        let asks_otherwise = is_another || asks_for(&self.config) != asks_for(config);
        if is_another && self.state != State::Down {
            // as the one that the server knows
            self.release(around);
        }
        self.config = config.clone();
        match self.state {
            State::Down => {}
            State::Bound | State::Renewing | State::Rebinding if asks_otherwise && !is_another => {
                self.renew()
            }
            _ if asks_otherwise => self.begin(),
            _ => {}
        }
    }

    /// The device as it is now.
    pub fn look(&mut self, link: Option<&Link>, around: &Around<'_>) {
        let now = link.and_then(Link::on_air);
        let is_first = std::mem::take(&mut self.is_new);
        if now == self.link && (now.is_none() || self.socket.is_some()) {
            return;
        }
        self.link = now;
        (self.socket, self.arp, self.port, self.offer) = (None, None, None, None);
        let Some((ifindex, _)) = now else {
            if self.state != State::Released {
                self.state = State::Down;
            }
            self.next = None;
            return;
        };
        match PacketSocket::open(ifindex, Kind::DhcpAnswers) {
            Ok(socket) => self.socket = Some(Arc::new(socket)),
            Err(error) => {
                self.is_new = is_first;
                return self.is_deaf(&error);
            }
        }
        self.is_proven = self.lease.as_ref().is_some_and(|lease| self.kernel_has(lease, around));
        if self.state == State::Released {
            return;
        }
        if let Some(lease) = self
            .in_force()
            .filter(|lease| is_first && !self.config.discover && !lease.ends.has_passed())
            .cloned()
        {
            // taken up as it stands; the server is asked whether it still holds
            tracing::info!(interface = self.unit, address = %lease.address, "DHCP: the lease of before is taken up");
            self.listen(&lease);
            self.renew();
        } else {
            self.begin();
        }
    }

    /// Until the next look: nothing that is sent would have an answer.
    fn is_deaf(&mut self, error: &io::Error) {
        note_no_socket("DHCP", &self.unit, &mut self.note, error);
        if self.state != State::Released {
            self.state = State::Down;
        }
        self.next = None;
    }

    /// The lease that may be used.
    pub fn in_force(&self) -> Option<&Lease4> {
        self.lease.as_ref().filter(|_| self.is_proven)
    }

    fn kernel_has(&self, lease: &Lease4, around: &Around<'_>) -> bool {
        let Some((ifindex, _)) = self.link else { return false };
        let leased = around.kernel.leased();
        leased.is_ok_and(|all| all.iter().any(|a| (a.ifindex, a.prefix) == (ifindex, lease.prefix())))
    }

    /// With a lease that may still hold it is asked for (section 4.3.2, INIT-REBOOT), else for any.
    fn begin(&mut self) {
        if self.link.is_none() {
            // the next look at its device begins
            (self.state, self.next) = (State::Down, None);
            return;
        }
        let known = self.lease.as_ref().filter(|lease| !lease.ends.has_passed() && !self.config.discover);
        self.offer = known.cloned();
        self.enter(if self.offer.is_some() { State::Rebooting } else { State::Selecting });
    }

    fn enter(&mut self, state: State) {
        (self.state, self.sent) = (state, 0);
        // of an offer the server knows the number (section 4.4.1)
        if state != State::Requesting {
            (self.xid, self.begun) = (chance::word(), Instant::now());
        }
        self.next = Some(Instant::now());
    }

    /// Section 4.4.1: the first message is late by a while that no two clients share.
    fn begin_after(&mut self, pause: Duration) {
        self.enter(State::Init);
        self.offer = None;
        self.next = Some(Instant::now() + pause + chance::up_to(Duration::from_secs(1)));
    }

    fn renew(&mut self) {
        let is_late = self.lease.as_ref().is_some_and(|lease| lease.t2.has_passed());
        self.enter(if is_late { State::Rebinding } else { State::Renewing });
    }

    fn drop_lease(&mut self, around: &Around<'_>) {
        (self.lease, self.port, self.changed) = (None, None, true);
        self.place(around, false);
    }

    /// Whatever has come and whatever is due.
    pub fn turn(&mut self, around: &Around<'_>) {
        let packets = self.socket.iter().flat_map(|socket| (0..AT_ONCE).map_while(|_| socket.receive()));
        let packets: Vec<Vec<u8>> = packets.collect();
        packets.iter().for_each(|packet| self.hear(packet, around));
        let claims = self.arp.iter().flat_map(|socket| (0..AT_ONCE).map_while(|_| socket.receive()));
        let claims: Vec<Vec<u8>> = claims.collect();
        claims.iter().for_each(|packet| self.hear_arp(packet, around));
        if let Some(lease) = self.lease.take_if(|lease| lease.ends.has_passed()) {
            tracing::warn!(interface = self.unit, address = %lease.address, server = %lease.server, "DHCP: expired");
            self.drop_lease(around);
            if matches!(self.state, State::Bound | State::Renewing | State::Rebinding | State::Rebooting) {
                self.enter(State::Selecting);
            }
        }
        if self.next.is_some_and(|next| next <= Instant::now()) {
            self.due(around);
        }
    }

    fn due(&mut self, around: &Around<'_>) {
        let attempts = self.config.attempts;
        match self.state {
            State::Down | State::Released => self.next = None,
            State::Init => self.enter(State::Selecting),
            State::Selecting if self.sent >= attempts => {
                if !std::mem::take(&mut self.was_refused) {
                    self.note = "no server answers".to_owned();
                    tracing::warn!(interface = self.unit, attempts, "DHCP: no server answers");
                }
                self.begin_after(REST);
            }
            State::Selecting => self.send(Type::Discover, around),
            State::Requesting | State::Rebooting if self.sent >= REQUESTS => self.unanswered(),
            State::Requesting | State::Rebooting => self.send(Type::Request, around),
            State::Probing => self.probe(around),
            State::Bound => self.renew(),
            State::Renewing if self.has_passed(|lease| &lease.t2) => self.enter(State::Rebinding),
            State::Renewing | State::Rebinding => self.send(Type::Request, around),
        }
    }

    /// Section 3.2 (4): a lease of before may be used until it ends, if nobody says anything else: neither its server nor a host.
    fn unanswered(&mut self) {
        let before = self
            .lease
            .clone()
            .filter(|lease| self.state == State::Rebooting && !self.is_proven && !lease.ends.has_passed());
        match before {
            Some(lease) => self.probe_for(lease),
            None => {
                self.offer = None;
                self.enter(State::Selecting);
            }
        }
    }

    fn probe_for(&mut self, lease: Lease4) {
        let arp = self.link.map(|(ifindex, _)| PacketSocket::open(ifindex, Kind::Arp));
        self.arp = arp.and_then(Result::ok).map(Arc::new);
        self.offer = Some(lease);
        (self.state, self.sent, self.next) = (State::Probing, 0, Some(Instant::now()));
    }

    fn has_passed(&self, when: impl Fn(&Lease4) -> &Until) -> bool {
        self.lease.as_ref().is_none_or(|lease| when(lease).has_passed())
    }

    /// Option 61: as configured, else as RFC 4361 section 6.1 has it.
    fn identifier(&self, around: &Around<'_>) -> (u8, Vec<u8>) {
        let made = || [&[255], &chance::iaid(&self.unit).to_be_bytes()[..], around.duid].concat();
        (code::CLIENT, self.config.identifier.clone().unwrap_or_else(made))
    }

    /// Section 4.3.6, table 5: which of options and fields says what is asked for depends on the state.
    fn options(&self, kind: Type, around: &Around<'_>) -> Vec<(u8, Vec<u8>)> {
        let mut options = vec![self.identifier(around)];
        if let Some(offer) = self.offer.as_ref().filter(|_| kind != Type::Discover) {
            options.push((code::ADDRESS, offer.address.octets().to_vec()));
            if matches!(self.state, State::Requesting | State::Probing) {
                options.push((code::SERVER, offer.server.octets().to_vec()));
            }
        }
        if kind == Type::Decline {
            return options;
        }
        options.push((code::SIZE, 1472u16.to_be_bytes().to_vec()));
        options.extend(self.config.lease_s.map(|seconds| (code::LEASE, seconds.to_be_bytes().to_vec())));
        options.extend(self.config.vendor.as_ref().map(|vendor| (code::VENDOR, vendor.clone().into_bytes())));
        options
            .extend(self.config.host_name.as_ref().map(|name| (code::HOST_NAME, name.clone().into_bytes())));
        // RFC 3442: 121 before 3
        let asked = [code::MASK, code::ROUTES, code::ROUTER, code::DNS, code::LEASE, code::T1, code::T2];
        options.push((code::ASKED, asked.to_vec()));
        options
    }

    fn send(&mut self, kind: Type, around: &Around<'_>) {
        let Some((_, mac)) = self.link else { return };
        let has_address = matches!(self.state, State::Renewing | State::Rebinding);
        let lease = self.lease.clone().filter(|_| has_address);
        let message = Request {
            kind,
            xid: self.xid,
            secs: self.begun.elapsed().as_secs().min(0xffff) as u16,
            mac,
            own: lease.as_ref().map_or(Ipv4Addr::UNSPECIFIED, |lease| lease.address),
            options: self.options(kind, around),
        };
        let sent = match (&lease, &self.port, &self.socket) {
            (Some(lease), Some(port), _) if self.state == State::Renewing => {
                send_to_server(port, lease.server, &message.bytes())
            }
            (_, _, Some(socket)) => socket.broadcast(&packets::broadcast(message.own, &message.bytes())),
            _ => Ok(()),
        };
        if let Err(error) = sent {
            tracing::debug!(interface = self.unit, %error, "DHCP: not sent");
        }
        self.sent += 1;
        self.next = Some(Instant::now() + self.pause());
    }

    /// Until the message is sent again.
    fn pause(&self) -> Duration {
        let until = |when: fn(&Lease4) -> &Until| {
            let left =
                self.lease.as_ref().and_then(|lease| when(lease).left()).unwrap_or(LONGEST_RENEWAL * 2);
            (left / 2).max(RENEWAL_PAUSE).min(left).max(Duration::from_secs(1)).min(LONGEST_RENEWAL)
        };
        match self.state {
            State::Renewing => until(|lease| &lease.t2),
            State::Rebinding => until(|lease| &lease.ends),
            _ => chance::shifted(backoff(self.config.interval_s, self.sent)),
        }
    }

    fn hear(&mut self, packet: &[u8], around: &Around<'_>) {
        let Some(reply) = packets::answer(packet).and_then(Reply::parse) else { return };
        let is_ours = self.link.is_some_and(|(_, mac)| mac == reply.mac) && reply.xid == self.xid;
        match (reply.kind, self.state) {
            _ if !is_ours => {}
            (Type::Offer, State::Selecting) => {
                match judge(&reply, &self.config, &self.device, around.taken) {
                    Ok((lease, _)) => {
                        self.offer = Some(lease);
                        self.enter(State::Requesting);
                    }
                    Err(why) => {
                        self.was_refused = true;
                        self.refuse("offer", why);
                    }
                }
            }
            (Type::Ack, State::Requesting | State::Rebooting | State::Renewing | State::Rebinding) => {
                self.acknowledged(&reply, around);
            }
            (Type::Nak, State::Requesting | State::Rebooting | State::Renewing | State::Rebinding) => {
                self.refused(&reply, around);
            }
            _ => {}
        }
    }

    /// A message that is not used. Once in a while: a hostile server must not fill the log.
    fn refuse(&mut self, what: &str, why: String) {
        if self.note != why && self.sparing.may_say() {
            tracing::warn!(interface = self.unit, "DHCP: a server's {what} is not taken: {why}");
        }
        self.note = why;
    }

    fn acknowledged(&mut self, reply: &Reply, around: &Around<'_>) {
        let (lease, left_out) = match judge(reply, &self.config, &self.device, around.taken) {
            Ok(judged) => judged,
            Err(why) => return self.refuse("answer", why),
        };
        let asked = self.offer.as_ref().or(self.lease.as_ref());
        let is_asked = asked.is_some_and(|asked| {
            asked.address == lease.address
                && (self.state != State::Requesting || asked.server == lease.server)
        });
        if !is_asked {
            return self.refuse("answer", format!("{} was not asked for", lease.address));
        }
        left_out.iter().for_each(|text| tracing::warn!(interface = self.unit, "DHCP: left out: {text}"));
        self.note = left_out.join("; ");
        if self.in_force().is_some_and(|old| old.prefix() == lease.prefix()) {
            return self.bind(lease, "renewed", around);
        }
        self.probe_for(lease);
    }

    /// Section 4.4.1: whether another host has the address (RFC 5227, section 2.1).
    fn probe(&mut self, around: &Around<'_>) {
        let (Some(offer), Some((_, mac))) = (self.offer.clone(), self.link) else { return };
        if self.sent >= PROBES {
            return self.bind(offer, "bound", around);
        }
        if let Some(socket) = &self.arp {
            let _ = socket.broadcast(&packets::arp(mac, Ipv4Addr::UNSPECIFIED, offer.address));
        }
        self.sent += 1;
        let pause = if self.sent < PROBES { PROBE_PAUSE } else { PROBED };
        self.next = Some(Instant::now() + pause);
    }

    fn hear_arp(&mut self, packet: &[u8], around: &Around<'_>) {
        let (Some(offer), Some((_, mac))) = (&self.offer, self.link) else { return };
        let Some(other) =
            packets::claims(packet, offer.address, mac).filter(|_| self.state == State::Probing)
        else {
            return;
        };
        let (address, other) = (offer.address, packets::mac_text(other));
        tracing::warn!(interface = self.unit, %address, server = %offer.server, "DHCP: conflict: {other} has the address; declined");
        if self.lease.take_if(|lease| lease.address == address).is_some() {
            self.changed = true;
        }
        self.note = format!("{address} belongs to {other}; declined");
        self.xid = chance::word();
        let options = self.options(Type::Decline, around);
        let own = Ipv4Addr::UNSPECIFIED;
        let message = Request { kind: Type::Decline, xid: self.xid, secs: 0, mac, own, options };
        if let Some(socket) = &self.socket {
            let _ = socket.broadcast(&packets::broadcast(own, &message.bytes()));
        }
        self.arp = None;
        self.begin_after(DECLINED);
    }

    /// The server of the offer, or any where anybody was asked.
    fn refused(&mut self, reply: &Reply, around: &Around<'_>) {
        let asked = match self.state {
            State::Requesting => self.offer.as_ref().map(|offer| offer.server),
            State::Renewing => self.lease.as_ref().map(|lease| lease.server),
            _ => None,
        };
        let server = reply.server();
        if asked.is_some() && asked != server || self.config.server.is_some() && self.config.server != server
        {
            return;
        }
        let server = server.map_or_else(String::new, |server| server.to_string());
        tracing::warn!(interface = self.unit, server, "DHCP: refused by the server: {}", reply.words());
        self.note = format!("refused by the server: {}", reply.words());
        if self.lease.is_some() {
            self.drop_lease(around);
        }
        // a server that refuses again and again is asked less and less often
        self.naks = (self.naks + 1).min(7);
        match self.naks {
            1 => self.enter(State::Selecting),
            naks => self.begin_after(backoff(1, naks - 1)),
        }
    }

    fn bind(&mut self, lease: Lease4, what: &str, around: &Around<'_>) {
        let Some((_, mac)) = self.link else { return };
        let left_s = lease.ends.left_s();
        tracing::info!(
            interface = self.unit, address = %lease.address, server = %lease.server, lease_s = left_s, "DHCP: {what}"
        );
        let is_new = self.lease.as_ref().is_none_or(|old| old.prefix() != lease.prefix());
        self.next = lease.t1.left().map(|left| Instant::now() + left);
        (self.state, self.offer, self.naks, self.changed) = (State::Bound, None, 0, true);
        (self.lease, self.is_proven) = (Some(lease.clone()), true);
        self.place(around, true);
        if is_new || self.port.is_none() {
            self.listen(&lease);
        }
        if let Some(arp) = self.arp.take() {
            // RFC 5227, section 2.3
            let _ = arp.broadcast(&packets::arp(mac, lease.address, lease.address));
        }
    }

    fn listen(&mut self, lease: &Lease4) {
        self.port = port_68(lease.address, &self.device)
            .inspect_err(
                |error| tracing::warn!(interface = self.unit, %error, "DHCP: renewals will be broadcast"),
            )
            .ok();
    }
}

impl Client for Client4 {
    fn renew_now(&mut self) {
        match self.state {
            State::Bound | State::Renewing | State::Rebinding => self.renew(),
            State::Down => {}
            _ => self.begin(),
        }
    }

    fn release(&mut self, around: &Around<'_>) -> bool {
        let Some(lease) = self.lease.clone() else { return false };
        if let (Some((_, mac)), Some(port)) = (self.link, &self.port) {
            let options = vec![self.identifier(around), (code::SERVER, lease.server.octets().to_vec())];
            let (xid, own) = (chance::word(), lease.address);
            let message = Request { kind: Type::Release, xid, secs: 0, mac, own, options };
            if let Err(error) = send_to_server(port, lease.server, &message.bytes()) {
                tracing::warn!(interface = self.unit, %error, "DHCP: the server does not hear of the release");
            }
        }
        tracing::info!(interface = self.unit, address = %lease.address, server = %lease.server, "DHCP: released");
        self.drop_lease(around);
        true
    }

    fn rest(&mut self) {
        (self.state, self.next, self.offer, self.arp) = (State::Released, None, None, None);
    }
}

fn listens_to(config: &DhcpClient, server: Ipv4Addr) -> bool {
    config.server.is_none_or(|only| only == server)
}

/// Says once that a client of either protocol cannot listen to its device.
pub(super) fn note_no_socket(protocol: &str, interface: &str, note: &mut String, error: &io::Error) {
    let now = format!("no socket: {error}");
    if *note != now {
        tracing::error!(interface, %error, "{protocol}: the device cannot be listened to");
    }
    *note = now;
}

/// RFC 2131, section 4.1: doubled each time.
pub(super) fn backoff(first_s: u32, sent: u32) -> Duration {
    let doubled = u64::from(first_s) << sent.saturating_sub(1).min(6);
    Duration::from_secs(doubled).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
