//! One association to several destinations. Routers on a link protect OSPFv3 (RFC 4552 sections 7 and 10) and PIM (RFC 5796
//! section 6) with one key and one SPI for all they send, to groups and to each neighbour: one counter, whose packets are
//! divided among destinations. Followed by destination, each would seem to lose what went to the others.

use std::collections::HashMap;

use crate::observation::{ChannelKey, Observation};

use super::WINDOW;
use super::memory::Words;
use super::state::{STARTED, distance};
use super::table::Channels;

/// Entries of each kind; beyond that all are learned anew.
const LIMIT: usize = 1 << 16;
/// The next packet to another destination may be this far ahead.
const NEAR: i64 = 64;

#[derive(Debug, Default)]
pub struct Shared {
    /// A channel of each sender and SPI, with its key: places are used again.
    senders: HashMap<ChannelKey, (u32, ChannelKey), Words>,
    /// Keys whose packets belong to another destination's channel.
    others: HashMap<ChannelKey, (u32, ChannelKey), Words>,
}

impl Channels {
    /// The channel whose counter a packet to a new destination continues.
    pub(super) fn shared_with(&mut self, observation: &Observation) -> Option<u32> {
        let key = observation.key;
        if !key.may_share_counter() {
            return None;
        }
        let is_there = |(at, of): &&(u32, ChannelKey)| {
            self.hot.get(*at as usize).is_some_and(|hot| hot.key == *of && hot.flags & STARTED != 0)
        };
        if let Some((at, _)) = self.shared.others.get(&key).filter(is_there) {
            return Some(*at);
        }
        let (at, of) = *self.shared.senders.get(&key.sender()).filter(is_there)?;
        let on_link = key.is_on_link() || of.is_on_link();
        if !on_link || !self.continues(at, observation) {
            return None;
        }
        insert(&mut self.shared.others, key, (at, of));
        Some(at)
    }

    /// Whether a number is the next, or nearly, of a channel, or one that is missing there.
    fn continues(&self, at: u32, observation: &Observation) -> bool {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let away = distance(hot.highest, observation.sequence, observation.bits);
        let number = hot.highest.wrapping_add_signed(away);
        let is_missing = || {
            away.unsigned_abs() < WINDOW && number >= cold.first && number <= hot.highest && !hot.has(number)
        };
        cold.bits == observation.bits && ((1..=NEAR).contains(&away) || is_missing())
    }

    /// Remembers a new channel as one that others may share.
    pub(super) fn may_share(&mut self, at: u32) {
        let key = self.hot[at as usize].key;
        if !key.may_share_counter() {
            return;
        }
        let known = self.shared.senders.get(&key.sender());
        // A group's channel stays the one that others are compared with.
        let stays = known.is_some_and(|(at, of)| of.is_multicast() && self.hot[*at as usize].key == *of);
        if !stays {
            insert(&mut self.shared.senders, key.sender(), (at, key));
        }
    }
}

fn insert<T>(map: &mut HashMap<ChannelKey, T, Words>, key: ChannelKey, value: T) {
    if map.len() >= LIMIT {
        map.clear();
    }
    map.insert(key, value);
}
