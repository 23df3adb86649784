//! Giving, finding and revoking grants beside the bare map operations on as many keys.

use std::time::Instant;

use anyhow::{Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use sluice_dataplane::{GrantSpec, Pick};

use super::bed::{GateBed, bare_key, specs};
use crate::packets::Family;
use crate::result::{Better, Figure};
use crate::rounds::interleave;

pub const COUNTS: [usize; 2] = [5_000, 100_000];
const KINDS: [&str; 3] = ["given", "found", "revoked"];

pub fn names(count: usize) -> [String; 3] {
    KINDS.map(|kind| format!("grants {kind} {count}"))
}

/// A HASH as the kernel makes it by default, keys as a grant's, and one syscall an operation.
struct Bare {
    map: MapHandle,
    keys: Vec<Vec<u8>>,
}

impl Bare {
    fn new(count: usize) -> Result<Bare> {
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Hash, Some("bare"), 8, 4, count as u32, &options)?;
        Ok(Bare { map, keys: (0..count).map(bare_key).collect() })
    }

    fn run(&self) -> Result<[f64; 3]> {
        let mut times = [0.0; 3];
        let begun = Instant::now();
        for key in &self.keys {
            self.map.update(key, &1u32.to_ne_bytes(), MapFlags::ANY)?;
        }
        times[0] = per_operation(begun, self.keys.len());
        let begun = Instant::now();
        for key in &self.keys {
            ensure!(self.map.lookup(key, MapFlags::ANY)?.is_some(), "a key has vanished");
        }
        times[1] = per_operation(begun, self.keys.len());
        let begun = Instant::now();
        self.keys.iter().try_for_each(|key| self.map.delete(key))?;
        times[2] = per_operation(begun, self.keys.len());
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
    let (bare, now) = ([Bare::new(count)?, Bare::new(count)?], bed.sluice.dataplane.now_jiffies()?);
    let specs = specs(Family::V4, count);
    let mut samples: [[Vec<f64>; 3]; 3] = Default::default();
    grants(&bed, &specs, now)?;
    bare.iter().try_for_each(|bare| bare.run().map(drop))?;
    interleave(3, rounds, |contestant, _| {
        let times = if contestant == 0 { grants(&bed, &specs, now)? } else { bare[contestant - 1].run()? };
        samples[contestant].iter_mut().zip(times).for_each(|(all, one)| all.push(one));
        Ok(times[0])
    })?;
    let [ours, bare, again] = samples;
    let beside_bare = |(kind, (name, ours)): (usize, (String, Vec<f64>))| {
        let figure = Figure::new(name, "ns/operation", Better::Lower, ours);
        figure.against("the bare map operation", &bare[kind]).same(&bare[kind], &again[kind])
    };
    let figures = names(count).into_iter().zip(ours).enumerate();
    Ok(figures.map(beside_bare).collect())
}
