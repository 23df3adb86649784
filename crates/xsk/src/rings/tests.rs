//! Millions of random steps against a simulated kernel: each frame is in exactly one place after every one of them.

use std::collections::VecDeque;

use super::*;
use crate::ring::pair;

const FRAMES: u32 = 192;
const RING: u32 = 64;
const STEPS: u32 = 3_000_000;

/// Small and good enough; a failure is repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

/// The kernel's ends of the rings, and frames in a driver's hands between them.
struct Kernel {
    fill: Consumer<u64>,
    rx: Producer<libc::xdp_desc>,
    tx: Consumer<libc::xdp_desc>,
    completion: Producer<u64>,
    receiving: VecDeque<u64>,
    sending: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Free,
    Fill,
    Receiving,
    Rx,
    User,
    Tx,
    Sending,
    Completion,
}

struct Model {
    umem: Umem,
    kernel: Kernel,
    fill: FillRing,
    rx: RxRing,
    tx: TxRing,
    completion: CompletionRing,
    free: Vec<Frame>,
    user: Vec<Frame>,
    /// Where each frame must be.
    places: Vec<At>,
    /// What was received into each frame, to be found in it until it is given away.
    written: Vec<u8>,
}

impl Model {
    fn new() -> Model {
        let (umem, free) = Umem::new(FRAMES, 2048).unwrap();
        let (fill, kernel_fill) = pair(RING);
        let (kernel_rx, rx) = pair(RING);
        let (tx, kernel_tx) = pair(RING);
        let (kernel_completion, completion) = pair(RING);
        let kernel = Kernel {
            fill: kernel_fill,
            rx: kernel_rx,
            tx: kernel_tx,
            completion: kernel_completion,
            receiving: VecDeque::new(),
            sending: VecDeque::new(),
        };
        Model {
            kernel,
            fill: FillRing { ring: fill, umem: umem.clone() },
            rx: RxRing { ring: rx, umem: umem.clone() },
            tx: TxRing { ring: tx, umem: umem.clone() },
            completion: CompletionRing { ring: completion, umem: umem.clone() },
            umem,
            free,
            user: vec![],
            places: vec![At::Free; FRAMES as usize],
            written: vec![0; FRAMES as usize],
        }
    }

    fn go(&mut self, number: u32, from: At, to: At) {
        let was = std::mem::replace(&mut self.places[number as usize], to);
        assert_eq!(was, from, "frame {number} on its way to {to:?}");
    }

    fn user_step(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => self.fill(random),
            1 => self.receive(random),
            2 => self.send(random),
            _ => self.take_back(random),
        }
    }

    fn fill(&mut self, random: &mut Random) {
        let keep = random.below(self.free.len() as u32 + 1) as usize;
        let mut some = self.free.split_off(keep);
        let numbers: Vec<u32> = some.iter().map(Frame::number).collect();
        let count = self.fill.put(&mut some);
        for number in &numbers[numbers.len() - count..] {
            self.go(*number, At::Free, At::Fill);
        }
        self.free.append(&mut some);
    }

    fn receive(&mut self, random: &mut Random) {
        let before = self.user.len();
        let count = self.rx.receive(&mut self.user, random.below(RING + 1) as usize);
        assert_eq!(self.user.len(), before + count);
        for at in before..self.user.len() {
            let number = self.user[at].number();
            self.go(number, At::Rx, At::User);
            let bytes = self.umem.bytes(&self.user[at]);
            assert!(bytes.iter().all(|byte| *byte == self.written[number as usize]));
        }
    }

    /// Some are dropped, the others sent.
    fn send(&mut self, random: &mut Random) {
        while random.below(3) == 0 && !self.user.is_empty() {
            let at = random.below(self.user.len() as u32) as usize;
            let frame = self.user.swap_remove(at);
            self.go(frame.number(), At::User, At::Free);
            self.free.push(frame);
        }
        let numbers: Vec<u32> = self.user.iter().map(Frame::number).collect();
        let count = self.tx.put(&mut self.user);
        numbers[..count].iter().for_each(|number| self.go(*number, At::User, At::Tx));
    }

    fn take_back(&mut self, random: &mut Random) {
        let before = self.free.len();
        self.completion.take(&mut self.free, random.below(RING + 1) as usize);
        for at in before..self.free.len() {
            let number = self.free[at].number();
            self.go(number, At::Completion, At::Free);
        }
    }

    fn kernel_step(&mut self, random: &mut Random) {
        let number = |address: u64| (address / 2048) as u32;
        match random.below(4) {
            0 if self.kernel.fill.available() > 0 => {
                let address = self.kernel.fill.pop();
                self.kernel.fill.release();
                self.kernel.receiving.push_back(address);
                self.go(number(address), At::Fill, At::Receiving);
            }
            // a driver need not keep the order
            1 if !self.kernel.receiving.is_empty() && self.kernel.rx.room(1) > 0 => {
                let at = random.below(self.kernel.receiving.len() as u32) as usize;
                let address = self.kernel.receiving.remove(at).unwrap();
                self.arrive(address, random);
                self.go(number(address), At::Receiving, At::Rx);
            }
            2 if self.kernel.tx.available() > 0 => {
                let entry = self.kernel.tx.pop();
                self.kernel.tx.release();
                self.kernel.sending.push_back(entry.addr);
                self.go(number(entry.addr), At::Tx, At::Sending);
            }
            3 if !self.kernel.sending.is_empty() && self.kernel.completion.room(1) > 0 => {
                let at = random.below(self.kernel.sending.len() as u32) as usize;
                let address = self.kernel.sending.remove(at).unwrap();
                self.kernel.completion.push(address);
                self.kernel.completion.submit();
                self.go(number(address), At::Sending, At::Completion);
            }
            _ => {}
        }
    }

    /// The kernel leaves headroom, and writes.
    fn arrive(&mut self, address: u64, random: &mut Random) {
        let (headroom, length, value) = (256, 60 + random.below(1400), random.below(256) as u8);
        let number = address / 2048;
        let mut frame = self.umem.at_hand(number as u32, headroom, length);
        self.umem.bytes_mut(&mut frame).fill(value);
        self.written[number as usize] = value;
        self.kernel.rx.push(libc::xdp_desc { addr: address + u64::from(headroom), len: length, options: 0 });
        self.kernel.rx.submit();
    }

    /// Every frame once, and where the model has it, by looking at all the places.
    fn assert_each_in_one_place(&mut self) {
        let count = |places: &[At], at: At| places.iter().filter(|place| **place == at).count();
        let mut seen = vec![0; FRAMES as usize];
        for (frames, at) in [(&self.free, At::Free), (&self.user, At::User)] {
            assert_eq!(frames.len(), count(&self.places, at));
            for frame in frames {
                seen[frame.number() as usize] += 1;
                assert_eq!(self.places[frame.number() as usize], at);
            }
        }
        for (addresses, at) in [(&self.kernel.receiving, At::Receiving), (&self.kernel.sending, At::Sending)]
        {
            for address in addresses {
                seen[(address / 2048) as usize] += 1;
                assert_eq!(self.places[(address / 2048) as usize], at);
            }
        }
        let rings = [
            (self.fill.pending(), At::Fill),
            (self.rx.ready(), At::Rx),
            (self.tx.pending(), At::Tx),
            (self.completion.ring.available(), At::Completion),
        ];
        for (entries, at) in rings {
            assert_eq!(entries as usize, count(&self.places, at), "{at:?}");
        }
        let in_rings = |at: At| matches!(at, At::Fill | At::Rx | At::Tx | At::Completion);
        for (number, seen) in seen.into_iter().enumerate() {
            assert_eq!(seen, usize::from(!in_rings(self.places[number])), "frame {number}");
        }
    }
}

#[test]
fn each_frame_is_in_exactly_one_place_over_millions_of_steps() {
    for seed in [1, 0x5eed, 0xdead_beef_cafe] {
        let (mut model, mut random) = (Model::new(), Random(seed));
        let mut visited = [0u64; 8];
        for step in 0..STEPS {
            // the kernel moves one frame at a time, the user many
            if random.below(8) == 0 {
                model.user_step(&mut random);
            } else {
                model.kernel_step(&mut random);
            }
            if step % 64 == 0 {
                model.assert_each_in_one_place();
                model.places.iter().for_each(|at| visited[*at as usize] += 1);
            }
        }
        assert!(visited.iter().all(|count| *count > u64::from(STEPS / 64)), "seed {seed}: {visited:?}");
    }
}
