//! A namespace for tests of what clients do by themselves: `v0` has a carrier, and no server is behind it.

use std::time::{Duration, Instant};

use sluice_netns::Netns;

use super::client4::Around;
use crate::kernel::{Kernel, Link};

/// On a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const DUID: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1];

pub fn alone(label: &str, test: impl FnOnce(&Around<'_>, &Netns) + Send) {
    let netns = Netns::create(label).unwrap();
    let batch = "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\n\
        link add v2 type veth peer name v3\nlink set v2 up\nlink set v3 up\n";
    netns.ip_batch(batch).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    netns
        .enter(|| {
            let kernel = Kernel::connect(runtime.handle()).unwrap();
            test(&Around { kernel: &kernel, duid: DUID, taken: &[] }, &netns);
        })
        .unwrap();
}

/// Once it carries frames.
pub fn link(kernel: &Kernel, device: &str) -> Link {
    let begun = Instant::now();
    loop {
        let links = kernel.links().unwrap();
        if let Some(link) = links.into_iter().find(|link| link.name == device && link.on_air().is_some()) {
            return link;
        }
        assert!(begun.elapsed() < PATIENCE, "{device} has no carrier");
        std::thread::sleep(Duration::from_millis(10));
    }
}
