//! The gate alone: a root program that decides by itself what is for a service of this host (bpf/gate/alone.h).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sluice_abi::tables::{GateAlone, GatePlace};
use sluice_abi::{GATE_PORTS, GatePort, MAX_GATE_SERVICES, ProgramConfig};

use crate::error::{Doing, Error, Result};
use crate::mmap::Mapped;
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::records::address_words;
use crate::{Dataplane, ProgramDetails, sys};

pub(crate) const MAPS: [&str; 2] = ["gate_ports", "gate_told"];

/// The program with its tables; its grants are those of the gateway, its counters those of the unit.
#[derive(Debug)]
pub struct GateOnly {
    program: OwnedFd,
}

impl Dataplane {
    /// Loads the gate alone for a device whose root has this variant: what it does not decide goes on as from that root.
    pub fn gate_only(&self, hook: ObjectKind, variant: u32, gate: &GateAlone) -> Result<GateOnly> {
        let name = if hook == ObjectKind::Xdp { "xdp_gate" } else { "tc_gate" };
        if u32::from(gate.unit) >= self.sizes().units {
            return Err(Error::Object { what: format!("unit {}", gate.unit) });
        }
        let config = ProgramConfig { gate_unit: gate.unit, gate_zone: gate.zone, ..self.fixed_config() };
        let object = objects::load(&Recipe {
            kind: hook,
            programs: &[name],
            reuse: &|name| self.state.descriptor(hook, name),
            create: &|name| MAPS.contains(&name) || name == objects::CONFIG_SECTION,
            frozen: Frozen { config, root_variant: variant },
            entries: &|name| self.sizes().entries(name),
        })?;
        let ports: Mapped<GatePort> = Mapped::new(&objects::map(&object, "gate_ports")?)
            .doing(|| "map the ports of services".to_owned())?;
        for place in &gate.places {
            write_place(&ports, place)?;
        }
        Ok(GateOnly { program: objects::program(&object, name)? })
    }
}

fn write_place(ports: &Mapped<GatePort>, place: &GatePlace) -> Result<()> {
    if place.service == 0 || usize::from(place.service) >= MAX_GATE_SERVICES {
        return Err(Error::Object { what: format!("service {}", place.service) });
    }
    let be_addr6 = place.v6.map_or([0; 4], |address| address_words(address.into()).1);
    let be_addr4 = place.v4.map_or(0, |address| address_words(address.into()).1[0]);
    let protocol = if place.udp { GATE_PORTS } else { 0 };
    for port in place.ports.0..=place.ports.1 {
        let entry = GatePort { be_addr6, be_addr4, service: place.service, zero: [0; 5] };
        ports.write(protocol + u32::from(port), entry);
    }
    Ok(())
}

impl GateOnly {
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// What the kernel made of it.
    pub fn details(&self) -> Result<ProgramDetails> {
        sys::program_details(self.program()).doing(|| "examine a program".to_owned())
    }
}
