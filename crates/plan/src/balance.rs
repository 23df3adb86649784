//! Which receiver a packet goes to: sequences that are walked packet by packet, tables that are entered by a hash.

/// Positions of a table that is entered by a hash: a prime number, so that every step visits all of them (Maglev, NSDI
/// 2016, section 3.4). Sequences are at most as long.
pub const POSITIONS: usize = 4093;

/// Smooth weighted round robin: which member each packet of a round goes to; members without weight are left out.
///
/// Equal weights give every member one packet a round. A sum of weights above [`POSITIONS`] is scaled down; no weight becomes 0.
pub fn sequence(weights: &[u32]) -> Vec<u16> {
    let weights = reduced(weights);
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credit = vec![0i64; weights.len()];
    let mut sequence = Vec::with_capacity(total as usize);
    for _ in 0..total {
        for (credit, weight) in credit.iter_mut().zip(&weights) {
            *credit += i64::from(*weight);
        }
        // the first of the largest: the order is that of the list
        let Some(next) = (0..credit.len()).rev().max_by_key(|index| credit[*index]) else { break };
        credit[next] -= total;
        sequence.push(next as u16);
    }
    sequence
}

fn reduced(weights: &[u32]) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, *weight)).max(1);
    let weights: Vec<u32> = weights.iter().map(|weight| weight / divisor).collect();
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if total <= POSITIONS as u64 {
        return weights;
    }
    let members = weights.iter().filter(|weight| **weight > 0).count() as u64;
    let room = (POSITIONS as u64).saturating_sub(members);
    let scale = |weight: u32| (u64::from(weight) * room / total) as u32 + 1;
    weights.into_iter().map(|weight| if weight == 0 { 0 } else { scale(weight) }).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A Maglev table: members take turns in choosing positions in an order of their own, so that when one leaves, few
/// positions change hands between the others. `names` tell members apart and decide their order.
pub fn maglev(names: &[String], weights: &[u32]) -> Vec<u16> {
    let most = weights.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return vec![];
    }
    let size = POSITIONS as u64;
    let mut orders: Vec<(u64, u64)> = names
        .iter()
        .map(|name| (hash(name.as_bytes(), 1) % size, hash(name.as_bytes(), 2) % (size - 1) + 1))
        .collect();
    // Who chooses first must not depend on the order of the configuration.
    let mut order: Vec<usize> = (0..names.len()).filter(|member| weights[*member] > 0).collect();
    order.sort_by(|a, b| names[*a].cmp(&names[*b]));
    let mut table = vec![u16::MAX; POSITIONS];
    let mut credit = vec![0u64; names.len()];
    let mut filled = 0;
    loop {
        for &member in &order {
            credit[member] += u64::from(weights[member]);
            if credit[member] < u64::from(most) {
                continue;
            }
            credit[member] -= u64::from(most);
            let (position, step) = &mut orders[member];
            while table[*position as usize] != u16::MAX {
                *position = (*position + *step) % size;
            }
            table[*position as usize] = member as u16;
            filled += 1;
            if filled == POSITIONS {
                return table;
            }
        }
    }
}

/// A 64-bit hash that is the same everywhere and for ever: tables of several gateways agree.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state ^= state >> 32;
    state = state.wrapping_mul(0xd6e8_feb8_6659_fd93);
    state ^= state >> 32;
    state = state.wrapping_mul(0xd6e8_feb8_6659_fd93);
    state ^ state >> 32
}

/// Where a hash enters a table of `length` positions, without a division.
pub fn position(hash: u64, length: usize) -> usize {
    ((u128::from(hash) * length as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("10.0.{}.{}:514", n / 200, n % 200)).collect()
    }

    fn shares(table: &[u16], members: usize) -> Vec<usize> {
        let mut shares = vec![0; members];
        table.iter().for_each(|member| shares[usize::from(*member)] += 1);
        shares
    }

    #[test]
    fn equal_weights_take_turns_in_order() {
        assert_eq!(sequence(&[5, 5, 5]), [0, 1, 2]);
        assert_eq!(sequence(&[1, 0, 1]), [0, 2]);
        assert!(sequence(&[0, 0]).is_empty() && sequence(&[]).is_empty());
    }

    #[test]
    fn heavier_members_do_not_come_in_bursts() {
        assert_eq!(sequence(&[2, 1]), [0, 1, 0]);
        assert_eq!(sequence(&[3, 1, 1, 1]).windows(2).filter(|pair| pair[0] == pair[1]).count(), 0);
    }

    proptest! {
        #[test]
        fn turns_follow_weights(weights in proptest::collection::vec(0u32..20, 1..40)) {
            let divisor = weights.iter().fold(0, |d, w| gcd(d, *w)).max(1);
            let expected: Vec<usize> = weights.iter().map(|w| (w / divisor) as usize).collect();
            prop_assert_eq!(shares(&sequence(&weights), weights.len()), expected);
        }

        #[test]
        fn large_weights_fit_and_leave_nobody_out(weights in proptest::collection::vec(1u32..100_000, 2..200)) {
            let sequence = sequence(&weights);
            prop_assert!(sequence.len() <= POSITIONS);
            prop_assert!(shares(&sequence, weights.len()).iter().all(|share| *share > 0));
        }

        #[test]
        fn maglev_is_full_and_even(count in 1usize..60) {
            let table = maglev(&names(count), &vec![1; count]);
            prop_assert_eq!(table.len(), POSITIONS);
            let shares = shares(&table, count);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", shares);
        }

        #[test]
        fn maglev_follows_weights(weights in proptest::collection::vec(1u32..10, 2..20)) {
            let shares = shares(&maglev(&names(weights.len()), &weights), weights.len());
            let total: u32 = weights.iter().sum();
            for (share, weight) in shares.iter().zip(&weights) {
                let wanted = POSITIONS as f64 * f64::from(*weight) / f64::from(total);
                prop_assert!((*share as f64 - wanted).abs() <= 12.0, "{} of {}", share, wanted);
            }
        }

        /// One of n leaves: its positions go to others, and of theirs at most a few percent change hands.
        #[test]
        fn few_positions_change_hands(count in 3usize..40, gone in 0usize..40) {
            let gone = gone % count;
            let all = maglev(&names(count), &vec![1; count]);
            let mut weights = vec![1; count];
            weights[gone] = 0;
            let rest = maglev(&names(count), &weights);
            let moved = all.iter().zip(&rest).filter(|(a, b)| usize::from(**a) != gone && a != b).count();
            prop_assert!(!rest.contains(&(gone as u16)));
            prop_assert!(moved * 100 <= POSITIONS * 12, "{moved} of {POSITIONS} moved");
        }

        #[test]
        fn the_order_of_the_configuration_does_not_matter(count in 2usize..20) {
            let forward = names(count);
            let backward: Vec<String> = forward.iter().rev().cloned().collect();
            let a = maglev(&forward, &vec![1; count]);
            let b = maglev(&backward, &vec![1; count]);
            prop_assert!(a.iter().zip(&b).all(|(a, b)| forward[usize::from(*a)] == backward[usize::from(*b)]));
        }

        #[test]
        fn positions_are_inside(hash: u64, length in 1usize..5000) {
            prop_assert!(position(hash, length) < length);
        }
    }
}
