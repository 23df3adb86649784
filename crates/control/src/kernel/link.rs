//! Devices.

use futures_util::TryStreamExt;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::{LinkUnspec, LinkVeth};

use super::connection::{Kernel, Result};

/// A device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// It has a carrier.
    pub running: bool,
    /// Somebody has set it to receive every frame.
    pub promiscuous: bool,
    /// Somebody has set it to receive what goes to any multicast group.
    pub all_multicast: bool,
    /// Kind of a virtual device: `veth`, `bridge`, `tun`.
    pub kind: Option<String>,
    pub mtu_range: Option<(u32, u32)>,
    /// Packets that the device or its driver dropped on the way out.
    pub tx_dropped: u64,
    /// Index of the device whose port it is.
    pub master: Option<u32>,
    /// Index of the device below it; of a veth pair, the other end.
    pub lower: Option<u32>,
    /// That device is in another namespace, which ours knows by this number.
    pub lower_namespace: Option<i32>,
    /// Of a VRF device.
    pub table: Option<u32>,
    /// Its packets have no Ethernet header.
    pub headerless: bool,
    /// Sluice made it: it carries [`PAIR_ALIAS`] or [`INSTANCE_ALIAS`].
    pub ours: bool,
}

/// Alias of the VRF devices that Sluice makes.
pub(super) const INSTANCE_ALIAS: &str = "routing instance of sluice";

/// Alias of the devices that Sluice makes for tagged units.
const PAIR_ALIAS: &str = "tagged unit of sluice";

impl Link {
    /// The VRF device of a routing instance of ours.
    pub fn is_instance(&self) -> bool {
        self.ours && self.kind.as_deref() == Some("vrf")
    }

    /// Its index and MAC address while it can carry frames of its own.
    pub fn on_air(&self) -> Option<(u32, [u8; 6])> {
        (self.up && self.running && self.mac != [0; 6]).then_some((self.index, self.mac))
    }
}

impl Kernel {
    pub fn links(&self) -> Result<Vec<Link>> {
        let dump = async { self.netlink.link().get().execute().try_collect().await };
        let messages: Vec<LinkMessage> =
            self.wait(dump, || "list the devices".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().map(parse_link).collect())
    }

    /// Makes the two ends of a tagged unit's device, both down.
    pub fn add_veth(&self, device: &str, peer: &str) -> Result<()> {
        let message = LinkVeth::new(device, peer).build();
        let action = || format!("create the veth pair {device} and {peer}");
        self.wait(self.netlink.link().add(message).execute(), action, "remove what has one of these names")
    }

    /// Marks an end of a pair as ours.
    pub fn mark_link(&self, index: u32, name: &str) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).alias(PAIR_ALIAS).build();
        let action = || format!("set the alias of {name}");
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    pub fn delete_link(&self, index: u32, name: &str) -> Result<()> {
        let action = || format!("delete device {name}");
        self.wait(self.netlink.link().del(index).execute(), action, "run as root")
    }

    pub fn set_link_up(&self, index: u32, name: &str, up: bool) -> Result<()> {
        let builder = LinkUnspec::new_with_index(index);
        let message = if up { builder.up() } else { builder.down() }.build();
        let action = || format!("set device {name} {}", if up { "up" } else { "down" });
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    pub fn set_promiscuous(&self, index: u32, name: &str, on: bool) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).promiscuous(on).build();
        let action = || format!("set promisc {} on {name}", if on { "on" } else { "off" });
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    pub fn set_all_multicast(&self, index: u32, name: &str, on: bool) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).allmulticast(on).build();
        let action = || format!("set allmulticast {} on {name}", if on { "on" } else { "off" });
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    pub fn set_mtu(&self, index: u32, name: &str, mtu: u32) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        let action = || format!("set mtu {mtu} on {name}");
        self.wait(self.netlink.link().set(message).execute(), action, "choose an MTU that the driver takes")
    }

    pub fn set_mac(&self, index: u32, name: &str, mac: [u8; 6]) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).address(mac.to_vec()).build();
        let action = || format!("set the MAC address of {name}");
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    /// Turns ARP and neighbour discovery off, which the far end of a pair does not need, nor a device that leads into tunnels.
    pub fn set_noarp(&self, index: u32, name: &str) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).arp(false).build();
        let action = || format!("turn ARP off on {name}");
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }
}

fn parse_link(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        running: message.header.flags.contains(LinkFlags::LowerUp),
        promiscuous: message.header.flags.contains(LinkFlags::Promisc),
        all_multicast: message.header.flags.contains(LinkFlags::Allmulti),
        headerless: !matches!(message.header.link_layer_type, LinkLayerType::Ether | LinkLayerType::Loopback),
        ..Default::default()
    };
    let (mut low, mut high) = (0, 0);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::MinMtu(mtu) => low = *mtu,
            LinkAttribute::MaxMtu(mtu) => high = *mtu,
            LinkAttribute::Stats64(stats) => link.tx_dropped = stats.tx_dropped + stats.tx_errors,
            LinkAttribute::IfAlias(alias) => {
                link.ours = [PAIR_ALIAS, INSTANCE_ALIAS].contains(&alias.as_str());
            }
            LinkAttribute::Controller(index) => link.master = Some(*index).filter(|index| *index != 0),
            LinkAttribute::Link(index) => link.lower = Some(*index).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(number) => link.lower_namespace = Some(*number),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(kind);
                link.table = infos.iter().find_map(table);
            }
            _ => {}
        }
    }
    // A driver without a limit says 0.
    link.mtu_range = (high != 0).then_some((low, high));
    link
}

fn kind(info: &LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(InfoKind::Other(name)) => Some(name.clone()),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

fn table(info: &LinkInfo) -> Option<u32> {
    let LinkInfo::Data(InfoData::Vrf(infos)) = info else { return None };
    infos.iter().find_map(|info| match info {
        InfoVrf::TableId(table) => Some(*table),
        _ => None,
    })
}
