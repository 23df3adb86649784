//! What becomes of frames that XDP gives to devices, counted at the kernel's tracepoints: see bpf/transmit.h.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use sluice_abi::{TransmitCounters, TransmitDevice};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Doing, Result};
use crate::objects::ObjectKind;
use crate::{Dataplane, counters, links, sys};

/// Pins of a program's link, and the program.
const TRACED: [(&str, &str); 2] = [("devmap_xmit", "xdp_transmit"), ("redirect_err", "xdp_refusal")];

/// Of the programs in force and of those that take over from them.
const MARKS: [u32; 2] = [0, 1];

impl Dataplane {
    /// From now on frames that XDP gives to these devices of the calling thread's network namespace are counted too. An
    /// error where the kernel's tracepoints cannot be asked.
    pub fn count_transmits(&self, devices: &BTreeSet<u32>) -> Result<()> {
        let _changing = self.changing();
        let mark = self.transmit_mark()?;
        let netns = own_netns()?;
        let map = self.transmit_devices();
        let known = self.counted_devices();
        let wanted = devices.iter().map(|ifindex| TransmitDevice { netns, ifindex: *ifindex });
        for device in known.into_iter().chain(wanted) {
            map.update(device.as_bytes(), mark.as_bytes(), MapFlags::ANY)
                .doing(|| format!("count what {} takes", sys::interface_name(device.ifindex)))?;
        }
        MARKS.into_iter().filter(|other| *other != mark).try_for_each(|other| self.unpin_transmits(other))
    }

    /// Other devices' frames are counted no more; without any device, nobody counts.
    pub fn count_transmits_only(&self, devices: &BTreeSet<u32>) -> Result<()> {
        let _changing = self.changing();
        if devices.is_empty() {
            MARKS.into_iter().try_for_each(|mark| self.unpin_transmits(mark))?;
        }
        let netns = own_netns()?;
        let stays = |device: &TransmitDevice| device.netns == netns && devices.contains(&device.ifindex);
        for device in self.counted_devices().into_iter().filter(|device| !stays(device)) {
            match self.transmit_devices().delete(device.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other.doing(|| format!("forget interface {}", device.ifindex))?,
            }
        }
        Ok(())
    }

    /// All that was counted since the state was made.
    pub fn transmits(&self) -> Result<TransmitCounters> {
        counters::sum(self.state.map("transmit_counters"), 0)
    }

    fn transmit_devices(&self) -> &MapHandle {
        self.state.map("transmit_devices")
    }

    fn counted_devices(&self) -> Vec<TransmitDevice> {
        let keys = self.transmit_devices().keys();
        keys.filter_map(|bytes| TransmitDevice::read_from_bytes(&bytes).ok()).collect()
    }

    /// The mark of this version's programs, which are attached then; those of another version, with another mark, go on.
    fn transmit_mark(&self) -> Result<u32> {
        for mark in MARKS {
            if self.are_attached(mark)? {
                return Ok(mark);
            }
        }
        let free = |mark: &u32| TRACED.iter().all(|(place, _)| !self.transmit_pin(place, *mark).exists());
        // a crash may have left both halfway
        let mark = MARKS.into_iter().find(free).unwrap_or(MARKS[0]);
        self.unpin_transmits(mark)?;
        for (place, name) in TRACED {
            let program = self.standing(ObjectKind::Xdp, mark, name)?;
            let pinned = sys::trace(program.as_fd())
                .and_then(|link| sys::pin(link.as_fd(), &self.transmit_pin(place, mark)));
            if let Err(source) = pinned {
                self.unpin_transmits(mark)?;
                return Err(source).doing(|| format!("attach {name} to its tracepoint"));
            }
        }
        Ok(mark)
    }

    fn are_attached(&self, mark: u32) -> Result<bool> {
        for (place, name) in TRACED {
            let link = match sys::open_pin(&self.transmit_pin(place, mark)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                other => other.doing(|| format!("open the link of {name}"))?,
            };
            let program = sys::link_program(link.as_fd()).doing(|| format!("examine the link of {name}"))?;
            if !self.is_same_program(program, self.standing(ObjectKind::Xdp, mark, name)?.as_fd())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn transmit_pin(&self, place: &str, mark: u32) -> PathBuf {
        links::directory(&self.state.pin).join(format!("{place}_{mark}"))
    }

    /// A link goes with its pin.
    fn unpin_transmits(&self, mark: u32) -> Result<()> {
        for path in TRACED.map(|(place, _)| self.transmit_pin(place, mark)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.doing(|| format!("remove {}", path.display()))?,
            }
        }
        Ok(())
    }
}

/// Inode of the calling thread's network namespace, as the kernel numbers it.
fn own_netns() -> Result<u32> {
    const OWN: &str = "/proc/thread-self/ns/net";
    Ok(fs::metadata(OWN).doing(|| format!("examine {OWN}"))?.ino() as u32)
}
