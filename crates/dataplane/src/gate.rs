//! The gate alone: a root program that decides by itself what is for a service of this host (bpf/gate_only.h).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::{GATE_PORTS, GateCounters, GatePort, MAX_GATE_SERVICES, ProgramConfig};
use zerocopy::FromBytes;

use crate::Dataplane;
use crate::control::hz;
use crate::error::{Doing, Error, Result};
use crate::mmap::Mapped;
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::records::address_words;

pub(crate) const MAPS: [&str; 2] = ["gate_ports", "gate_counters"];

/// A service of this host: where it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePlace {
    pub service: u16,
    pub udp: bool,
    pub port: u16,
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

/// The program with its tables; its grants are those of the gateway.
#[derive(Debug)]
pub struct GateOnly {
    program: OwnedFd,
    counters: MapHandle,
}

impl Dataplane {
    /// Loads the gate alone for a device whose root has this variant: what it does not decide goes on as from that root.
    pub fn gate_only(&self, hook: ObjectKind, variant: u32, places: &[GatePlace]) -> Result<GateOnly> {
        let name = if hook == ObjectKind::Xdp { "xdp_gate" } else { "tc_gate" };
        let config = ProgramConfig { hz: hz(), ..crate::table_config(self.sizes(), self.seed) };
        let object = objects::load(&Recipe {
            kind: hook,
            programs: &[name],
            reuse: &|name| self.state.descriptor(hook, name),
            create: &|name| {
                MAPS.contains(&name) || name == objects::CONFIG_SECTION || name == "screen_logged"
            },
            frozen: Frozen { config, root_variant: variant },
            entries: &|name| self.sizes().entries(name),
        })?;
        let map = |name: &str| objects::map(&object, name);
        let ports: Mapped<GatePort> =
            Mapped::new(&map("gate_ports")?).doing(|| "map the ports of services".to_owned())?;
        for place in places {
            if place.service == 0 || usize::from(place.service) >= MAX_GATE_SERVICES {
                return Err(Error::Object { what: format!("service {}", place.service) });
            }
            let v6 = place.v6.map_or([0; 4], |address| address_words(address.into()).1);
            let v4 = place.v4.map_or(0, |address| address_words(address.into()).1[0]);
            let at = u32::from(place.port) + if place.udp { GATE_PORTS } else { 0 };
            ports.write(at, GatePort { be_addr6: v6, be_addr4: v4, service: place.service, zero: [0; 5] });
        }
        Ok(GateOnly { program: objects::program(&object, name)?, counters: map("gate_counters")? })
    }
}

impl GateOnly {
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Of all CPUs.
    pub fn counters(&self) -> Result<GateCounters> {
        let values = self
            .counters
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .doing(|| "read the counters of the gate alone".to_owned())?
            .unwrap_or_default();
        let mut sum = GateCounters::default();
        for one in values.iter().filter_map(|bytes| GateCounters::read_from_bytes(bytes).ok()) {
            sum.accepted += one.accepted;
            sum.no_service += one.no_service;
            sum.no_grant += one.no_grant;
            sum.expired += one.expired;
            sum.idle += one.idle;
            sum.revoked += one.revoked;
            sum.handed_on += one.handed_on;
        }
        Ok(sum)
    }
}
