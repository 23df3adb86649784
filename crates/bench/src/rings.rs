//! The barest forwarder over AF_XDP: what comes by the rx ring of one device leaves by the tx ring of another, untouched.
//! What the fan-out over rings is measured against.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_xsk::program::{self, Attach};
use sluice_xsk::{Copy, Frame, Opened, Options, Place, Sizes, Umem, open, wait_to_receive};

/// As the fan-out has them.
const RX: u32 = 8192;
const TX: u32 = 2048;
const FRAME_SIZE: u32 = 2048;
const BATCH: usize = 64;
const NAP: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub struct RingsArgs {
    from: String,
    to: String,
}

/// `sluice bench rings`: until it is killed.
pub fn command(args: &RingsArgs) -> Result<ExitCode> {
    let index = |device: &str| {
        nix::net::if_::if_nametoindex(device).with_context(|| format!("there is no device {device}"))
    };
    let (from, to) = (index(&args.from)?, index(&args.to)?);
    let (umem, free) = Umem::new(RX + TX, FRAME_SIZE).context("no memory for frames")?;
    let sizes = Sizes { fill: RX, completion: 2 * TX, rx: RX, tx: TX };
    let options = Options { sizes, copy: Copy::AsPossible, need_wakeup: true };
    let inward = open(&umem, Place { ifindex: from, queue: 0 }, options, None).context("rx")?;
    let outward =
        open(&umem, Place { ifindex: to, queue: 0 }, options, Some(&inward.socket)).context("tx")?;
    let map = program::socket_map(1)?;
    program::put(&map, 0, &inward.socket)?;
    let _link = program::attach(&program::redirect_to(&map)?, from, Attach::Native)?;
    println!("ready");
    forward(inward, outward, free)?;
    Ok(ExitCode::SUCCESS)
}

fn forward(mut inward: Opened, mut outward: Opened, mut free: Vec<Frame>) -> Result<()> {
    let (mut rx, mut tx) = (inward.rx.context("no rx ring")?, outward.tx.context("no tx ring")?);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        outward.completion.take(&mut free, (RX + TX) as usize);
        inward.fill.put(&mut free);
        if rx.receive(&mut batch, BATCH) == 0 {
            wait_to_receive(&[&inward.socket], NAP)?;
            continue;
        }
        tx.put(&mut batch);
        while tx.pending() > 0 {
            // whatever kept the kernel from sending all keeps it no longer than a moment
            let _ = outward.socket.kick();
            outward.completion.take(&mut free, (RX + TX) as usize);
        }
        free.append(&mut batch);
    }
}
