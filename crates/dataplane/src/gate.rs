//! The gate alone: a root program that decides by itself what is for a service of this host (bpf/gate/alone.h).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sluice_abi::tables::{GateAlone, GateEndpoint};
use sluice_abi::{GATE_PORTS, GatePort, MAX_GATE_SERVICES, ProgramConfig};
use sluice_libbpf::program;

use crate::error::{Doing, Error, Result};
use crate::mmap::{Array, array};
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::records::address_words;
use crate::{Dataplane, ProgramDetails};

pub(crate) const MAPS: [&str; 2] = ["gate_ports", "gate_told"];
/// And what every program has for itself.
const SCRATCH: &str = "scratch";

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
            create: &|name| MAPS.contains(&name) || [SCRATCH, objects::CONFIG_SECTION].contains(&name),
            frozen: Frozen { config, root_variant: variant },
            entries: &|name| self.sizes().entries(name),
        })?;
        let ports: Array<GatePort> =
            array(&objects::map(&object, "gate_ports")?).doing(|| "map the ports of services".to_owned())?;
        for endpoint in &gate.endpoints {
            write_endpoint(&ports, endpoint)?;
        }
        Ok(GateOnly { program: objects::program(&object, name)? })
    }
}

fn write_endpoint(ports: &Array<GatePort>, endpoint: &GateEndpoint) -> Result<()> {
    if endpoint.service == 0 || usize::from(endpoint.service) >= MAX_GATE_SERVICES {
        return Err(Error::Object { what: format!("service {}", endpoint.service) });
    }
    let be_addr6 = endpoint.v6.map_or([0; 4], |address| address_words(address.into()).1);
    let be_addr4 = endpoint.v4.map_or(0, |address| address_words(address.into()).1[0]);
    let protocol = if endpoint.udp { GATE_PORTS } else { 0 };
    for port in endpoint.ports.0..=endpoint.ports.1 {
        let entry = GatePort { be_addr6, be_addr4, service: endpoint.service, zero: [0; 5] };
        ports.write(protocol + u32::from(port), entry);
    }
    Ok(())
}

impl GateOnly {
    /// What is attached to the device, for test runs.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// What the kernel made of it.
    pub fn details(&self) -> Result<ProgramDetails> {
        program::details(self.program()).doing(|| "examine a program".to_owned())
    }
}
