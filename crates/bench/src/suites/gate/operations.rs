//! Giving, finding and revoking grants beside the least of the same kind: a list of keys into and out of a kernel map by one
//! call, and a lookup in a table of this process.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use sluice_dataplane::{GrantKey, GrantSpec, Pick};
use sluice_libbpf::map::NewMap;

use super::bed::{GateBed, bare_key, specs};
use crate::generator::packets::Family;
use crate::method::result::{Better, Figure};
use crate::method::rounds::interleave;

pub const COUNTS: [usize; 2] = [5_000, 100_000];
const KINDS: [&str; 3] = ["given", "found", "revoked"];

pub fn names(count: usize) -> [String; 3] {
    KINDS.map(|kind| format!("grants {kind} {count}"))
}

/// What each operation is compared with, in the order of `KINDS`.
const FLOORS: [&str; 3] = ["BPF_MAP_UPDATE_BATCH", "HashMap get", "BPF_MAP_DELETE_BATCH"];

/// A HASH as the kernel makes it by default, with keys as a grant's, and a table as the process that gives them has.
struct Bare {
    map: MapHandle,
    keys: Vec<u8>,
    values: Vec<u8>,
    table: HashMap<GrantKey, u32>,
}

impl Bare {
    fn new(specs: &[GrantSpec]) -> Result<Bare> {
        let count = specs.len();
        let bare = NewMap {
            kind: MapType::Hash,
            name: "bare",
            key_size: 8,
            value_size: 4,
            max_entries: count as u32,
        };
        let map = bare.create()?;
        let keys = (0..count).flat_map(bare_key).collect();
        let table = specs.iter().enumerate().map(|(n, spec)| (spec.key, n as u32)).collect();
        Ok(Bare { map, keys, values: vec![1; 4 * count], table })
    }

    fn run(&self, specs: &[GrantSpec]) -> Result<[f64; 3]> {
        let count = specs.len();
        let mut times = [0.0; 3];
        let begun = Instant::now();
        self.map.update_batch(&self.keys, &self.values, count as u32, MapFlags::ANY, MapFlags::ANY)?;
        times[0] = per_operation(begun, count);
        let begun = Instant::now();
        for spec in specs {
            ensure!(self.table.get(&spec.key).is_some_and(|at| (*at as usize) < count), "a key has vanished");
        }
        times[1] = per_operation(begun, count);
        let begun = Instant::now();
        self.map.delete_batch(&self.keys, count as u32, MapFlags::ANY, MapFlags::ANY)?;
        times[2] = per_operation(begun, count);
        Ok(times)
    }
}

fn per_operation(begun: Instant, count: usize) -> f64 {
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn grants(bed: &GateBed, specs: &[GrantSpec], now: u64) -> Result<[f64; 3]> {
    let grants = bed.sluice.dataplane.grants();
    let mut times = [0.0; 3];
    let begun = Instant::now();
    grants.give(specs, now)??;
    times[0] = per_operation(begun, specs.len());
    let begun = Instant::now();
    for spec in specs {
        ensure!(grants.find(&spec.key, now).is_some(), "a grant has vanished");
    }
    times[1] = per_operation(begun, specs.len());
    let begun = Instant::now();
    ensure!(grants.revoke(&Pick::All, now)?.len() == specs.len(), "not all grants were revoked");
    times[2] = per_operation(begun, specs.len());
    Ok(times)
}

pub fn figures(count: usize, rounds: usize) -> Result<Vec<Figure>> {
    let bed = GateBed::with_room(Family::V4, 0, count, 16)?;
    let specs = specs(Family::V4, count);
    let (bare, now) = ([Bare::new(&specs)?, Bare::new(&specs)?], bed.sluice.dataplane.now_jiffies()?);
    let mut samples: [[Vec<f64>; 3]; 3] = Default::default();
    grants(&bed, &specs, now)?;
    bare.iter().try_for_each(|bare| bare.run(&specs).map(drop))?;
    interleave(3, rounds, |contestant, _| {
        let times =
            if contestant == 0 { grants(&bed, &specs, now)? } else { bare[contestant - 1].run(&specs)? };
        samples[contestant].iter_mut().zip(times).for_each(|(all, one)| all.push(one));
        Ok(times[0])
    })?;
    let [ours, bare, again] = samples;
    let beside_bare = |(kind, (name, ours)): (usize, (String, Vec<f64>))| {
        let figure = Figure::new(name, "ns/operation", Better::Lower, ours);
        figure.against(FLOORS[kind], &bare[kind]).same(&bare[kind], &again[kind])
    };
    let figures = names(count).into_iter().zip(ours).enumerate();
    Ok(figures.map(beside_bare).collect())
}
