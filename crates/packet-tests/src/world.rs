//! `*.world` files: the surroundings of a gateway under test.
//!
//! ```text
//! config zones.conf                                # relative to the world file
//! device trust0 02:00:00:00:01:01                  # a veth of the gateway and its MAC address
//! device tunnel0 02:00:00:00:04:01 mtu 1400
//! host client trust0.0 02:00:00:00:01:64 10.0.1.100 fd00:1::64   # neighbour entries that need no asking
//! ip route add 198.51.100.0/24 via 10.0.2.100      # run in the gateway's namespace once addresses are there
//! ```

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sluice_wire::Mac;

/// A `.world` file.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Path of the configuration.
    pub config: PathBuf,
    /// Of the gateway.
    pub devices: Vec<Device>,
    /// Neighbours that answer ARP and neighbour solicitations.
    pub hosts: Vec<Host>,
    /// Arguments of `ip`, run once the devices are there.
    pub commands: Vec<String>,
    /// Devices of the configuration that nobody sends to, and that only the plan has.
    pub imagined: Vec<String>,
}

/// A device of the gateway.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name there.
    pub name: String,
    /// Its own.
    pub mac: Mac,
    /// In bytes, without the Ethernet header.
    pub mtu: u32,
}

/// A neighbour of the gateway.
#[derive(Debug, Clone)]
pub struct Host {
    /// What cases name it by.
    pub name: String,
    /// `trust0.0`
    pub unit: String,
    /// Its own.
    pub mac: Mac,
    /// Of both families.
    pub addresses: Vec<IpAddr>,
}

impl World {
    /// Fails with the line of what cannot be read.
    pub fn read(path: &Path) -> Result<World> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut world = World::default();
        for (index, line) in text.lines().enumerate() {
            let at = || format!("{}:{}", path.display(), index + 1);
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                world.statement(path, line).with_context(at)?;
            }
        }
        ensure!(world.config.is_file(), "{}: names no configuration that exists", path.display());
        Ok(world)
    }

    fn statement(&mut self, path: &Path, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["config", file] => self.config = path.with_file_name(file),
            ["device", name, mac] => self.device(name, mac, "1500")?,
            ["device", name, mac, "mtu", mtu] => self.device(name, mac, mtu)?,
            ["host", name, unit, mac, addresses @ ..] => {
                let addresses: Result<Vec<IpAddr>, _> = addresses.iter().map(|text| text.parse()).collect();
                self.hosts.push(Host {
                    name: (*name).to_owned(),
                    unit: (*unit).to_owned(),
                    mac: mac.parse().map_err(anyhow::Error::msg)?,
                    addresses: addresses?,
                });
            }
            ["ip", rest @ ..] => self.commands.push(rest.join(" ")),
            _ => bail!("`{line}` is no statement; there are: config, device, host, ip"),
        }
        Ok(())
    }

    fn device(&mut self, name: &str, mac: &str, mtu: &str) -> Result<()> {
        let mac = mac.parse().map_err(anyhow::Error::msg)?;
        self.devices.push(Device { name: name.to_owned(), mac, mtu: mtu.parse()? });
        Ok(())
    }

    /// Whether a device, or the one that it is a unit of, is imagined.
    pub fn imagines(&self, device: &str) -> bool {
        self.imagined.iter().any(|name| {
            device == name || device.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// The host that holds an address.
    pub fn owner(&self, address: IpAddr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.addresses.contains(&address))
    }

    /// The one on a unit: others may have its address where they are in another routing instance.
    pub fn owner_on(&self, unit: &str, address: IpAddr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.unit == unit && host.addresses.contains(&address))
    }

    /// None = the world has no such host.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The first host on a unit's link.
    pub fn any_host_on(&self, unit: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.unit == unit)
    }

    /// MAC address of the device below a unit.
    pub fn unit_mac(&self, unit: &str) -> Option<Mac> {
        let device = unit.rsplit_once('.').map_or(unit, |(device, _)| device);
        self.devices.iter().find(|known| known.name == device).map(|known| known.mac)
    }
}
