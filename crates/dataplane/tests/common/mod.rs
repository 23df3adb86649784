//! A data plane of its own for every test: pins and network namespaces that vanish with it, also when it panics.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_dataplane::abi::stages::Stage;
use sluice_dataplane::abi::{UNIT_VALID, Unit, ZonePair, unit_slot};
use sluice_dataplane::{Dataplane, Generation, Sizes, Tables, Variant, cleanup};
use sluice_netns::Namespace;

pub const SMALL: Sizes = Sizes {
    sessions4: 64,
    sessions6: 32,
    kernel_index: false,
    grants: 64,
    bindings: 64,
    units: 256,
    zones: 32,
    extended: false,
    gtpu_slots: 0,
    gtpu_downlink_slots: 0,
    gtpu_flows: false,
};

static NEXT: AtomicU32 = AtomicU32::new(0);

fn number() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A directory for pins.
pub struct Pin(PathBuf);

impl Pin {
    pub fn new() -> Pin {
        let name = format!("sluice-test-{}-{}", std::process::id(), number());
        Pin(Path::new("/sys/fs/bpf").join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn open(&self, sizes: Sizes) -> Dataplane {
        Dataplane::open(&self.0, sizes).unwrap()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = cleanup(&self.0) {
            eprintln!("{error}");
        }
    }
}

/// A network namespace that the calling thread has moved into.
pub struct Netns(Namespace);

impl Netns {
    pub fn enter() -> Netns {
        let namespace = Namespace::new().unwrap();
        namespace.enter_for_good().unwrap();
        run(&["ip", "link", "set", "lo", "up"]);
        Netns(namespace)
    }

    /// A veth pair, up; gives the index of the first end.
    pub fn veth(&self, name: &str) -> u32 {
        let peer = format!("{name}p");
        run(&["ip", "link", "add", name, "type", "veth", "peer", "name", &peer]);
        run(&["ip", "link", "set", name, "up"]);
        run(&["ip", "link", "set", &peer, "up"]);
        ifindex(name)
    }
}

pub fn ifindex(name: &str) -> u32 {
    sluice_netns::here::ifindex(name).unwrap()
}

/// Runs a command in the namespace of the calling thread.
pub fn run(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every stage, or every one but those that configuration may leave out.
pub fn full_mask() -> u32 {
    Stage::ALL.into_iter().map(Stage::bit).sum()
}

pub const OPTIONAL: [Stage; 5] =
    [Stage::Screen, Stage::ScreenRate, Stage::ScreenFirst, Stage::Fanout, Stage::Gate];

/// One unit on one device, and nothing permitted.
pub fn tables(ifindex: u32) -> Tables {
    let (unit_multiplier, unit_shift) = (1, 20);
    let unit = Unit {
        ifindex,
        index: 1,
        zone: 2,
        mtu: 1500,
        flags: UNIT_VALID,
        mac: [2, 0, 0, 0, 0, 1],
        phys_ifindex: ifindex,
        host_ifindex: ifindex,
        ..Default::default()
    };
    Tables {
        units: vec![(unit_slot(ifindex, 0, unit_multiplier, unit_shift), unit)],
        unit_multiplier,
        unit_shift,
        zone_pairs: vec![ZonePair::default(); 16],
        ..Default::default()
    }
}

/// Loads and activates one variant with every stage.
pub fn activate(dataplane: &Dataplane, tables: &Tables, number: u32) -> Generation {
    let generation = dataplane.load(tables, &[Variant::new(full_mask())], number).unwrap();
    dataplane.switch(&generation);
    dataplane.grace().unwrap();
    dataplane.retire_idle().unwrap();
    generation
}

/// An Ethernet frame with IPv4 and UDP, for the unit of [`tables`].
pub fn udp_frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2]);
    let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0x30, 0x39, 0, 53, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}
