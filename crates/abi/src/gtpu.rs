//! The arithmetic of bpf/abi/gtpu.h: where a line stands, what is decided of a session, and the policer.

use crate::{GTPU_AHEAD_SHIFT, GTPU_COST_SHIFT, GTPU_TICK_SHIFT};

/// Quota of a line that has none.
pub const GTPU_FOREVER: u64 = u64::MAX;

/// Slot of a line's key (`GTPU_SLOT`).
pub const fn gtpu_slot(key: u64, shift: u32) -> u32 {
    (key as u32 ^ (key >> 32) as u32).wrapping_mul(0x9e37_79b1) >> shift
}

/// What becomes of a session's packets (`GTPU_DECISION`).
pub const fn gtpu_decision(teid: u32, rules: u32, peer: u32) -> u64 {
    (teid as u64) << 32 | (rules as u64 & 0xffff) << 16 | (peer as u64 & 0xffff)
}

/// TEID, set of rules and peer of a decision.
pub const fn gtpu_decided(decision: u64) -> (u32, u32, u32) {
    ((decision >> 32) as u32, decision as u32 >> 16, decision as u32 & 0xffff)
}

/// Where the state of a session's flows stands (`GTPU_BLOCK`).
pub const fn gtpu_block(kind: u32, number: u32) -> u32 {
    number << 3 | kind
}

/// Flows that a block has room for (`GTPU_BLOCK_ROOM`).
pub const fn gtpu_block_room(block: u32) -> u32 {
    2 << (block & 7)
}

/// Entry of a block's flow (`GTPU_BLOCK_FLOW`).
pub const fn gtpu_block_flow(block: u32, flow: u32) -> u32 {
    (block >> 3).wrapping_mul(gtpu_block_room(block)).wrapping_add(flow & (gtpu_block_room(block) - 1))
}

const NS_PER_S: u64 = 1_000_000_000;

/// What a byte costs at a maximum bit rate, rounded up, so that no more passes. 0 bit/s is no rate: see the gates.
pub const fn cost_of_rate(bits_per_second: u64) -> u64 {
    let ticks_a_second = (NS_PER_S as u128) << (GTPU_TICK_SHIFT + GTPU_COST_SHIFT);
    if bits_per_second == 0 { 0 } else { (8 * ticks_a_second).div_ceil(bits_per_second as u128) as u64 }
}

/// The maximum bit rate of such a cost.
pub const fn rate_of_cost(cost: u64) -> u64 {
    let ticks_a_second = (NS_PER_S as u128) << (GTPU_TICK_SHIFT + GTPU_COST_SHIFT);
    if cost == 0 { 0 } else { (8 * ticks_a_second / cost as u128) as u64 }
}

/// Ticks by which packets may come early, so that so many bytes may come at once.
pub const fn tolerance_of_burst(bytes: u64, cost: u64) -> u64 {
    let ticks = (bytes as u128 * cost as u128) >> GTPU_COST_SHIFT;
    // a quarter of what a clock can tell
    if ticks > 1 << 62 { 1 << 62 } else { ticks as u64 }
}

/// The generic cell rate algorithm (ITU-T I.371 A, virtual scheduling): the arrival that is expected next, if a packet of
/// so many bytes conforms at `now`, in ticks.
pub const fn conforms(arrival: u64, now: u64, bytes: u64, cost: u64, tolerance: u64) -> Option<u64> {
    let due = if arrival.wrapping_sub(now) <= tolerance + (1 << GTPU_AHEAD_SHIFT) { arrival } else { now };
    let next = due.wrapping_add((bytes * cost) >> GTPU_COST_SHIFT);
    if next.wrapping_sub(now) > tolerance { None } else { Some(next) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{C_GTPU_BLOCK_FLOW_3_77, C_GTPU_DECISION_1_2_3, C_GTPU_SLOT_9};

    #[test]
    fn functions_are_the_macros() {
        assert_eq!(gtpu_slot(0x1234_5678_9abc_def0, 11), C_GTPU_SLOT_9);
        assert_eq!(gtpu_decision(1, 2, 3) >> 16, u64::from(C_GTPU_DECISION_1_2_3));
        assert_eq!(gtpu_block_flow(gtpu_block(3, 77), 21), C_GTPU_BLOCK_FLOW_3_77);
        assert_eq!(gtpu_block_flow(gtpu_block(3, 77), 21), 77 * 16 + 5);
        assert_eq!(gtpu_decided(gtpu_decision(0xffff_fffe, 0xabcd, 0xffff)), (0xffff_fffe, 0xabcd, 0xffff));
    }

    /// However long nothing came, and after whatever rate; clocks of CPUs may be read one after the other.
    #[test]
    fn what_has_passed_does_not_come_again() {
        let cost = cost_of_rate(64_000);
        let tolerance = tolerance_of_burst(15_000, cost);
        let years = |years: u64| (years * 365 * 86_400 * NS_PER_S) << GTPU_TICK_SHIFT;
        for now in (0..6).map(|half| years(half) / 2).chain([1 << 63, u64::MAX]) {
            let next = conforms(0, now, 1500, cost, tolerance);
            assert!(next.is_some_and(|next| next.wrapping_sub(now) <= tolerance), "{now:#x}: {next:?}");
        }
        // a second's worth of bytes is still to come of a full bucket
        let (now, full) = (years(1), years(1) + tolerance);
        assert_eq!([0, 1000].map(|late| conforms(full, now - late, 40, cost, tolerance)), [None; 2]);
        // of 64 kb/s with bursts of a megabyte
        let debt = tolerance_of_burst(1_000_000, cost);
        assert!(conforms(now + debt, now, 1500, cost_of_rate(50_000_000), tolerance).is_some());
    }

    /// 64 kb/s to 40 Gb/s in virtual time: what passes of twice the rate is the rate, within 2 %.
    #[test]
    fn what_passes_is_the_rate() {
        for rate in [64_000, 1_000_000, 100_000_000, 10_000_000_000, 40_000_000_000] {
            for bytes in [40, 576, 1500] {
                let cost = cost_of_rate(rate);
                let tolerance = tolerance_of_burst(2 * 1500, cost);
                let between = ((8 * bytes * NS_PER_S) << GTPU_TICK_SHIFT) / (2 * rate);
                let (mut arrival, mut passed, packets) = (0, 0, 200_000);
                for packet in 0..packets {
                    if let Some(next) = conforms(arrival, packet * between, bytes, cost, tolerance) {
                        (arrival, passed) = (next, passed + bytes);
                    }
                }
                let seconds = (packets * between) as f64 / (NS_PER_S << GTPU_TICK_SHIFT) as f64;
                let measured = passed as f64 * 8.0 / seconds;
                assert!(
                    (measured / rate as f64 - 1.0).abs() < 0.02,
                    "{rate} bit/s of {bytes} bytes: {measured}"
                );
            }
        }
        let rates = [64_000, 999_999_937, 40_000_000_000];
        assert!(
            rates.iter().all(|rate| rate_of_cost(cost_of_rate(*rate)).abs_diff(*rate) <= rate / 1_000_000)
        );
    }
}
