//! The barest forwarder between rings: frames that one device receives are sent to another from the same memory, as they
//! are. What fan-out on rings is measured against.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_libbpf::{Link, Target};
use sluice_xsk::{Copy, Options, QueueId, Sizes, Umem, open, program, wait_to_receive};

/// As `sluice fanout` has them.
const RX: u32 = 4096;
const TX: u32 = 2048;
const BATCH: usize = 64;
const NAP: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub struct RingRelayArgs {
    from: String,
    to: String,
}

/// `sluice bench ring-relay`: until it is killed.
pub fn command(args: &RingRelayArgs) -> Result<ExitCode> {
    let index = |name: &str| {
        let found = nix::net::if_::if_nametoindex(name);
        found.with_context(|| format!("there is no device {name}"))
    };
    let (from, to) = (index(&args.from)?, index(&args.to)?);
    let (umem, mut free) = Umem::new(RX + TX, 2048).context("no memory for frames")?;
    let options = |sizes| Options { sizes, copy: Copy::AsPossible, need_wakeup: true };
    let sizes = Sizes { fill: RX, completion: TX, rx: RX, tx: 0 };
    let input = open(&umem, QueueId { ifindex: from, queue: 0 }, options(sizes), None)?;
    let sizes = Sizes { fill: 64, completion: 2 * TX, rx: 0, tx: TX };
    let output = open(&umem, QueueId { ifindex: to, queue: 0 }, options(sizes), Some(&input.socket))?;
    let (mut rx, mut fill) = (input.rx.context("no rx ring")?, input.fill);
    let (mut tx, mut completion) = (output.tx.context("no tx ring")?, output.completion);
    let map = program::socket_map(1)?;
    program::put(&map, 0, &input.socket)?;
    let _link = Link::attach(program::redirect_to(&map)?, from, Target::XdpNative)?;
    fill.put(&mut free);
    println!("ready");
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        if rx.receive(&mut batch, BATCH) == 0 {
            completion.take(&mut free, BATCH);
            fill.put(&mut free);
            if fill.needs_wakeup() {
                input.socket.wake()?;
            }
            wait_to_receive(&[&input.socket], NAP)?;
            continue;
        }
        while !batch.is_empty() || tx.pending() > 0 {
            tx.put(&mut batch);
            // the device may refuse a frame, which is lost then
            let _ = output.socket.kick();
            completion.take(&mut free, 2 * BATCH);
        }
        fill.put(&mut free);
    }
}
