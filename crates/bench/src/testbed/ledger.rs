//! What the program under test was given.

/// By index in the ring; kept by whoever sends.
#[derive(Debug, Default, Clone)]
pub struct Ledger {
    ring: u64,
    /// Index of the first packet, and number of packets, of every run.
    runs: Vec<(u64, u64)>,
}

impl Ledger {
    pub fn of_ring(entries: u32) -> Ledger {
        Ledger { ring: entries.into(), runs: vec![] }
    }

    pub fn record(&mut self, position: u32, packets: u64) {
        self.runs.push((position.into(), packets));
    }

    /// How often the packet at an index of the ring was sent.
    pub fn of(&self, index: usize) -> u64 {
        let once = |(start, packets): &(u64, u64)| {
            let behind = (index as u64 + self.ring - start) % self.ring;
            packets / self.ring + u64::from(behind < packets % self.ring)
        };
        self.runs.iter().map(once).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_counts_every_place_of_every_run() {
        let mut ledger = Ledger::of_ring(7);
        let mut counted = [0; 7];
        let mut at = 0;
        for packets in [3, 20, 1, 7, 12] {
            ledger.record(at, packets);
            for _ in 0..packets {
                counted[at as usize] += 1;
                at = (at + 1) % 7;
            }
        }
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|index| ledger.of(index)), counted);
    }
}
