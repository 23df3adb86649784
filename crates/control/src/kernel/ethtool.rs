//! The two things that only the ethtool ioctl answers here: a device's driver, and generic receive offload.
//!
//! sysfs would name the driver too, but shows the devices of the namespace it was mounted in, which is not the
//! daemon's when it runs under `nsenter --net`.
#![allow(unsafe_code, reason = "ioctl(SIOCETHTOOL) takes a structure with a raw pointer")]

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_drvinfo` in words: cmd, then driver[32], then fields nobody here reads.
const DRVINFO_WORDS: usize = 49;

/// Name of the driver; Err where the device has none.
pub fn driver(device: &str) -> io::Result<String> {
    let mut info = [0u32; DRVINFO_WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    ethtool(device, &mut info)?;
    let bytes: Vec<u8> =
        info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|b| *b != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
    // word) makes the kernel read and write: ethtool_drvinfo is DRVINFO_WORDS long, ethtool_value two words.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
