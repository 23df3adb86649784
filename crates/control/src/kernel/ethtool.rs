//! What only the ethtool ioctl answers here: a device's driver, its own statistics, and what it offloads.
//!
//! sysfs would name the driver too, but shows the devices of the namespace it was mounted in, which is not the
//! daemon's when it runs under `nsenter --net`.
#![allow(unsafe_code, reason = "ioctl(SIOCETHTOOL) takes a structure with a raw pointer")]

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sluice_plan::Sender;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// String sets: the names of statistics and of features.
const ETH_SS_STATS: u32 = 1;
const ETH_SS_FEATURES: u32 = 4;

/// `struct ethtool_drvinfo` in words: cmd, then driver[32], then fields nobody here reads.
const DRVINFO_WORDS: usize = 49;
/// Where it says how many statistics there are.
const DRVINFO_N_STATS: usize = 45;
/// A statistic's name, in words.
const NAME_WORDS: usize = 8;

/// Name of the driver; Err where the device has none.
pub fn driver(device: &str) -> io::Result<String> {
    let mut info = [0u32; DRVINFO_WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    ethtool(device, &mut info)?;
    Ok(text(&info[1..9]))
}

/// Frames sent for XDP programs of other devices, over all queues: `tx_queue_N_xdp_xmit` (veth), `tx_queue_N_xdp_tx`
/// and `txN_xdp_tx` (virtio_net).
pub const XDP_SENT: [&str; 2] = ["xdp_xmit", "xdp_tx"];
/// Such frames that it had no room for, or no receiver: `tx_queue_N_xdp_xmit_errors` (veth), `tx_queue_N_xdp_tx_drops`.
pub const XDP_REFUSED: [&str; 2] = ["xdp_xmit_errors", "xdp_tx_drops"];

/// A sum over all queues.
pub fn xdp_count(statistics: &[(String, u64)], names: &[&str]) -> u64 {
    statistics.iter().filter(|(name, _)| is_of_a_queue(name, names)).map(|(_, value)| value).sum()
}

/// Of one queue: newer drivers have the sum of all queues besides, under a name without a number (`tx_xdp_tx`).
fn is_of_a_queue(name: &str, names: &[&str]) -> bool {
    let queue = name.strip_prefix("tx_queue_").or_else(|| name.strip_prefix("tx")).unwrap_or_default();
    let Some((number, what)) = queue.split_once('_') else { return false };
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && names.contains(&what)
}

/// What a device leaves beside the frames that it hands on, by features of these names.
const CHECKSUMS: [&str; 3] = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
const TAGS_SENT: [&str; 2] = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];

/// What makes of several packets one, or leaves a checksum to others.
const JOINED: [&str; 8] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-sctp-segmentation",
    "tx-generic-segmentation",
    "tx-checksum-ip-generic",
];

/// Has the kernel cut and complete what it sends by a device before the device gets it.
pub fn send_whole_packets(device: &str) -> io::Result<()> {
    let features = Features::read(device)?;
    let joined = features.numbers(&JOINED);
    if joined.is_empty() { Ok(()) } else { features.switch(device, &joined, false) }
}

/// What a device leaves to the receiver of what it sends.
pub fn sender(device: &str) -> io::Result<Sender> {
    let features = Features::read(device)?;
    let has = |names: &[&str]| !features.numbers(names).is_empty();
    Ok(Sender { checksums_left: has(&CHECKSUMS), tags_beside: has(&TAGS_SENT) })
}

/// What became of features that were to be off.
#[derive(Debug, Default)]
pub struct Switched {
    /// They were on.
    pub off: Vec<String>,
    /// The driver keeps them on.
    pub kept: Vec<String>,
}

/// Switches features off; without a word where the device has no features.
pub fn switch_off(device: &str, names: &[&str]) -> io::Result<Switched> {
    let features = match Features::read(device) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Switched::default()),
        features => features?,
    };
    let on = features.numbers(names);
    if on.is_empty() {
        return Ok(Switched::default());
    }
    features.switch(device, &on, false)?;
    let now = Features::read(device)?;
    let (kept, off): (Vec<_>, Vec<_>) = on.into_iter().partition(|number| now.is_active(*number));
    let named =
        |numbers: Vec<usize>| numbers.into_iter().map(|number| features.names[number].clone()).collect();
    Ok(Switched { off: named(off), kept: named(kept) })
}

/// Switches a feature on.
pub fn switch_on(device: &str, name: &str) -> io::Result<()> {
    let features = Features::read(device)?;
    let number = features.names.iter().position(|known| known == name);
    number.map_or(Ok(()), |number| features.switch(device, &[number], true))
}

/// Features by number: their names, and whether they are on.
struct Features {
    names: Vec<String>,
    /// `struct ethtool_gfeatures`: cmd, blocks, then of each block what is available, requested, active, fixed.
    words: Vec<u32>,
}

impl Features {
    fn read(device: &str) -> io::Result<Features> {
        let mut info = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
        ethtool(device, &mut info)?;
        let count = info[4] as usize;
        let mut names = vec![0u32; 3 + count * NAME_WORDS];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        ethtool(device, &mut names)?;
        let blocks = count.div_ceil(32);
        let mut words = vec![0u32; 2 + blocks * 4];
        words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        ethtool(device, &mut words)?;
        Ok(Features { names: names[3..].chunks(NAME_WORDS).map(text).collect(), words })
    }

    fn is_active(&self, number: usize) -> bool {
        self.words.get(2 + number / 32 * 4 + 2).is_some_and(|active| active & 1 << (number % 32) != 0)
    }

    /// Those of these names that are on.
    fn numbers(&self, wanted: &[&str]) -> Vec<usize> {
        let is_wanted = |number: &usize| wanted.contains(&self.names[*number].as_str());
        (0..self.names.len()).filter(is_wanted).filter(|number| self.is_active(*number)).collect()
    }

    fn switch(&self, device: &str, numbers: &[usize], on: bool) -> io::Result<()> {
        let blocks = self.names.len().div_ceil(32);
        let mut words = vec![0u32; 2 + blocks * 2];
        words[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
        for number in numbers {
            let (block, bit) = (2 + number / 32 * 2, 1 << (number % 32));
            words[block] |= bit;
            words[block + 1] |= if on { bit } else { 0 };
        }
        ethtool(device, &mut words)
    }
}

/// The driver's own statistics by name.
pub fn statistics(device: &str) -> io::Result<Vec<(String, u64)>> {
    let mut info = [0u32; DRVINFO_WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    ethtool(device, &mut info)?;
    let count = info[DRVINFO_N_STATS] as usize;
    // A driver may add queues between the calls: it then writes no more than it was told there is room for, and the
    // names tell what is missing.
    let mut names = vec![0u32; 3 + count * NAME_WORDS];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32]);
    let mut values = vec![0u32; 2 + count * 2];
    values[..2].copy_from_slice(&[ETHTOOL_GSTATS, count as u32]);
    if count > 0 {
        ethtool(device, &mut names)?;
        ethtool(device, &mut values)?;
    }
    let value = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
    Ok(names[3..].chunks(NAME_WORDS).map(text).zip(values[2..].chunks(2).map(value)).collect())
}

/// A string that ends with a zero byte or its room.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Frames that XDP redirects into a veth are received only by a peer that polls, which this turns on.
pub fn enable_gro(device: &str) -> io::Result<()> {
    ethtool(device, &mut [ETHTOOL_SGRO, 1])
}

fn ethtool(device: &str, words: &mut [u32]) -> io::Result<()> {
    let name = device.as_bytes();
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request points to `words`, which outlives the call and is as large as its command (its first
    // word) makes the kernel read and write: ethtool_drvinfo is DRVINFO_WORDS long,
    // ethtool_value two words, ethtool_sset_info with one bit set has one word behind it, and names, values and blocks of
    // features have the room that their third or second word claims.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_queues_have_sent_is_counted_once() {
        let counted = ["tx_queue_0_xdp_xmit", "tx_queue_12_xdp_tx", "tx0_xdp_tx", "tx11_xdp_tx"];
        assert!(counted.iter().all(|name| is_of_a_queue(name, &XDP_SENT)), "{counted:?}");
        let others =
            ["tx_xdp_tx", "tx_queue_0_xdp_xmit_errors", "rx0_xdp_tx", "tx0_xdp_tx_drops", "tx_packets"];
        assert!(!others.iter().any(|name| is_of_a_queue(name, &XDP_SENT)), "{others:?}");
    }
}
