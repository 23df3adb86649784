//! The thread that advertises this router: it hears solicitations, follows the configuration in force and the kernel's
//! addresses, and sends when it is time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_language::Config;

use crate::commit::Shared;
use crate::functions::router_advertisement::{Found, Link, device_of, message};
use crate::kernel::router_socket::RouterSocket;
use crate::kernel::{DeviceAddress, KernelError};

/// How often the kernel's addresses are looked at: what changes is told within a second.
const LOOK: Duration = Duration::from_millis(500);

/// Longer than any solicitation of use.
const LONGEST: usize = 1280;
/// Heard at a time at most; what else there is waits in the socket, which is bounded.
const BATCH: usize = 64;

pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    thread::Builder::new()
        .name("advertise".to_owned())
        .spawn(move || Advertiser { shared, socket: None, links: vec![], generation: None, told: None }.run())
        .map(drop)
}

struct Advertiser {
    shared: Arc<Shared>,
    /// Open while a link has something to say.
    socket: Option<RouterSocket>,
    links: Vec<Link>,
    generation: Option<u32>,
    /// What the log says already of what hinders it.
    told: Option<String>,
}

impl Advertiser {
    fn run(mut self) {
        let mut looked: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
                self.look(now);
                looked = Some(now);
            }
            self.turn(now);
            let next = self.links.iter().filter_map(Link::wakes).fold(now + LOOK, Instant::min);
            let pause = next.saturating_duration_since(Instant::now());
            match &self.socket {
                // rounded up, else it would turn without end in the last millisecond
                Some(socket) => socket.wait(pause.as_millis() as u16 + 1),
                None => thread::sleep(LOOK),
            }
        }
    }

    /// Hears and speaks.
    fn turn(&mut self, now: Instant) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; LONGEST];
        for _ in 0..BATCH {
            match socket.receive(&mut buffer) {
                Ok(Some(heard)) => {
                    let link = self.links.iter_mut().find(|link| link.ifindex() == Some(heard.ifindex));
                    if let Some(link) = link {
                        link.heard(&buffer[..heard.length], heard.source, heard.hop_limit, now);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "router solicitations are not heard");
                    break;
                }
            }
        }
        self.links.retain_mut(|link| link.speak(socket, now));
    }

    /// Follows the configuration and the kernel.
    fn look(&mut self, now: Instant) {
        let active = self.shared.active();
        if self.generation.replace(active.generation) != Some(active.generation) {
            self.configure(&active.config, now);
        }
        if self.links.is_empty() {
            self.socket = None;
        } else {
            let followed = self.follow(&active.config, now);
            let why = followed.err();
            if let Some(why) = why.as_ref().filter(|why| self.told.as_ref() != Some(*why)) {
                tracing::error!("this router is not advertised: {why}");
            }
            self.told = why;
        }
        self.shared.advertised.set(self.links.iter().map(|link| link.view(now)).collect());
    }

    fn configure(&mut self, config: &Config, now: Instant) {
        let wanted = &config.router_advertisement.interfaces;
        for link in &mut self.links {
            link.configure(wanted.iter().find(|unit| unit.unit == link.name()), now);
        }
        for unit in wanted {
            if !self.links.iter().any(|link| link.name() == unit.unit) {
                self.links.push(Link::new(unit, now));
            }
        }
    }

    fn follow(&mut self, config: &Config, now: Instant) -> Result<(), String> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                none.insert(RouterSocket::open(message::SOLICITATION).map_err(|error| error.to_string())?)
            }
        };
        let found = found(&self.shared).map_err(|error| error.to_string())?;
        for link in self.links.iter_mut().filter(|link| !link.is_leaving()) {
            let device = device_of(config, link.name());
            let of_link = match &device {
                None => Err("the unit is disabled".to_owned()),
                Some(device) => {
                    found.get(device).cloned().unwrap_or_else(|| Err("there is no such device".to_owned()))
                }
            };
            let is_another = link.follow(device.as_deref().unwrap_or_default(), of_link, now);
            if let Some(ifindex) = link.ifindex().filter(|_| is_another) {
                socket.join(ifindex).map_err(|error| format!("{}: {error}", link.name()))?;
            }
        }
        Ok(())
    }
}

/// What devices have, by name, or what they lack.
fn found(shared: &Shared) -> Result<BTreeMap<String, Result<Found, String>>, KernelError> {
    let addresses = shared.kernel.router_addresses()?;
    let of = |index: u32| addresses.iter().filter(move |(own, _)| *own == index).map(|(_, address)| *address);
    let links = shared.kernel.links()?;
    let found = links.into_iter().map(|link| {
        let source = of(link.index).find_map(|address| match address {
            DeviceAddress::LinkLocal(address) => Some(address),
            DeviceAddress::Global(_) => None,
        });
        let prefixes = of(link.index).filter_map(|address| match address {
            DeviceAddress::Global(prefix) => Some(prefix),
            DeviceAddress::LinkLocal(_) => None,
        });
        let found = match source {
            _ if !link.up || !link.running => Err("the device is down".to_owned()),
            None => Err("the device has no link-local address that is in use".to_owned()),
            Some(source) => {
                Ok(Found { ifindex: link.index, mac: link.mac, source, prefixes: prefixes.collect() })
            }
        };
        (link.name, found)
    });
    Ok(found.collect())
}
