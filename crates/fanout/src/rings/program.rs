//! The XDP program in front of the rings of one device (`bpf/rings`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::PoisonError;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use sluice_libbpf::{Link, Target, device, program};
use sluice_xsk::Socket;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rings.bpf.o"));

/// `RINGS_LISTENERS` of bpf/rings/rings.h: slots, and so listeners on one device.
pub const SLOTS: usize = 64;

/// A line of the program's table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub bind: SocketAddr,
    /// 0 = without a tag.
    pub vlan: u16,
    pub slot: u32,
}

impl Entry {
    /// `struct rings_listener`
    fn bytes(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        match self.bind.ip() {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[..16].copy_from_slice(&address.octets()),
        }
        bytes[16..18].copy_from_slice(&self.bind.port().to_be_bytes());
        bytes[18..20].copy_from_slice(&self.vlan.to_ne_bytes());
        bytes[20] = self.bind.is_ipv6().into();
        bytes[24..].copy_from_slice(&self.slot.to_ne_bytes());
        bytes
    }
}

/// `struct rings_counters`
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub taken: u64,
    pub too_large: u64,
    pub unserved: u64,
}

pub struct Program {
    queues: u32,
    program: OwnedFd,
    sockets: MapHandle,
    active: MapHandle,
    tables: MapHandle,
    counters: MapHandle,
    /// Which of the two tables is looked at.
    which: Mutex<u32>,
    link: Option<Link>,
    how: Target,
}

fn other(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error)
}

fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
    MapHandle::try_from(&found).map_err(other)
}

/// The XDP program that a device has, by name or number.
fn present(ifindex: u32) -> Option<String> {
    let id = device::xdp(ifindex).ok()?.program_id;
    let name = || program::name_of(id).filter(|name| !name.is_empty());
    (id != 0).then(|| name().unwrap_or_else(|| format!("number {id}")))
}

impl Program {
    /// Loaded, and not attached. Frames of more than `largest` bytes are dropped and counted.
    pub fn load(queues: u32, largest: u32) -> io::Result<Program> {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(OBJECT).map_err(other)?;
        let mut config = [0; 8];
        config[..4].copy_from_slice(&queues.to_ne_bytes());
        config[4..].copy_from_slice(&largest.to_ne_bytes());
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some(".rodata.config") => map.set_initial_value(&config).map_err(other)?,
                Some("sockets") => map.set_max_entries(queues).map_err(other)?,
                Some("counters") => map.set_max_entries(queues * SLOTS as u32).map_err(other)?,
                _ => {}
            }
        }
        let object = open.load().map_err(other)?;
        let program = object.progs().find(|program| program.name() == "rings_take");
        let program = program.ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()?;
        Ok(Program {
            queues,
            program,
            sockets: map(&object, "sockets")?,
            active: map(&object, "active")?,
            tables: map(&object, "tables")?,
            counters: map(&object, "counters")?,
            which: Mutex::new(0),
            link: None,
            how: Target::XdpNative,
        })
    }

    /// Frames of a queue go to its socket.
    pub fn serve(&self, queue: u32, socket: &Socket) -> io::Result<()> {
        let fd = socket.fd().as_raw_fd();
        self.sockets.update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(other)
    }

    /// In the driver, else behind it. Err says who is there already.
    pub fn attach(&mut self, ifindex: u32) -> io::Result<()> {
        if let Some(name) = present(ifindex) {
            let text = format!(
                "it carries the XDP program `{name}` of somebody else; detach that, or choose mode tc_ebpf"
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let link = match Link::attach(&self.program, ifindex, Target::XdpNative) {
            Ok(link) => link,
            Err(why) => {
                let link = Link::attach(&self.program, ifindex, Target::XdpGeneric)
                    .map_err(|error| io::Error::new(error.kind(), format!("cannot attach XDP: {error}")))?;
                tracing::warn!(%why, "the driver takes no XDP program: it is attached behind it (generic)");
                self.how = Target::XdpGeneric;
                link
            }
        };
        self.link = Some(link);
        Ok(())
    }

    /// As metrics and the log have it.
    pub fn how(&self) -> &'static str {
        if self.how == Target::XdpGeneric { "generic" } else { "native" }
    }

    /// Takes frames no more.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// From now on these are the listeners: no frame meets half a table.
    pub fn set(&self, entries: &[Entry]) -> io::Result<()> {
        let mut which = self.which.lock().unwrap_or_else(PoisonError::into_inner);
        let next = 1 - *which;
        let mut table = vec![0; 4 + SLOTS * 28];
        table[..4].copy_from_slice(&(entries.len().min(SLOTS) as u32).to_ne_bytes());
        for (line, entry) in table[4..].chunks_exact_mut(28).zip(entries) {
            line.copy_from_slice(&entry.bytes());
        }
        self.tables.update(&next.to_ne_bytes(), &table, MapFlags::ANY).map_err(other)?;
        self.active.update(&0u32.to_ne_bytes(), &next.to_ne_bytes(), MapFlags::ANY).map_err(other)?;
        *which = next;
        Ok(())
    }

    /// Counters of a slot begin anew with a new listener.
    pub fn reset(&self, slot: u32) -> io::Result<()> {
        let zero = vec![vec![0; 24]; libbpf_rs::num_possible_cpus().map_err(other)?];
        for queue in 0..self.queues {
            let key = (slot * self.queues + queue).to_ne_bytes();
            self.counters.update_percpu(&key, &zero, MapFlags::ANY).map_err(other)?;
        }
        Ok(())
    }

    pub fn counted(&self, slot: u32, queue: u32) -> Counted {
        let key = (slot * self.queues + queue).to_ne_bytes();
        let values = self.counters.lookup_percpu(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
        let sum = |at: usize| {
            let word = |value: &Vec<u8>| value.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
            values.iter().filter_map(word).sum()
        };
        Counted { taken: sum(0), too_large: sum(8), unserved: sum(16) }
    }
}
