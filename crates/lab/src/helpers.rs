//! The lab's own BPF programs (`bpf/lab`): the VLAN tagger at the far end of a trunk, the packet stream and its sink.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHookBuilder};

use crate::netns::Netns;

#[allow(unsafe_code, unused_imports, clippy::all)]
mod vlan_tag {
    include!(concat!(env!("OUT_DIR"), "/vlan_tag.skel.rs"));
}

#[allow(unsafe_code, unused_imports, clippy::all)]
pub(crate) mod stream {
    include!(concat!(env!("OUT_DIR"), "/stream.skel.rs"));
}

/// Makes `device` in `netns` the far end of a trunk: what it sends gets `vlan`, only frames with that tag get in.
/// The programs stay attached until the device goes.
pub fn tag_with_vlan(netns: &Netns, device: &str, vlan: u16) -> Result<()> {
    tag_with(netns, device, Tags { outer: vlan, service: false, inner: None })
}

/// What the far end of a trunk pushes and takes.
#[derive(Debug, Clone, Copy)]
pub struct Tags {
    /// VLAN of the only tag, or of the outer one.
    pub outer: u16,
    /// The outer tag is an IEEE 802.1ad one.
    pub service: bool,
    /// VLAN of the inner tag; None = one tag.
    pub inner: Option<u16>,
}

/// The same with one tag or two.
pub fn tag_with(netns: &Netns, device: &str, tags: Tags) -> Result<()> {
    let ifindex = netns.ifindex(device)? as i32;
    netns
        .enter(|| attach_tagger(ifindex, tags).map_err(|error| format!("{error:#}")))?
        .map_err(|error| anyhow!(error))
        .with_context(|| format!("cannot tag {device} in {} with {tags:?}", netns.name()))
}

fn attach_tagger(ifindex: i32, tags: Tags) -> Result<()> {
    let mut storage = MaybeUninit::uninit();
    let mut open = vlan_tag::VlanTagSkelBuilder::default().open(&mut storage)?;
    let rodata = open.maps.rodata_data.as_deref_mut().context("vlan_tag.bpf.c has no rodata")?;
    rodata.vlan_id = tags.outer;
    rodata.inner_id = tags.inner.unwrap_or(0);
    rodata.is_service = tags.service.into();
    let loaded = open.load()?;
    let hook =
        |fd, point| TcHookBuilder::new(fd).ifindex(ifindex).replace(true).handle(1).priority(1).hook(point);
    let (push, pop) = (loaded.progs.vlan_push.as_fd(), loaded.progs.vlan_pop.as_fd());
    hook(push, TC_EGRESS | TC_INGRESS).create()?;
    hook(push, TC_EGRESS).attach()?;
    hook(pop, TC_INGRESS).attach()?;
    Ok(())
}
