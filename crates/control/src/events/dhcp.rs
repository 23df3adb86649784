//! The thread of all clients of DHCP and DHCPv6, and what tells it of devices.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::commit::Shared;
use crate::kernel::notices::Notices;

/// Many changes in this time are one look.
const PAUSE: Duration = Duration::from_millis(50);

pub fn start(shared: Arc<Shared>) -> io::Result<()> {
    let clients = shared.dhcp.clone();
    let tell = move || {
        clients.tell_of_links();
        true
    };
    Notices::of_links()?.watch("links", PAUSE, tell)?;
    let run = move || {
        loop {
            shared.dhcp.turn();
        }
    };
    thread::Builder::new().name("dhcp".to_owned()).spawn(run).map(drop)
}
