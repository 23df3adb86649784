//! Another program's word on the checksums of packets: they go into a capture, and tshark judges it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use sluice_lab::capture::{WRONG_CHECKSUM, tshark};

/// Frames to be judged, each with what to call it.
#[derive(Debug, Default)]
pub struct Judge {
    frames: Vec<(String, Vec<u8>)>,
}

impl Judge {
    /// `name` is what a complaint calls it.
    pub fn add(&mut self, name: impl Into<String>, frame: &[u8]) {
        self.frames.push((name.into(), frame.to_vec()));
    }

    /// Frames added so far.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Without a frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Names of the frames that have a wrong checksum, with what tshark says of them.
    pub fn wrong(&self) -> Result<BTreeMap<String, String>> {
        self.found(WRONG_CHECKSUM)
    }

    /// Names of the frames that a filter of tshark picks, with what it says of them.
    pub fn found(&self, filter: &str) -> Result<BTreeMap<String, String>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("sluice-judge-{}-{number}.pcap", std::process::id()));
        std::fs::write(&file, self.capture()).with_context(|| format!("writing {}", file.display()))?;
        let said = tshark(&file, "frame").and_then(|all| Ok((all, tshark(&file, filter)?)));
        std::fs::remove_file(&file)?;
        let (all, bad) = said?;
        ensure!(all.len() == self.len(), "tshark reads {} of {} frames", all.len(), self.len());
        let name = |number: usize| self.frames[number - 1].0.clone();
        Ok(bad.into_iter().map(|(number, line)| (name(number), line)).collect())
    }

    /// The classic file format, link type Ethernet.
    fn capture(&self) -> Vec<u8> {
        let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat();
        for (number, (_, frame)) in self.frames.iter().enumerate() {
            let length = frame.len() as u32;
            file.extend([number as u32, 0, length, length].map(u32::to_le_bytes).concat());
            file.extend(frame);
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::text::bytes;

    const ETH: &str = "eth(dst=02:00:00:00:00:01, src=02:00:00:00:00:02)";

    /// What to send, and the offset of a checksum in it.
    const PACKETS: [(&str, &str, usize); 9] = [
        ("header", "ip(src=10.0.1.1, dst=10.0.2.2)/udp(sport=5, dport=6)/\"data\"", 24),
        ("udp", "ip(src=10.0.1.1, dst=10.0.2.2)/udp(sport=5, dport=6)/\"data\"", 40),
        ("tcp", "ip(src=10.0.1.1, dst=10.0.2.2)/tcp(sport=5, dport=6, flags=A)/\"data\"", 50),
        ("icmp", "ip(src=10.0.1.1, dst=10.0.2.2)/icmp(type=echo-request, id=5, seq=1)/\"data\"", 36),
        ("udp6", "ip6(src=fd00::1, dst=fd00::2)/udp(sport=5, dport=6)/\"data\"", 60),
        ("tcp6", "ip6(src=fd00::1, dst=fd00::2)/tcp(sport=5, dport=6, flags=A)/\"data\"", 70),
        ("icmp6", "ip6(src=fd00::1, dst=fd00::2)/icmp6(type=echo-request, id=5, seq=1)/\"data\"", 56),
        (
            "error",
            "ip(src=10.0.1.1, dst=10.0.2.2)/icmp(type=unreachable, code=3)\
             /ip(src=10.0.2.2, dst=10.0.1.1)/udp(sport=5, dport=6)/\"data\"",
            36,
        ),
        (
            "quote",
            "ip(src=10.0.1.1, dst=10.0.2.2)/icmp(type=unreachable, code=3)\
             /ip(src=10.0.2.2, dst=10.0.1.1)/udp(sport=5, dport=6)/\"data\"",
            52,
        ),
    ];

    fn frame(packet: &str) -> Vec<u8> {
        bytes(&format!("{ETH}/{packet}")).unwrap()
    }

    #[test]
    fn one_wrong_sum_among_right_ones_is_found() {
        let mut judge = Judge::default();
        for (name, packet, at) in PACKETS {
            let mut bad = frame(packet);
            judge.add(format!("{name}, right"), &bad);
            bad[at] ^= 0x40;
            if name == "quote" {
                // the message's own sum covers the quote, and stays right
                bad[36] ^= 0x40;
                let sum = u16::from_be_bytes([bad[36], bad[37]]);
                assert_ne!(sum, 0);
                let message = [&bad[34..36], &[0, 0], &bad[38..]].concat();
                let sum = sluice_wire::checksum::internet(&message);
                bad[36..38].copy_from_slice(&sum.to_be_bytes());
            }
            judge.add(name, &bad);
        }
        let wrong: Vec<String> = judge.wrong().unwrap().into_keys().collect();
        let mut planted: Vec<String> = PACKETS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        planted.sort();
        assert_eq!(wrong, planted);
    }

    /// The sum of a datagram in pieces is that of the whole; no sum at all is none that is wrong.
    #[test]
    fn fragments_are_judged_together() {
        let ports = "udp(sport=5, dport=6, len=24, csum=";
        let pieces = |id: u8, sum: u16| {
            [
                frame(&format!("ip(src=10.0.1.1, dst=10.0.2.2, id={id}, mf)/{ports}{sum})/\"01234567\"")),
                frame(&format!("ip(src=10.0.1.1, dst=10.0.2.2, id={id}, frag=2, proto=udp)/\"89abcdef\"")),
            ]
        };
        let whole = frame("ip(src=10.0.1.1, dst=10.0.2.2)/udp(sport=5, dport=6)/\"0123456789abcdef\"");
        let right = u16::from_be_bytes([whole[40], whole[41]]);
        let mut judge = Judge::default();
        for (id, sum) in [(1, right), (2, right ^ 1), (3, 0)] {
            pieces(id, sum).iter().for_each(|piece| judge.add(format!("datagram {id}"), piece));
        }
        assert_eq!(judge.wrong().unwrap().into_keys().collect::<Vec<_>>(), ["datagram 2"]);
    }
}
