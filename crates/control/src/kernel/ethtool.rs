//! What only the ethtool ioctl answers here: a device's driver, its own statistics, and generic receive offload.
//!
//! sysfs would name the driver too, but shows the devices of the namespace it was mounted in, which is not the
//! daemon's when it runs under `nsenter --net`.
#![allow(unsafe_code, reason = "ioctl(SIOCETHTOOL) takes a structure with a raw pointer")]

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_SGRO: u32 = 0x2c;
/// String set of the statistics' names.
const ETH_SS_STATS: u32 = 1;

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
pub fn xdp_sent(device: &str) -> io::Result<u64> {
    let counts =
        |name: &str| name.starts_with("tx") && (name.ends_with("_xdp_xmit") || name.ends_with("_xdp_tx"));
    Ok(statistics(device)?.iter().filter(|(name, _)| counts(name)).map(|(_, value)| value).sum())
}

/// The driver's own statistics by name.
fn statistics(device: &str) -> io::Result<Vec<(String, u64)>> {
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
    // ethtool_value two words, and names and values have the room that their third or second word claims.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
