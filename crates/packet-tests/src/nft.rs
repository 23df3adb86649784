//! The kernel's own gateway beside ours: forwarding, conntrack and nftables NAT between two veth pairs.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::gateway::far_end;
use crate::netns::{Namespace, ifindex, ip, quiet_gateway, sysctl};
use crate::onwire::socket::PacketSocket;
use crate::world::World;

/// Namespaces and sockets of a gateway that runs no program of ours.
pub struct NftGateway {
    _inside: Namespace,
    _outside: Namespace,
    ports: Vec<(String, PacketSocket)>,
}

impl NftGateway {
    /// `lines` are `ip` commands for addresses and routes, `sysctls` come before and are below /proc/sys.
    pub fn new(
        world: &World,
        sysctls: &[(&str, &str)],
        lines: &[String],
        ruleset: &str,
    ) -> Result<NftGateway> {
        let (inside, outside) = (Namespace::new()?, Namespace::new()?);
        outside.enter(|| sysctl("net/ipv6/conf/default/disable_ipv6", "1"))??;
        let far: Vec<String> = world.devices.iter().map(|device| far_end(&device.name)).collect();
        inside.enter(|| -> Result<()> {
            quiet_gateway()?;
            for which in ["all", "default"] {
                sysctl(&format!("net/ipv4/conf/{which}/rp_filter"), "0")?;
            }
            ip(&devices(world, &outside))?;
            ip(lines)?;
            ip(&neighbours(world))?;
            nft(ruleset)?;
            // conntrack's knobs exist once its module is there
            Ok(sysctls.iter().try_for_each(|(path, value)| sysctl(path, value))?)
        })??;
        let ports = outside.enter(|| -> Result<_> {
            ip(&far.iter().map(|name| format!("link set {name} up")).collect::<Vec<_>>())?;
            let open = |(device, far): (&crate::world::Device, &String)| {
                Ok((device.name.clone(), PacketSocket::open(ifindex(far)?)?))
            };
            world.devices.iter().zip(&far).map(open).collect::<Result<Vec<_>>>()
        })??;
        Ok(NftGateway { _inside: inside, _outside: outside, ports })
    }

    /// Puts a frame on a device's wire.
    pub fn inject(&self, device: &str, frame: &[u8]) -> Result<()> {
        let port = self.ports.iter().find(|(name, _)| name == device);
        port.with_context(|| format!("no device {device}"))?.1.send(frame)
    }

    /// Frames that came out so far, and where.
    pub fn receive(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut frames = Vec::new();
        for (device, socket) in &self.ports {
            while let Some(frame) = socket.receive()? {
                frames.push((device.clone(), frame));
            }
        }
        Ok(frames)
    }
}

fn devices(world: &World, outside: &Namespace) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    for device in &world.devices {
        let (name, mac, mtu) = (&device.name, device.mac, device.mtu);
        let (far, there) = (far_end(name), outside.path());
        lines.push(format!(
            "link add {name} address {mac} mtu {mtu} type veth peer name {far} mtu {mtu} netns {there}"
        ));
        lines.push(format!("link set {name} up"));
    }
    lines
}

fn neighbours(world: &World) -> Vec<String> {
    let of = |host: &crate::world::Host| {
        let device = host.unit.split('.').next().unwrap_or_default().to_owned();
        let mac = host.mac;
        let line = move |address: &std::net::IpAddr| {
            format!("neigh replace {address} lladdr {mac} dev {device} nud permanent")
        };
        host.addresses.iter().map(line).collect::<Vec<_>>()
    };
    world.hosts.iter().flat_map(of).collect()
}

/// Loads rules into the calling thread's namespace.
fn nft(ruleset: &str) -> Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting `nft`; install nftables")?;
    child.stdin.take().expect("stdin is piped").write_all(ruleset.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
