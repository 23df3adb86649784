//! Which flow and lap comes next, as the program counts them.

use super::frame::stride;

/// (flow, lap) of each frame, in the order in which the generator sends them.
#[derive(Debug, Clone)]
pub struct Numbers {
    flows: u32,
    stride: u32,
    flow: u32,
    lap: u32,
}

impl Numbers {
    /// Without end; `flows` must not be 0.
    pub fn new(flows: u32) -> Numbers {
        Numbers { flows, stride: stride(flows), flow: 0, lap: 0 }
    }
}

impl Iterator for Numbers {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let now = (self.flow, self.lap);
        self.flow += self.stride;
        if self.flow >= self.flows {
            self.flow -= self.flows;
        }
        if self.flow == 0 {
            self.lap = self.lap.wrapping_add(1);
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_comes_once_a_lap() {
        let mut seen: Vec<_> = Numbers::new(10).take(20).collect();
        assert!(seen[..10].iter().all(|(_, lap)| *lap == 0) && seen[10..].iter().all(|(_, lap)| *lap == 1));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 20);
        assert_eq!(Numbers::new(1).take(3).collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2)]);
    }
}
