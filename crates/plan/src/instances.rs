//! Routing instances: what stands for them in the kernel, and in the data plane.

use std::collections::BTreeMap;

use sluice_abi::{self as abi, RoutingInstance as InstanceEntry, Unit as UnitEntry};
use sluice_language::config::{Config, RoutingInstance};

use crate::Environment;
use crate::units::{LOOPBACK, device_of_unit_name};

/// The table of routing instance `number` is this plus `number`.
pub const FIRST_INSTANCE_TABLE: u32 = 1_000_000;

/// The main instance, as Junos calls it.
pub(crate) const MAIN: &str = "default";

/// A routing instance: a VRF device, its table, and the devices whose packets are routed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceWant {
    /// Name of the VRF device, and of the instance.
    pub device: String,
    /// In session keys and in the data plane's tables.
    pub number: u16,
    /// The kernel's routing table.
    pub table: u32,
    /// Netdevs that carry the addresses of its units.
    pub ports: Vec<String>,
}

/// In the order of the configuration. `numbers` has every name.
pub(crate) fn wanted(
    config: &Config,
    environment: &Environment,
    numbers: &BTreeMap<String, u32>,
) -> Vec<InstanceWant> {
    let want = |instance: &RoutingInstance| {
        let number = numbers[&instance.name];
        let ports = instance.interfaces.iter().map(|unit| device_of_unit_name(config, unit));
        let ports = ports.filter(|device| !environment.is_absent(device)).collect();
        InstanceWant {
            device: instance.name.clone(),
            number: number as u16,
            table: FIRST_INSTANCE_TABLE + number,
            ports,
        }
    };
    config.routing_instances.iter().map(want).collect()
}

/// The one that a unit is in; None = the main one.
fn instance_of<'a>(config: &'a Config, unit: &str) -> Option<&'a RoutingInstance> {
    config.routing_instances.iter().find(|instance| instance.interfaces.iter().any(|name| name == unit))
}

/// As rules name the one that a unit is in.
pub(crate) fn name_of<'a>(config: &'a Config, unit: &str) -> &'a str {
    instance_of(config, unit).map_or(MAIN, |instance| &instance.name)
}

/// Of a unit; 0 = the main one.
pub(crate) fn number_of(config: &Config, numbers: &BTreeMap<String, u32>, unit: &str) -> u16 {
    instance_of(config, unit).map_or(0, |instance| numbers[&instance.name] as u16)
}

/// The device that each instance's routes are asked by, by number. Those that are not there yet have none, and nothing is
/// routed in them.
pub(crate) fn entries(environment: &Environment, wants: &[InstanceWant]) -> Vec<InstanceEntry> {
    let Some(last) = wants.iter().map(|want| want.number).max() else { return vec![] };
    let mut entries = vec![InstanceEntry::default(); usize::from(last) + 1];
    let ifindex = |device: &str| environment.netdevs.get(device).map_or(0, |device| device.ifindex);
    entries[0].ifindex = ifindex(LOOPBACK);
    for want in wants {
        entries[usize::from(want.number)].ifindex = ifindex(&want.device);
    }
    entries
}

/// VRF devices in the table of units: a route to one is a question to its table.
pub(crate) fn leaks(environment: &Environment, wants: &[InstanceWant]) -> Vec<UnitEntry> {
    let devices = wants.iter().filter_map(|want| environment.netdevs.get(&want.device));
    let entry = |device: &crate::NetDev| UnitEntry {
        ifindex: device.ifindex,
        vlan: abi::VLAN_INSTANCE,
        flags: abi::UNIT_VALID,
        phys_ifindex: device.ifindex,
        host_ifindex: device.ifindex,
        ..Default::default()
    };
    devices.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use crate::tests::plan;
    use crate::{Ids, Plan};

    /// Far more than it takes, on a machine with other work.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// So many instances, each with a unit in a zone of its own as long as there are zones, and a route.
    fn many(instances: usize, zones: usize) -> Plan {
        let mut text = String::new();
        for n in 0..instances {
            let mut set = |words: String| writeln!(text, "set {words}").expect("memory");
            let own = format!("routing-instances i{n}");
            set(format!("{own} instance-type virtual-router"));
            set(format!("{own} routing-options static route 172.16.0.0/12 discard"));
            if n >= zones {
                continue;
            }
            set(format!("{own} interface t{n}.0"));
            set(format!("interfaces t{n} unit 0 family inet address 10.0.0.1/24"));
            set(format!("security zones security-zone z{n} interfaces t{n}.0"));
            let policy = format!("security policies from-zone z{n} to-zone z{n} policy all");
            set(format!("{policy} match source-address any destination-address any application any"));
            set(format!("{policy} then permit"));
            // the same pool in each of them
            let nat = format!("security nat source pool p{n}");
            set(format!("{nat} routing-instance i{n} address 10.0.0.1/32"));
            let set_of = format!("security nat source rule-set s{n}");
            set(format!("{set_of} from zone z{n}"));
            set(format!("{set_of} to zone z{n}"));
            set(format!("{set_of} rule r match source-address 10.0.0.0/24"));
            set(format!("{set_of} rule r then source-nat pool p{n}"));
        }
        plan(&text, &mut Ids::default(), 1).unwrap()
    }

    #[test]
    fn as_many_instances_as_there_are_zones_and_more_without_units_make_a_plan() {
        let began = Instant::now();
        let plan = many(256, 250);
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        assert_eq!(plan.kernel.instances.len(), 256);
        assert_eq!(plan.tables.nat.pools.len(), 250);
        let tables: Vec<u32> = plan.kernel.instances.iter().map(|own| own.table).collect();
        assert!(tables.windows(2).all(|pair| pair[0] < pair[1]), "{tables:?}");
        let tables = &plan.tables;
        let bytes = size_of_val(&tables.zone_pairs[..])
            + size_of_val(&tables.classes[..])
            + size_of_val(&tables.rows[..])
            + size_of_val(&tables.nat.sources[..]);
        assert!(bytes < 16 << 20, "{bytes} bytes");
    }
}
