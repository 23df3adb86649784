//! CPUs that XDP leaves packets to, by the flows in tunnels (bpf/gtpu/spread.h): their queues, and the program behind each.

use std::fs;
use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, num_possible_cpus};
use serde::Serialize;
use sluice_abi::tables::Spread;
use sluice_abi::{Generation, PROGRAM_SLOTS, SPREAD_SHARES, SpreadQueue};
use sluice_libbpf::map::NewMap;
use zerocopy::FromBytes;

use crate::Dataplane;
use crate::error::{Doing, Error, Result};
use crate::objects::ObjectKind;

/// The CPUMAP, by its name in the objects.
pub(crate) const CPUS: &str = "spread_cpus";
/// Programs of other CPUs, by the name of its pin.
pub(crate) const PROGRAMS: &str = "programs_cpu";
pub(crate) const QUEUES: &str = "spread_queues";
/// What packets meet first on another CPU.
pub(crate) const ROOT: &str = "cpu_root";

/// The kernel's queues are so much longer than programs fill them: several CPUs may find room at the same moment.
const SPARE: u32 = 256;
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// What a CPU had of other CPUs' packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpreadCpu {
    /// The kernel's number of it.
    pub cpu: u32,
    /// Packets that it took.
    pub packets: u64,
    /// Packets that are on their way to it.
    pub waiting: u64,
}

/// Both, which nothing but their sizes tells from those of the object: to read that once more would take longer.
pub(crate) fn new_maps() -> Result<[(&'static str, MapHandle); 2]> {
    let make = |kind, name, value_size, max_entries| {
        let map = NewMap { kind, name, key_size: 4, value_size, max_entries };
        map.create().doing(|| format!("create map {name}"))
    };
    Ok([
        (PROGRAMS, make(MapType::ProgArray, "programs", 4, PROGRAM_SLOTS as u32)?),
        (CPUS, make(MapType::Cpumap, CPUS, size_of::<[u32; 2]>() as u32, possible_cpus())?),
    ])
}

pub(crate) fn possible_cpus() -> u32 {
    num_possible_cpus().map_or(1, |cpus| cpus as u32)
}

/// The CPU of each share.
pub(crate) fn shares(spread: &Spread) -> [u16; SPREAD_SHARES as usize] {
    let cpus = cpus_of(spread);
    std::array::from_fn(|share| if cpus.is_empty() { 0 } else { cpus[share % cpus.len()] })
}

/// All that are there, where none are named.
fn cpus_of(spread: &Spread) -> Vec<u16> {
    match spread {
        Spread { queue: 0, .. } => vec![],
        Spread { cpus, .. } if !cpus.is_empty() => cpus.clone(),
        _ => online(&fs::read_to_string(ONLINE).unwrap_or_default()),
    }
}

/// Numbers and ranges of them, as the kernel writes them.
fn online(text: &str) -> Vec<u16> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    let cpus: Vec<u16> = ranges.flatten().collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Whether a generation leaves packets to a CPU.
fn has_share(generation: &Generation, cpu: u32) -> bool {
    generation.spread_limit > 0 && generation.spread.iter().any(|used| u32::from(*used) == cpu)
}

impl Dataplane {
    /// Gives CPUs their queues before any packet is left to them. What waits in a queue that becomes another one is still
    /// taken from it.
    pub(crate) fn prepare_spread(&self, spread: &Spread) -> Result<()> {
        let map = self.state.map(CPUS);
        for cpu in cpus_of(spread) {
            let key = u32::from(cpu).to_ne_bytes();
            let size = (spread.queue + SPARE).to_ne_bytes();
            let found = map.lookup(&key, MapFlags::ANY).ok().flatten();
            if found.is_some_and(|value| value.starts_with(&size)) {
                continue;
            }
            let root = self.root(ObjectKind::Cpu, 0)?;
            let value = [size, root.as_raw_fd().to_ne_bytes()].concat();
            map.update(&key, &value, MapFlags::ANY).map_err(|source| Error::SpreadCpu { cpu, source })?;
        }
        Ok(())
    }

    /// CPUs that the active generation leaves no packets to lose their queues.
    pub(crate) fn settle_spread(&self) -> Result<()> {
        let (map, active) = (self.state.map(CPUS), self.slots.header(self.active_slot()));
        for cpu in (0..possible_cpus()).filter(|cpu| !has_share(&active, *cpu)) {
            let key = cpu.to_ne_bytes();
            if map.lookup(&key, MapFlags::ANY).ok().flatten().is_some() {
                map.delete(&key).doing(|| format!("end the queue of CPU {cpu}"))?;
            }
        }
        Ok(())
    }

    /// CPUs that packets are spread to, and what they had of them.
    pub fn spread(&self) -> Result<Vec<SpreadCpu>> {
        let (map, active) = (self.state.map(QUEUES), self.slots.header(self.active_slot()));
        let of = |cpu: u32| {
            let value = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).doing(|| format!("read {QUEUES}"))?;
            let queue = value.and_then(|value| SpreadQueue::read_from_bytes(&value).ok()).unwrap_or_default();
            let waiting = queue.sent.wrapping_sub(queue.taken);
            Ok(SpreadCpu { cpu, packets: queue.taken, waiting: if waiting >> 63 == 1 { 0 } else { waiting } })
        };
        (0..possible_cpus()).filter(|cpu| has_share(&active, *cpu)).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_cpus_is_read() {
        assert_eq!(online("0-1,4,6-7\n"), [0, 1, 4, 6, 7]);
        assert_eq!(online(""), [0]);
    }

    #[test]
    fn shares_go_round_the_cpus() {
        let spread = Spread { cpus: vec![3, 5], queue: 512 };
        assert_eq!(shares(&spread)[..4], [3, 5, 3, 5]);
        assert!(shares(&Spread::default()).iter().all(|cpu| *cpu == 0));
        assert!(!cpus_of(&Spread { cpus: vec![], queue: 1 }).is_empty());
    }
}
