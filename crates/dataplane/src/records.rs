//! The flow table of one family through its mappings: records and index. Only the data plane itself changes the index.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};
use sluice_abi::{
    BucketPair, FLOW_LANES, FLOW_LIVE, FlowBucket, FlowKey4, FlowKey6, FlowLine4, FlowLine6, FlowShared,
    FlowState, Watermarks, bucket_pair4, bucket_pair6,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Doing, Result};
use crate::mmap::{Array, array};
use crate::state::State;

/// IPv4 and IPv6 sessions have tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// `inet`
    #[serde(rename = "inet")]
    V4,
    /// `inet6`
    #[serde(rename = "inet6")]
    V6,
}

/// What a line of either family has.
pub(crate) trait Line: FromBytes + IntoBytes + Immutable + Copy + Default {
    type Key: FromBytes + IntoBytes + Immutable + Copy + PartialEq + Default;
    const FAMILY: Family;
    const STATE: usize;
    /// Offset of the session count in `watermarks`.
    const WATERMARK: usize;
    const NAMES: Names;

    fn key(&self) -> &Self::Key;
    fn state(&self) -> &FlowState;
    fn bucket_pair(seed: u64, key: &Self::Key, bucket_mask: u32) -> BucketPair;
}

/// Names of a family's maps.
pub(crate) struct Names {
    buckets: &'static str,
    stash: &'static str,
    lines: &'static str,
    shared: &'static str,
}

impl Line for FlowLine4 {
    type Key = FlowKey4;
    const FAMILY: Family = Family::V4;
    const STATE: usize = offset_of!(FlowLine4, state);
    const WATERMARK: usize = offset_of!(Watermarks, session4);
    const NAMES: Names = Names { buckets: "buckets4", stash: "stash4", lines: "lines4", shared: "shared4" };

    fn key(&self) -> &FlowKey4 {
        &self.key
    }

    fn state(&self) -> &FlowState {
        &self.state
    }

    fn bucket_pair(seed: u64, key: &FlowKey4, bucket_mask: u32) -> BucketPair {
        bucket_pair4(seed, key, bucket_mask)
    }
}

impl Line for FlowLine6 {
    type Key = FlowKey6;
    const FAMILY: Family = Family::V6;
    const STATE: usize = offset_of!(FlowLine6, state);
    const WATERMARK: usize = offset_of!(Watermarks, session6);
    const NAMES: Names = Names { buckets: "buckets6", stash: "stash6", lines: "lines6", shared: "shared6" };

    fn key(&self) -> &FlowKey6 {
        &self.key
    }

    fn state(&self) -> &FlowState {
        &self.state
    }

    fn bucket_pair(seed: u64, key: &FlowKey6, bucket_mask: u32) -> BucketPair {
        bucket_pair6(seed, key, bucket_mask)
    }
}

/// One family's sessions. Session `s` owns lines `2s` and `2s + 1`.
#[derive(Debug)]
pub(crate) struct FlowTable<L> {
    pub lines: Array<L>,
    pub shared: Array<FlowShared>,
    buckets: Array<FlowBucket>,
    stash: MapHandle,
    watermarks: Arc<Array<Watermarks>>,
    capacity: u32,
}

impl<L: Line> FlowTable<L> {
    pub fn open(state: &State, watermarks: &Arc<Array<Watermarks>>, capacity: u32) -> Result<Self> {
        let name = L::NAMES.stash;
        let stash = MapHandle::try_from(state.map(name)).doing(|| format!("duplicate map {name}"))?;
        Ok(FlowTable {
            lines: mapped(state, L::NAMES.lines)?,
            shared: mapped(state, L::NAMES.shared)?,
            buckets: mapped(state, L::NAMES.buckets)?,
            stash,
            watermarks: watermarks.clone(),
            capacity,
        })
    }

    /// Session numbers that were ever in use.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.watermarks.word(0, L::WATERMARK).load(Ordering::Relaxed).min(self.capacity)
    }

    pub fn state(&self, line: u32) -> FlowState {
        self.lines.read_field(line, L::STATE)
    }

    pub fn key(&self, line: u32) -> L::Key {
        self.lines.read_field(line, 0)
    }

    /// Both lines and the shared record of a live session; None when it is not live or changed hands meanwhile.
    pub fn read(&self, number: u32) -> Option<([L; 2], FlowShared)> {
        // Before and after the copy: a record that changes hands loses its life first and then gets another tag.
        let tags = || {
            [2 * number, 2 * number + 1].map(|line| {
                let state = self.state(line);
                (state.flags & FLOW_LIVE != 0).then_some(state.tag)
            })
        };
        let before = tags();
        let lines = [self.lines.read(2 * number), self.lines.read(2 * number + 1)];
        let shared = self.shared.read(number);
        (before.iter().all(Option::is_some) && before == tags()).then_some((lines, shared))
    }

    /// The live line that the index has for a tuple.
    pub fn find(&self, key: &L::Key) -> Result<Option<u32>> {
        let seed = self.watermarks.read(0).seed;
        let pair = L::bucket_pair(seed, key, self.buckets.len() - 1);
        let is_it = |line: &u32| {
            *line < self.lines.len() && self.key(*line) == *key && self.state(*line).flags & FLOW_LIVE != 0
        };
        for bucket in [pair.first, pair.second] {
            let bucket = self.buckets.read(bucket);
            let mut lines = bucket.lines.into_iter().zip(FLOW_LANES);
            let found = lines.find(|(line, lane)| bucket.tags[*lane] == pair.tag && is_it(line));
            if let Some((line, _)) = found {
                return Ok(Some(line));
            }
        }
        let value =
            self.stash.lookup(key.as_bytes(), MapFlags::ANY).doing(|| "look up a stashed flow".to_owned())?;
        Ok(value.and_then(|bytes| u32::read_from_bytes(&bytes).ok()).filter(is_it))
    }
}

pub(crate) fn mapped<T: FromBytes + IntoBytes + Immutable + Copy>(
    state: &State,
    name: &str,
) -> Result<Array<T>> {
    array(state.map(name)).doing(|| format!("map {}", state.pin.join(name).display()))
}

/// Family (4 or 6) and the four words that hold an address in keys: IPv4 in the first, the rest zero.
pub(crate) fn address_words(address: IpAddr) -> (u32, [u32; 4]) {
    match address {
        IpAddr::V4(address) => (4, [u32::from_ne_bytes(address.octets()), 0, 0, 0]),
        IpAddr::V6(address) => (6, v6_words(address)),
    }
}

pub(crate) fn words_address(family: u8, words: [u32; 4]) -> IpAddr {
    if family == 4 { v4(words[0]).into() } else { v6(words).into() }
}

pub(crate) fn v4(be: u32) -> Ipv4Addr {
    Ipv4Addr::from(be.to_ne_bytes())
}

pub(crate) fn v6(be: [u32; 4]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(be.as_bytes());
    Ipv6Addr::from(octets)
}

pub(crate) fn v6_words(address: Ipv6Addr) -> [u32; 4] {
    let octets = address.octets();
    std::array::from_fn(|word| u32::from_ne_bytes(std::array::from_fn(|byte| octets[4 * word + byte])))
}
