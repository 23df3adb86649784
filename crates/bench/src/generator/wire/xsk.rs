//! An AF_XDP socket that sends only.

use std::io;

use anyhow::{Context, Result};
use sluice_xsk::{CompletionRing, Copy, Frame, Options, QueueId, Sizes, Socket, TxRing, Umem, open};

use super::socket::Outlet;

const FRAMES: u32 = 1024;
const FRAME_SIZE: u32 = 2048;

pub struct XdpSocket {
    socket: Socket,
    umem: Umem,
    transmit: TxRing,
    completed: CompletionRing,
    free: Vec<Frame>,
    /// Handed out for the batch that is being made.
    batch: Vec<Frame>,
    /// Those that have held a frame.
    written: Vec<bool>,
}

impl XdpSocket {
    /// On queue 0 of a device of the calling thread's network namespace.
    pub fn open(ifindex: u32) -> Result<XdpSocket> {
        let (umem, free) = Umem::new(FRAMES, FRAME_SIZE).context("no memory for frames")?;
        let sizes = Sizes { fill: 64, completion: FRAMES, rx: 0, tx: FRAMES };
        let options = Options { sizes, copy: Copy::AsPossible, need_wakeup: false };
        let opened = open(&umem, QueueId { ifindex, queue: 0 }, options, None)
            .with_context(|| format!("device {ifindex} (CONFIG_XDP_SOCKETS and root are needed)"))?;
        let transmit = opened.tx.context("an AF_XDP socket without a tx ring")?;
        Ok(XdpSocket {
            socket: opened.socket,
            umem,
            transmit,
            completed: opened.completion,
            free,
            batch: vec![],
            written: vec![false; FRAMES as usize],
        })
    }

    /// Takes back what the kernel has sent.
    fn reclaim(&mut self) {
        self.completed.take(&mut self.free, FRAMES as usize);
    }

    fn kick(&self) -> io::Result<()> {
        match self.socket.kick() {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Outlet for XdpSocket {
    fn frame(&mut self, slot: usize, first: &[u8]) -> &mut [u8] {
        if slot == 0 {
            self.free.append(&mut self.batch);
        }
        while self.free.is_empty() {
            self.reclaim();
            if self.free.is_empty() {
                // What is not taken at once is taken by a later call.
                let _ = self.kick();
            }
        }
        self.batch.extend(self.free.pop());
        let frame = &mut self.batch[slot];
        self.umem.resize(frame, first.len());
        let fresh = !std::mem::replace(&mut self.written[frame.number() as usize], true);
        let bytes = self.umem.bytes_mut(frame);
        if fresh {
            bytes.copy_from_slice(first);
        }
        bytes
    }

    fn send(&mut self, count: usize, len: usize) -> io::Result<()> {
        for frame in &mut self.batch[..count] {
            self.umem.resize(frame, len);
        }
        let mut unused = self.batch.split_off(count);
        // As many entries as frames: there is always room.
        self.transmit.put(&mut self.batch);
        self.batch.append(&mut unused);
        while self.transmit.pending() > 0 {
            self.kick()?;
            self.reclaim();
        }
        Ok(())
    }
}
