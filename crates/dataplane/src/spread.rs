//! CPUs that XDP leaves packets to, by the flows in tunnels (bpf/gtpu/spread.h): their queues, and the program behind each.

use std::fs;
use std::os::fd::AsRawFd;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType, num_possible_cpus};
use serde::Serialize;
use sluice_abi::tables::Spread;
use sluice_abi::{Generation, PROGRAM_SLOTS, SPREAD_SHARES, SpreadQueue};
use sluice_libbpf::map::NewMap;
use zerocopy::{FromBytes, IntoBytes};

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
        _ => online().unwrap_or_else(|| vec![0]),
    }
}

/// Those that the kernel runs now.
fn online() -> Option<Vec<u16>> {
    let cpus = listed(&fs::read_to_string(ONLINE).ok()?);
    (!cpus.is_empty()).then_some(cpus)
}

/// Of those that this machine has, the ones that do not run. Where the kernel says nothing of it, all do.
fn offline(cpus: &[u16], online: Option<&[u16]>, possible: u32) -> Vec<u16> {
    let runs = |cpu: &u16| online.is_none_or(|online| online.contains(cpu));
    cpus.iter().copied().filter(|cpu| u32::from(*cpu) < possible && !runs(cpu)).collect()
}

/// Numbers and ranges of them, as the kernel writes them.
fn listed(text: &str) -> Vec<u16> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// Whether a generation leaves packets to a CPU.
fn has_share(generation: &Generation, cpu: u32) -> bool {
    generation.spread_limit > 0 && generation.spread.iter().any(|used| u32::from(*used) == cpu)
}

impl Dataplane {
    /// Gives CPUs their queues before any packet is left to them. What waits in a queue that becomes another one is still
    /// taken from it.
    pub(crate) fn prepare_spread(&self, spread: &Spread) -> Result<()> {
        let away = self.spread_offline(spread);
        cpus_of(spread).iter().filter(|cpu| !away.contains(cpu)).try_for_each(|cpu| {
            let size = (spread.queue + SPARE).to_ne_bytes();
            match self.queue_of((*cpu).into()) {
                Some(value) if value.starts_with(&size) => Ok(()),
                found => self.begin_queue(*cpu, size, found.is_none()),
            }
        })
    }

    fn queue_of(&self, cpu: u32) -> Option<Vec<u8>> {
        self.state.map(CPUS).lookup(&cpu.to_ne_bytes(), MapFlags::ANY).ok().flatten()
    }

    fn begin_queue(&self, cpu: u16, size: [u8; 4], is_new: bool) -> Result<()> {
        let root = self.root(ObjectKind::Cpu, 0)?;
        let value = [size, root.as_raw_fd().to_ne_bytes()].concat();
        let done = self.state.map(CPUS).update(&u32::from(cpu).to_ne_bytes(), &value, MapFlags::ANY);
        done.map_err(|source| Error::SpreadCpu { cpu, source })?;
        if is_new { self.forget_waiting(cpu.into()) } else { Ok(()) }
    }

    /// Packets go on where they came from here on.
    fn end_queue(&self, cpu: u32) -> Result<()> {
        match self.state.map(CPUS).delete(&cpu.to_ne_bytes()) {
            // somebody else was faster
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done.doing(|| format!("end the queue of CPU {cpu}"))?,
        }
        self.forget_waiting(cpu)
    }

    /// What waited when a CPU went offline is taken on another one, which counts it as its own: here it would wait for ever.
    fn forget_waiting(&self, cpu: u32) -> Result<()> {
        let map = self.state.map(QUEUES);
        let queue = self.counts_of(cpu)?;
        let level = SpreadQueue { sent: queue.taken, ..queue };
        let done = map.update(&cpu.to_ne_bytes(), level.as_bytes(), MapFlags::ANY);
        done.doing(|| format!("write {QUEUES}"))
    }

    fn counts_of(&self, cpu: u32) -> Result<SpreadQueue> {
        let found = self.state.map(QUEUES).lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        let value = found.doing(|| format!("read {QUEUES}"))?;
        Ok(value.and_then(|value| SpreadQueue::read_from_bytes(&value).ok()).unwrap_or_default())
    }

    /// CPUs that the active generation leaves no packets to lose their queues.
    pub(crate) fn settle_spread(&self) -> Result<()> {
        let active = self.slots.header(self.active_slot());
        let without = (0..possible_cpus()).filter(|cpu| !has_share(&active, *cpu));
        without.filter(|cpu| self.queue_of(*cpu).is_some()).try_for_each(|cpu| self.end_queue(cpu))
    }

    /// Processors by number that packets shall be spread to and that do not run: their flows go on where they came.
    pub fn spread_offline(&self, spread: &Spread) -> Vec<u16> {
        let named = if spread.queue > 0 { &spread.cpus[..] } else { &[] };
        offline(named, online().as_deref(), possible_cpus())
    }

    /// Once in a while: CPUs that have gone offline lose their queues, and those that are back have them again.
    pub fn follow_cpus(&self) -> Result<()> {
        let active = self.slots.header(self.active_slot());
        let mut cpus = if active.spread_limit > 0 { active.spread.to_vec() } else { vec![] };
        cpus.sort_unstable();
        cpus.dedup();
        let away = offline(&cpus, online().as_deref(), possible_cpus());
        for cpu in cpus {
            match (self.queue_of(cpu.into()).is_some(), away.contains(&cpu)) {
                (true, true) => self.end_queue(cpu.into())?,
                (false, false) => self.begin_queue(cpu, (active.spread_limit + SPARE).to_ne_bytes(), true)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// CPUs that packets are spread to, and what they had of them.
    pub fn spread(&self) -> Result<Vec<SpreadCpu>> {
        let active = self.slots.header(self.active_slot());
        let of = |cpu: u32| {
            let queue = self.counts_of(cpu)?;
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
        assert_eq!(listed("0-1,4,6-7\n"), [0, 1, 4, 6, 7]);
        assert!(listed("").is_empty());
        assert!(online().is_some());
    }

    /// What this machine has not at all the kernel refuses by itself.
    #[test]
    fn cpus_that_do_not_run_are_told_from_those_that_are_not_there() {
        assert_eq!(offline(&[0, 2, 3, 9], Some(&[0, 1, 3]), 4), [2]);
        assert!(offline(&[0, 2, 3, 9], None, 4).is_empty());
    }

    #[test]
    fn shares_go_round_the_cpus() {
        let spread = Spread { cpus: vec![3, 5], queue: 512 };
        assert_eq!(shares(&spread)[..4], [3, 5, 3, 5]);
        assert!(shares(&Spread::default()).iter().all(|cpu| *cpu == 0));
        assert!(!cpus_of(&Spread { cpus: vec![], queue: 1 }).is_empty());
    }
}
