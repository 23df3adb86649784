//! The header's macros with arguments, as functions.

use crate::EPOCH_MASK;
use crate::programs::Program;
use crate::stages::{Reason, Stage};
use crate::{GRANT_INDEX_BITS, GRANT_INDEX_MASK, MAX_GENERATIONS, MAX_VARIANTS, MAX_ZONES};

/// `timeout_s` of service terms and records whose sessions do not end by being idle.
pub const TIMEOUT_NEVER_S: u16 = u16::MAX;

/// `deadline` of a grant without one.
pub const GRANT_FOREVER: u64 = u64::MAX;

/// Handle of the grant that a record is given away to next (see gate.h); never 0.
pub const fn next_handle(index: u32, issued: u32) -> u32 {
    let reuse = (issued >> GRANT_INDEX_BITS).wrapping_add(1);
    (reuse << GRANT_INDEX_BITS) | (index & GRANT_INDEX_MASK)
}

/// What a key of the index of grants is for, beside its address (`GRANT_WHAT`).
pub const fn grant_what(service: u16, family: u8, length: u8) -> u32 {
    service as u32 | (family as u32) << 16 | (length as u32) << 24
}

/// Places in each of the PROG_ARRAYs (`PROGRAM_SLOTS`).
pub const PROGRAM_SLOTS: usize = MAX_GENERATIONS * MAX_VARIANTS * Program::ALL.len();

/// Slot of a program in the PROG_ARRAYs (`PROGRAM_SLOT`).
pub const fn program_slot(slot: u32, variant: u32, program: Program) -> u32 {
    ((slot as usize * MAX_VARIANTS + variant as usize) * Program::ALL.len() + program as usize) as u32
}

/// Slot of the unit table for a device and the tags of its frames (`UNIT_SLOT`).
pub const fn unit_slot(ifindex: u32, vlan: u32, multiplier: u32, shift: u32) -> usize {
    let mixed = ifindex.wrapping_mul(0x9e37_79b1).wrapping_add(vlan.wrapping_mul(0x85eb_ca6b));
    (mixed.wrapping_mul(multiplier) >> shift) as usize
}

/// Slot of a listener in the table of fan-out; see fanout.h.
pub fn fanout_slot(listener: &crate::FanoutListener, multiplier: u32) -> usize {
    let x = listener.be_addr.iter().fold(0, |x, word| x ^ word);
    let port = u32::from(listener.be_port).wrapping_mul(0x85eb_ca6b);
    let mixed = x.wrapping_mul(0x9e37_79b1).wrapping_add(port);
    (mixed.wrapping_mul(multiplier) >> crate::FANOUT_SLOT_SHIFT) as usize
}

/// Bit of a screen in a unit's `screens` (`SCREEN_BIT`); none for screens that are switched on by their limit.
pub fn screen_bit(reason: Reason) -> u32 {
    match reason.stage() {
        Stage::Screen => 1 << (reason as u32 - Reason::Land as u32),
        _ => 0,
    }
}

/// Index of a zone pair in `zone_pairs`.
pub const fn zone_pair_index(from: u16, to: u16) -> usize {
    from as usize * MAX_ZONES + to as usize
}

/// Which generation's programs run (`ACTIVE_SLOT`).
pub const fn active_slot(word: u32) -> u32 {
    word & 1
}

/// Lines of another stamp are re-evaluated (`ACTIVE_STAMP`).
pub const fn active_stamp(word: u32) -> u16 {
    (word >> 16) as u16
}

/// Generation of the routes (`ACTIVE_ROUTES`).
pub const fn active_routes(word: u32) -> u16 {
    (word >> 1) as u16 & EPOCH_MASK as u16
}

/// What commits alone raise (`ACTIVE_EPOCH`).
pub const fn active_epoch(word: u32) -> u16 {
    active_stamp(word).wrapping_sub(active_routes(word)) & EPOCH_MASK as u16
}

/// The word `active` behind this one, where a commit has put this slot in force.
pub const fn active_after_commit(word: u32, slot: u32) -> u32 {
    active_word(slot, active_stamp(word).wrapping_add(1), active_routes(word))
}

/// The word `active` behind this one, where routes or what they depend on have changed.
pub const fn active_after_routes(word: u32) -> u32 {
    active_word(active_slot(word), active_stamp(word).wrapping_add(1), active_routes(word).wrapping_add(1))
}

const fn active_word(slot: u32, stamp: u16, routes: u16) -> u32 {
    (stamp as u32) << 16 | ((routes & EPOCH_MASK as u16) as u32) << 1 | (slot & 1)
}
