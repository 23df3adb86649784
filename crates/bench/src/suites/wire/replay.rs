//! A capture played once: every record arrives once, by live frames and by a packet socket.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::generator::wire::frame::build;
use crate::generator::wire::generator::{Generator, Tempo};
use crate::generator::wire::numbers::Numbers;
use crate::generator::wire::pair::Pair;
use crate::generator::wire::pcap::{self, Record};
use crate::generator::wire::receiver::Role;
use crate::generator::wire::socket::PacketSocket;
use crate::generator::wire::{Device, Size};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::suite::Context;

const FLOWS: u32 = 10_000;

pub fn run(context: &Context, result: &mut SuiteResult) -> Result<()> {
    context.progress.at(0.8, "replay of a capture");
    let mut pair = Pair::veth(Role::Judge)?;
    let records = capture(&pair, context.pick(20_000, 100_000));
    // Through the format, as a user's capture comes.
    let records = pcap::parse(&pcap::write(&records))?;
    let bytes = records.iter().map(|(_, frame)| frame.len()).sum::<usize>();
    let (mut live, mut socket) = (vec![], vec![]);
    let mut checks: Vec<Check> = vec![];
    let mut generator = Generator::of_capture(&records)?;
    for _ in 0..context.rounds {
        for by_socket in [false, true] {
            pair.receiver.expect(FLOWS, true)?;
            let from = Device { netns: pair.netns(), ifindex: pair.from };
            if by_socket {
                play_by_socket(from, &records)?;
            } else {
                generator
                    .replay(from, records.len(), Tempo::AsFastAsItGoes)?
                    .finish(Duration::from_secs(20))?;
            }
            pair.receiver.settle(records.len() as u64);
            let received = pair.receiver.report(records.len() as u64);
            ensure!(received.is_perfect(), "of a capture played once came {received:?}");
            checks = vec![
                checks::single_pass(received.sent, received.distinct),
                checks::conserved(received.sent, received.received, 0),
            ];
            let rate = received.received as f64 / received.seconds / 1e6;
            if by_socket { &mut socket } else { &mut live }.push(rate);
        }
    }
    let names = ["capture (IMIX) by live frames", "capture (IMIX) by AF_PACKET"];
    for (name, samples) in names.into_iter().zip([live, socket]) {
        let figure = Figure::new(name, "Mpps", Better::Higher, samples);
        result.figures.push(checks.iter().cloned().fold(figure, Figure::check));
    }
    result
        .notes
        .push(format!("the capture holds {} records, {bytes} bytes, each played once", records.len()));
    Ok(())
}

fn capture(pair: &Pair, records: usize) -> Vec<Record> {
    let lengths = Size::Imix.lengths();
    let numbered = Numbers::new(FLOWS).take(records).enumerate();
    numbered
        .map(|(i, (flow, lap))| {
            let frame = build(&pair.addresses, lengths[i % lengths.len()], flow, lap, 0);
            (Duration::from_micros(i as u64), frame)
        })
        .collect()
}

fn play_by_socket(device: Device<'_>, records: &[Record]) -> Result<()> {
    let play = || -> Result<()> {
        let frames: Vec<&[u8]> = records.iter().map(|(_, frame)| &frame[..]).collect();
        Ok(PacketSocket::open(device.ifindex)?.send_all(&frames)?)
    };
    device.enter(play)?
}
