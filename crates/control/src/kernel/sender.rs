//! The other end of a veth pair, which may be in another namespace: what it leaves to its receiver.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

use futures_util::StreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::net::if_::if_indextoname;
use nix::sched::{CloneFlags, setns};
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use sluice_plan::Sender;

use super::{Kernel, Link, ethtool};

impl Kernel {
    /// None where it cannot be seen: its namespace is hidden, as that of a container's host is, or may not be entered.
    pub fn sender(&self, link: &Link) -> Option<Sender> {
        let index = link.lower?;
        let Some(number) = link.lower_namespace else { return sender_at(index) };
        let namespace = namespaces().into_iter().find(|file| self.namespace_number(file) == Some(number))?;
        let inside = thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).ok()?;
            sender_at(index)
        });
        inside.join().ok().flatten()
    }

    /// Under which number our namespace knows another.
    fn namespace_number(&self, namespace: &File) -> Option<i32> {
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(namespace.as_raw_fd() as u32));
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNsId(message));
        request.header.flags = NLM_F_REQUEST;
        let mut netlink = self.netlink.clone();
        let ask = async {
            let mut answers = netlink.request(request)?;
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(answer)) = answer.payload {
                    return Ok(answer.attributes.iter().find_map(|attribute| match attribute {
                        NsidAttribute::Id(number) => Some(*number).filter(|number| *number >= 0),
                        _ => None,
                    }));
                }
            }
            Ok(None)
        };
        self.wait(ask, || "ask for a namespace's number".to_owned(), "this is a defect; report it").ok()?
    }
}

fn sender_at(index: u32) -> Option<Sender> {
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    ethtool::sender(&name).ok()
}

/// Every network namespace that has a name or a process, once.
fn namespaces() -> Vec<File> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()));
    let paths: Vec<PathBuf> = named.chain(processes.map(|entry| entry.path().join("ns/net"))).collect();
    let mut seen = BTreeSet::new();
    let new = |path: PathBuf| {
        let meta = fs::metadata(&path).ok()?;
        seen.insert((meta.dev(), meta.ino())).then(|| File::open(path).ok()).flatten()
    };
    paths.into_iter().filter_map(new).collect()
}
