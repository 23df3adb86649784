//! Router advertisements: what each link is told, and when.

mod link;
pub mod message;
mod prefixes;
pub mod schedule;

use std::hash::{BuildHasher, RandomState};

use sluice_language::Config;

use crate::kernel::router_socket::{ALL_NODES, RouterSocket};
use crate::kernel::{DeviceAddress, Kernel};

pub use self::link::{Found, Link};

/// Where a unit's packets leave, if the configuration has it and it is enabled.
pub fn device_of(config: &Config, unit: &str) -> Option<String> {
    let (name, number) = unit.rsplit_once('.')?;
    let interface = config.interfaces.iter().find(|own| own.name == name && !own.disabled)?;
    let unit = interface.units.iter().find(|unit| unit.number.to_string() == number && !unit.disabled)?;
    Some(sluice_plan::device_of(interface, unit))
}

/// Says the last word on every link of a configuration that is given up (RFC 4861 6.2.5), as well as it goes.
pub fn end(kernel: &Kernel, config: &Config) {
    let advertised = &config.router_advertisement.interfaces;
    if advertised.is_empty() {
        return;
    }
    let said =
        RouterSocket::open(message::SOLICITATION).map_err(|error| error.to_string()).and_then(|socket| {
            let links = kernel.links().map_err(|error| error.to_string())?;
            let addresses = kernel.router_addresses().map_err(|error| error.to_string())?;
            for unit in advertised {
                let device = device_of(config, &unit.unit);
                let Some(link) = links.iter().find(|link| Some(&link.name) == device.as_ref()) else {
                    continue;
                };
                let own = addresses.iter().find_map(|(index, address)| match address {
                    DeviceAddress::LinkLocal(address) if *index == link.index => Some(*address),
                    _ => None,
                });
                let Some(own) = own else { continue };
                let bytes = message::goodbye(unit, link.mac);
                socket
                    .send(&bytes, link.index, own, ALL_NODES)
                    .map_err(|error| format!("{}: {error}", link.name))?;
            }
            Ok(())
        });
    if let Err(error) = said {
        tracing::warn!(
            "hosts keep this router until its lifetime is over, as the last advertisement was not sent: {error}"
        );
    }
}

/// From 0 to 1, so that routers of a link do not speak at the same time (RFC 4861 6.2.4).
pub fn random() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
