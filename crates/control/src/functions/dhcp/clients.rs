//! All clients of this gateway: what the configuration wants, what is written down, and what one thread does for them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice_language::Config;
use sluice_language::config::{Interface, Prefix, Unit};
use sluice_plan::{device_of, unit_name};

use super::chance;
use super::client4::{Around, Client, Client4};
use super::client6::Client6;
use super::lease::{Kept, Lease4, Lease6};
use super::placed6::{forget_advertisements, unreachable};
use super::shown;
use crate::api::{DhcpBinding, DhcpDone, Dhcpv6Binding};
use crate::kernel::clock::unix_ms;
use crate::kernel::packet::{PacketSocket, Port546};
use crate::kernel::{Kernel, KernelError, Link};
use crate::state::files;

/// What is kept over a restart, below the state directory.
const FILE: &str = "dhcp-leases.json";
const RESOLV: &str = "resolv.conf";

/// The kernel is looked at all the same after so long: what it lost without a word is put back.
const QUIET: Duration = Duration::from_secs(30);

/// Between 2000-01-01 and what began in 1970 (RFC 8415, section 11.2).
const DUID_EPOCH_S: u64 = 946_684_800;

#[derive(Debug, thiserror::Error)]
pub enum DhcpError {
    #[error("there is no {0} client on `{1}`; `show {2} client binding` lists them")]
    Unknown(&'static str, String, &'static str),
}

/// Whether a lease is asked for anew, or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Renew,
    Release,
}

/// Clients by unit, and how their thread is told of something.
pub struct Clients {
    dir: PathBuf,
    book: Mutex<Book>,
    wake: UnixStream,
    woken: UnixStream,
    /// Links or addresses have changed since they were looked at.
    news: AtomicBool,
}

#[derive(Default)]
struct Book {
    kernel: Option<Kernel>,
    duid: Vec<u8>,
    taken: Vec<(String, Prefix)>,
    v4: BTreeMap<String, Client4>,
    v6: BTreeMap<String, Client6>,
    /// Of units that had clients when the daemon ended.
    kept: Kept,
    looked: Option<Instant>,
}

impl Clients {
    /// Those of a state directory; leases of before are taken up when a configuration asks for them.
    pub fn of(dir: &Path, kernel: &Kernel) -> io::Result<Self> {
        let clients = Self::look(dir)?;
        let mut book = clients.book();
        book.kernel = Some(kernel.clone());
        if book.kept.duid.is_empty() {
            book.kept.duid = new_duid(&kernel.links().unwrap_or_default());
        }
        book.duid = book.kept.duid.clone();
        drop(book);
        Ok(clients)
    }

    /// Likewise, for who only reads.
    pub fn look(dir: &Path) -> io::Result<Self> {
        let kept = match std::fs::read(dir.join(FILE)) {
            Ok(bytes) => files::unsealed(&bytes).unwrap_or_else(|why| {
                tracing::error!("{} is damaged ({why}); leases are asked for anew", dir.join(FILE).display());
                Kept::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error),
        };
        let (wake, woken) = UnixStream::pair()?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true)?;
        }
        let book = Mutex::new(Book { kept, ..Book::default() });
        Ok(Self { dir: dir.to_owned(), book, wake, woken, news: AtomicBool::new(true) })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look at once.
    fn wake(&self) {
        // one that is not read yet is enough
        let _ = (&self.wake).write(&[0]);
    }

    /// The kernel has changed links or addresses.
    pub fn tell_of_links(&self) {
        self.news.store(true, Ordering::Release);
        self.wake();
    }

    /// Units that a configuration has clients on get them; others give their leases back; those that stay are not touched.
    pub fn reconcile(&self, config: &Config) {
        let mut book = self.book();
        let Some(kernel) = book.kernel.clone() else { return };
        book.reconcile(config, &kernel);
        self.write(&mut book);
        drop(book);
        self.tell_of_links();
    }

    pub fn ask4(&self, interface: &str, asked: Asked) -> Result<DhcpDone, DhcpError> {
        let unknown = DhcpError::Unknown("DHCP", interface.to_owned(), "dhcp");
        self.ask(interface, asked, |book| &mut book.v4).ok_or(unknown)
    }

    pub fn ask6(&self, interface: &str, asked: Asked) -> Result<DhcpDone, DhcpError> {
        let unknown = DhcpError::Unknown("DHCPv6", interface.to_owned(), "dhcpv6");
        self.ask(interface, asked, |book| &mut book.v6).ok_or(unknown)
    }

    /// False in the answer = there was nothing to give back; None = there is no such client.
    fn ask<C: Client>(
        &self,
        interface: &str,
        asked: Asked,
        clients: impl FnOnce(&mut Book) -> &mut BTreeMap<String, C>,
    ) -> Option<DhcpDone> {
        let mut book = self.book();
        let unit = with_number(interface);
        let (duid, taken, kernel) = (book.duid.clone(), book.taken.clone(), book.kernel.clone()?);
        let client = clients(&mut book).get_mut(&unit)?;
        let done = match asked {
            Asked::Renew => {
                client.renew_now();
                true
            }
            Asked::Release => {
                let done = client.release(&Around { kernel: &kernel, duid: &duid, taken: &taken });
                client.rest();
                done
            }
        };
        self.write(&mut book);
        drop(book);
        self.wake();
        Some(DhcpDone { interface: unit, done })
    }

    pub fn bindings4(&self) -> Vec<DhcpBinding> {
        self.book().v4.values().map(shown::v4).collect()
    }

    pub fn bindings6(&self) -> Vec<Dhcpv6Binding> {
        self.book().v6.values().map(shown::v6).collect()
    }

    /// Waits for what comes next, and does what there is to do. The thread calls it for ever.
    pub fn turn(&self) {
        let (sockets, next) = {
            let book = self.book();
            let packets = book.v4.values().flat_map(Client4::sockets).cloned().map(Waiting::Packets);
            let ports = book.v6.values().filter_map(Client6::socket).cloned().map(Waiting::Port);
            let next = book
                .v4
                .values()
                .filter_map(Client4::next)
                .chain(book.v6.values().filter_map(Client6::next))
                .min();
            (packets.chain(ports).collect::<Vec<_>>(), next)
        };
        self.wait(&sockets, next);
        let mut book = self.book();
        let Some(kernel) = book.kernel.clone() else { return };
        let is_due = book.looked.is_none_or(|looked| looked.elapsed() >= QUIET);
        let has_clients = !book.v4.is_empty() || !book.v6.is_empty();
        if self.news.swap(false, Ordering::AcqRel) | is_due && has_clients {
            book.look_at_links(&kernel);
        }
        let Book { duid, taken, v4, v6, .. } = &mut *book;
        let around = Around { kernel: &kernel, duid, taken };
        v4.values_mut().for_each(|client| client.turn(&around));
        v6.values_mut().for_each(|client| client.turn(&around));
        self.write(&mut book);
    }

    fn wait(&self, sockets: &[Waiting], next: Option<Instant>) {
        let left = next.map_or(QUIET, |next| next.saturating_duration_since(Instant::now())).min(QUIET);
        // rounded up: to wake a moment early is to wake twice
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let all = sockets.iter().map(Waiting::fd).chain([self.woken.as_fd()]);
        let mut fds: Vec<PollFd> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        if poll(&mut fds, timeout).is_err() {
            // a signal, or no memory: not as fast as it can
            std::thread::sleep(Duration::from_millis(10));
        }
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    }

    /// Writes down what has changed. A lease that is not written down still stands; it is only not known after a restart.
    fn write(&self, book: &mut Book) {
        let changed4 =
            book.v4.values_mut().fold(false, |changed, client| std::mem::take(&mut client.changed) | changed);
        let changed6 =
            book.v6.values_mut().fold(false, |changed, client| std::mem::take(&mut client.changed) | changed);
        let kept = book.to_keep();
        if !(changed4 || changed6) && kept == book.kept {
            return;
        }
        let written = files::sealed(&kept).and_then(|bytes| files::replace(&self.dir, FILE, &bytes));
        if let Err(error) = written {
            tracing::error!(%error, "DHCP: leases are not written to {}", self.dir.join(FILE).display());
        }
        let servers = book.name_servers();
        if servers.is_empty() && !self.dir.join(RESOLV).exists() {
            book.kept = kept;
            return;
        }
        let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        let text = format!(
            "# Name servers of leases, written by sluice; nothing reads it unless it is told to.\n{text}"
        );
        let readable = std::fs::Permissions::from_mode(0o644);
        let replaced = files::replace(&self.dir, RESOLV, text.as_bytes())
            .and_then(|()| std::fs::set_permissions(self.dir.join(RESOLV), readable));
        if let Err(error) = replaced {
            tracing::error!(%error, "DHCP: name servers are not written to {}", self.dir.join(RESOLV).display());
        }
        book.kept = kept;
    }
}

/// What something may arrive on, while the clients are free for others.
enum Waiting {
    Packets(Arc<PacketSocket>),
    Port(Arc<Port546>),
}

impl Waiting {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packets(socket) => socket.as_fd(),
            Self::Port(port) => port.as_fd(),
        }
    }
}

impl Book {
    fn reconcile(&mut self, config: &Config, kernel: &Kernel) {
        let units: Vec<(&Interface, &Unit)> =
            config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u))).collect();
        let in_service = |(interface, unit): &&(&Interface, &Unit)| !interface.disabled && !unit.disabled;
        let addresses = |(interface, unit): &(&Interface, &Unit)| {
            let device = device_of(interface, unit);
            unit.addresses().map(move |prefix| (device.clone(), *prefix)).collect::<Vec<_>>()
        };
        // clients stand in the main instance, and the networks of others may have the same addresses
        let is_here = |own: &&(&Interface, &Unit)| {
            let name = unit_name(own.0, own.1);
            config.routing_instances.iter().all(|instance| !instance.interfaces.contains(&name))
        };
        self.taken = units.iter().filter(in_service).filter(is_here).flat_map(addresses).collect();
        let devices: BTreeMap<String, String> = units
            .iter()
            .map(|(interface, unit)| (unit_name(interface, unit), device_of(interface, unit)))
            .collect();
        let (duid, taken) = (self.duid.clone(), self.taken.clone());
        let around = Around { kernel, duid: &duid, taken: &taken };
        let links = kernel.links().unwrap_or_default();
        let (mut old4, mut old6) = (std::mem::take(&mut self.v4), std::mem::take(&mut self.v6));
        for (interface, unit) in units.iter().filter(in_service) {
            let (name, device) = (unit_name(interface, unit), device_of(interface, unit));
            // who is on another device gives its lease back there
            if let Some(wanted) = &unit.dhcp {
                let client = take(&mut old4, &name, |client| client.device == device).map(|mut client| {
                    client.configure(wanted, &around);
                    client.place(&around, false);
                    client
                });
                let kept = self.kept.v4.get(&name).filter(|lease| lease.device == device).cloned();
                let new = || Client4::new(name.clone(), device.clone(), wanted.clone(), kept);
                self.v4.insert(name.clone(), client.unwrap_or_else(new));
            }
            if let Some(wanted) = &unit.dhcpv6 {
                let lans: Vec<String> =
                    wanted.lans.iter().filter_map(|lan| devices.get(lan).cloned()).collect();
                let client = take(&mut old6, &name, |client| client.device == device).map(|mut client| {
                    client.configure(wanted, lans.clone(), &around);
                    client.accept_advertisements(kernel);
                    client.place(&around, false);
                    client
                });
                let kept = self.kept.v6.get(&name).filter(|lease| lease.device == device).cloned();
                let new = || Client6::new(name.clone(), device.clone(), wanted.clone(), lans.clone(), kept);
                self.v6.insert(name.clone(), client.unwrap_or_else(new));
            }
        }
        self.give_back(old4, old6, &links, &around);
    }

    /// Of clients that are not wanted, or not there; and what a daemon before this one had on such units and devices.
    fn give_back(
        &self,
        mut old4: BTreeMap<String, Client4>,
        mut old6: BTreeMap<String, Client6>,
        links: &[Link],
        around: &Around<'_>,
    ) {
        for (unit, lease) in self.kept.v4.clone() {
            if self.v4.get(&unit).is_none_or(|client| client.device != lease.device) {
                let client = || without_configuration4(unit.clone(), lease, links, around);
                old4.entry(unit.clone()).or_insert_with(client);
            }
        }
        for (unit, lease) in self.kept.v6.clone() {
            if self.v6.get(&unit).is_none_or(|client| client.device != lease.device) {
                let client = || without_configuration6(unit.clone(), lease, links, around);
                old6.entry(unit.clone()).or_insert_with(client);
            }
        }
        for client in old4.values_mut() {
            client.release(around);
        }
        for client in old6.values_mut() {
            client.release(around);
            if self.v6.values().all(|other| other.device != client.device) {
                forget_advertisements(around.kernel, &client.device);
            }
        }
    }

    fn look_at_links(&mut self, kernel: &Kernel) {
        self.looked = Some(Instant::now());
        let links = match kernel.links() {
            Ok(links) => links,
            Err(error) => return tracing::error!(%error, "DHCP: the devices cannot be read"),
        };
        let Book { duid, taken, v4, v6, .. } = self;
        let around = Around { kernel, duid, taken };
        let find = |device: &str| links.iter().find(|link| link.name == device);
        for client in v4.values_mut() {
            client.look(find(&client.device.clone()), &around);
            if client.lease.is_some() {
                client.place(&around, false);
            }
        }
        for client in v6.values_mut() {
            client.look(find(&client.device.clone()), &around);
            client.place(&around, false);
        }
    }

    fn to_keep(&self) -> Kept {
        let v4 = self.v4.iter().filter_map(|(unit, client)| Some((unit.clone(), client.lease.clone()?)));
        let v6 = self.v6.iter().filter_map(|(unit, client)| Some((unit.clone(), client.lease.clone()?)));
        Kept { duid: self.duid.clone(), v4: v4.collect(), v6: v6.collect() }
    }

    fn name_servers(&self) -> Vec<std::net::IpAddr> {
        let v4 = self
            .v4
            .values()
            .filter(|client| client.config.install_dns)
            .filter_map(|client| client.lease.as_ref());
        let v6 = self.v6.values().filter_map(|client| client.lease.as_ref());
        let v4 = v4.flat_map(|lease| lease.dns.iter().map(|server| (*server).into()));
        v4.chain(v6.flat_map(|lease| lease.dns.iter().map(|server| (*server).into()))).collect()
    }
}

fn take<C>(clients: &mut BTreeMap<String, C>, unit: &str, is_it: impl Fn(&C) -> bool) -> Option<C> {
    clients.get(unit).is_some_and(is_it).then(|| clients.remove(unit)).flatten()
}

/// A client that only gives back what it has.
fn without_configuration4(unit: String, lease: Lease4, links: &[Link], around: &Around<'_>) -> Client4 {
    let device = lease.device.clone();
    let config = sluice_language::dhcp::DhcpClient::default();
    let link = links.iter().find(|link| link.name == device);
    let mut client = Client4::new(unit, device, config, Some(lease));
    client.look(link, around);
    client
}

fn without_configuration6(unit: String, lease: Lease6, links: &[Link], around: &Around<'_>) -> Client6 {
    let device = lease.device.clone();
    let config = sluice_language::dhcp::Dhcpv6Client {
        address: lease.address.is_some(),
        prefix: lease.prefix.is_some(),
        ..Default::default()
    };
    let link = links.iter().find(|link| link.name == device);
    let mut client = Client6::new(unit, device, config, vec![], Some(lease));
    client.look(link, around);
    client
}

fn with_number(interface: &str) -> String {
    if interface.contains('.') { interface.to_owned() } else { format!("{interface}.0") }
}

/// DUID-LLT (RFC 8415, section 11.2) of the first device that has a MAC address, and of now.
fn new_duid(links: &[Link]) -> Vec<u8> {
    let random = || {
        let [a, b, c, d] = chance::word().to_be_bytes();
        // locally administered
        [2, 0, a, b, c, d]
    };
    let mac = links.iter().map(|link| link.mac).find(|mac| *mac != [0; 6]).unwrap_or_else(random);
    let time = (unix_ms() / 1000).saturating_sub(DUID_EPOCH_S) as u32;
    [&[0, 1, 0, 1], &time.to_be_bytes()[..], &mac].concat()
}

/// Takes away what clients of a state directory put into the kernel; servers hear nothing of it.
pub fn cleanup(dir: &Path, kernel: &Kernel) -> Vec<KernelError> {
    let Ok(clients) = Clients::look(dir) else { return vec![] };
    let kept = std::mem::take(&mut clients.book().kept);
    let links = kernel.links().unwrap_or_default();
    let index = |device: &str| links.iter().find(|link| link.name == device).map(|link| link.index);
    let mut wanted: Vec<(String, Prefix)> =
        kept.v4.values().map(|lease| (lease.device.clone(), lease.prefix())).collect();
    let mut errors = vec![];
    for lease in kept.v6.values() {
        let of_units = lease.lans.iter().map(|(device, net)| (device.clone(), Prefix::from(*net)));
        let former = lease.former.iter().map(|(device, net, _)| (device.clone(), Prefix::from(*net)));
        let own = lease.address.iter().map(|given| (lease.device.clone(), given.net.into()));
        wanted.extend(of_units.chain(former).chain(own));
        errors.extend(
            lease.prefix.iter().filter_map(|given| kernel.delete_leased_route(&unreachable(given.net)).err()),
        );
        forget_advertisements(kernel, &lease.device);
    }
    let present = kernel.leased().unwrap_or_default();
    for (device, prefix) in wanted {
        let Some(ifindex) = index(&device) else { continue };
        if present.iter().any(|leased| (leased.ifindex, leased.prefix) == (ifindex, prefix)) {
            // routes with this source go with it
            errors.extend(kernel.delete_address(ifindex, &device, prefix).err());
        }
    }
    errors
}

/// What was written down, and name servers.
pub fn forget(dir: &Path) -> io::Result<()> {
    [FILE, RESOLV].iter().try_for_each(|name| files::remove(dir, name).map(drop))
}

#[cfg(test)]
mod tests {
    use super::super::lease::{Given, Net, Until};
    use super::super::tried::{alone, link};
    use super::*;
    use crate::kernel::lease::Leased;

    fn config(lines: &[&str]) -> Config {
        let tree = sluice_language::parse(&lines.join("\n"), "a.conf").unwrap();
        sluice_language::compile(&tree).unwrap()
    }

    const CLIENTS: [&str; 2] =
        ["set interfaces v0 unit 0 family inet dhcp", "set interfaces v0 unit 0 family inet6 dhcpv6-client"];

    fn kept() -> Kept {
        let [ends, t1, t2] = [3600, 1800, 3150].map(Until::after);
        let device = "v0".to_owned();
        let address = Net { addr: "2001:db8:72::9".parse().unwrap(), len: 128 };
        let given = Given { net: address, preferred: ends.clone(), valid: ends.clone() };
        let (t1_6, t2_6) = (t1.clone(), t2.clone());
        let v6 =
            Lease6 { device: device.clone(), address: Some(given), t1: t1_6, t2: t2_6, ..Lease6::default() };
        let server = [192, 0, 2, 1].into();
        let address = [192, 0, 2, 9].into();
        let v4 = Lease4 { device, address, length: 24, server, ends, t1, t2, routes: vec![], dns: vec![] };
        let unit = "v0.0".to_owned();
        Kept { duid: vec![], v4: [(unit.clone(), v4)].into(), v6: [(unit, v6)].into() }
    }

    /// What stands elsewhere, or is out of service, has nothing to do with what a server offers.
    #[test]
    fn addresses_of_other_instances_and_disabled_units_are_free() {
        alone("taken", |around, _| {
            let mut book = Book { duid: around.duid.to_vec(), ..Book::default() };
            let others = [
                "set interfaces v2 unit 0 family inet address 10.0.0.1/24",
                "set interfaces v3 unit 0 family inet address 10.0.1.1/24",
                "set interfaces v3 unit 0 disable",
                "set interfaces v1 unit 0 family inet address 10.0.2.1/24",
                "set routing-instances red instance-type virtual-router",
                "set routing-instances red interface v2.0",
            ];
            book.reconcile(&config(&[&CLIENTS[..], &others].concat()), around.kernel);
            let taken: Vec<&str> = book.taken.iter().map(|(device, _)| device.as_str()).collect();
            assert_eq!(taken, ["v1"]);
        });
    }

    /// With a tag a unit is on another device; and the same where a daemon begins with it.
    #[test]
    fn a_unit_that_moves_gives_its_leases_back_where_it_was() {
        alone("moves", |around, _| {
            let kernel = around.kernel;
            link(kernel, "v0");
            let tagged = ["set interfaces v0 vlan-tagging", "set interfaces v0 unit 0 vlan-id 100"];
            for is_restarted in [false, true] {
                let mut book = Book { kept: kept(), duid: around.duid.to_vec(), ..Book::default() };
                book.reconcile(&config(&CLIENTS), kernel);
                let (prefix, ifindex) = (kept().v4["v0.0"].prefix(), link(kernel, "v0").index);
                let leased =
                    Leased { ifindex, prefix, preferred_s: 3600, valid_s: 3600, is_duplicate: false };
                kernel.put_leased("v0", &leased, false).unwrap();
                book.look_at_links(kernel);
                assert_eq!(kernel.leased().unwrap().len(), 2);
                if is_restarted {
                    book = Book { kept: book.to_keep(), duid: around.duid.to_vec(), ..Book::default() };
                }
                book.reconcile(&config(&[&CLIENTS[..], &tagged].concat()), kernel);
                assert_eq!(kernel.leased().unwrap(), []);
                let (v4, v6) = (&book.v4["v0.0"], &book.v6["v0.0"]);
                assert_eq!((&*v4.device, &v4.lease), ("v0.0", &None));
                assert_eq!((&*v6.device, &v6.lease), ("v0.0", &None));
            }
        });
    }
}
