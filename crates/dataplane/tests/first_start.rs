//! How long a gateway takes to come up. A file of its own, so that no other test loads programs at the same time.

mod common;

use std::time::{Duration, Instant};

use common::{Netns, Pin, activate, tables};
use sluice_dataplane::{Attachment, Hook, Sizes};

/// From made maps to an attached program, in a namespace of its own.
fn first_start() -> Duration {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(Sizes::default());
    let begin = Instant::now();
    activate(&dataplane, &tables(ifindex), 1);
    dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap();
    begin.elapsed()
}

/// The quickest of a few: whatever else the machine does only adds time.
#[test]
fn first_start_takes_less_than_a_second() {
    let mut starts = vec![];
    let quick = (0..4).any(|_| {
        let took = std::thread::spawn(first_start).join().unwrap();
        starts.push(took);
        took < Duration::from_secs(1)
    });
    assert!(quick, "{starts:?}");
}
