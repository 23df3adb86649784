//! What must hold for any bytes that are called a capture: nothing panics, every frame is accounted for once, and the
//! result does not depend on the number of workers.
//!
//! `tests/mutations.rs` runs it over mutated captures within bounds, `examples/fuzz_captures.rs` for as long as one likes.

use std::path::Path;

use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::capture;
use sluice_monitor::generate::{self, Mix, Size, generate};
use sluice_monitor::summary::{Sink, Summary, Update};

/// Adds up what updates say.
#[derive(Default)]
struct Sum {
    packets: u64,
    unknown: u64,
}

impl Sink for Sum {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.packets += update.deltas.iter().map(|delta| delta.counts.packets).sum::<u64>();
        self.unknown += update.interval.unknown;
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Analyses `bytes` as a file in `folder`. Err = what does not hold.
pub fn exercise(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let path = folder.join("input");
    std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
    let (one, several) = (analysed(&path, 1)?, analysed(&path, 3)?);
    if one != several {
        return Err(format!("one worker says {one:?}, three say {several:?}"));
    }
    Ok(())
}

/// Frames, packets and losses; none where the input is refused as a whole.
fn analysed(path: &Path, workers: usize) -> Result<Option<[i128; 6]>, String> {
    let Ok(mut source) = capture::open(&path.to_string_lossy()) else { return Ok(None) };
    // Few channels, so that evictions happen; equal shares, so that they do not depend on the workers' number.
    let options = Options {
        workers,
        max_channels: 4096,
        expect_protected: true,
        mtu: Some(1500),
        ..Options::default()
    };
    let mut sum = Sum::default();
    let Ok(summary) = analyze(&mut *source, &options, &mut sum, &Control::default()) else { return Ok(None) };
    let unknown: u64 = summary.unknown.iter().map(|count| count.frames).sum();
    if summary.frames != summary.counts.packets + unknown {
        return Err(format!(
            "{} frames, {} in channels, {unknown} unknown",
            summary.frames, summary.counts.packets
        ));
    }
    if (sum.packets, sum.unknown) != (summary.counts.packets, unknown) {
        return Err(format!(
            "intervals say {} and {}, the summary {} and {unknown}",
            sum.packets, sum.unknown, summary.counts.packets
        ));
    }
    let counts = summary.counts;
    let numbers =
        [summary.frames, counts.packets, counts.late, counts.duplicates + counts.replays, counts.reused];
    let [frames, packets, late, again, reused] = numbers.map(i128::from);
    Ok(Some([frames, packets, late, again, reused, counts.lost.into()]))
}

/// Small captures of every protocol, in both formats.
pub fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let mut corpus = vec![];
    for (at, mix) in [Mix::Macsec, Mix::Ipsec, Mix::Mixed, Mix::Gtpu].into_iter().enumerate() {
        for (name, vlans) in [("a.pcap", vec![]), ("b.pcapng", vec![100, 42])] {
            let path = folder.join(name);
            let options = generate::Options {
                packets: 400,
                flows: 2,
                protocol: mix,
                size: Size::Fixed(120),
                loss: 0.05,
                reorder: 0.05,
                duplicate: 0.05,
                replay: 0.05,
                rekey: if mix == Mix::Gtpu { 0 } else { 64 },
                vlans,
                seed: at as u64,
                rate: Some(20),
            };
            generate(options, &path).expect("the folder is writable");
            corpus.push(std::fs::read(&path).expect("just written"));
        }
    }
    corpus
}

/// Values that lengths and counters are most often wrong with.
const TELLING: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// Changes `bytes` in one way; `other` lends a part.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: [usize; 4]) {
    let [kind, a, b, c] = numbers;
    if bytes.is_empty() {
        return bytes.extend_from_slice(other);
    }
    let at = a % bytes.len();
    let end = (at + b % 64).min(bytes.len());
    match kind % 7 {
        0 => bytes[at] ^= 1 << (b % 8),
        1 => bytes[at] = b as u8,
        2 => bytes.truncate(at.max(24)),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let value = TELLING[c % TELLING.len()];
            let value = if b.is_multiple_of(2) { value.to_le_bytes() } else { value.to_be_bytes() };
            let room = (bytes.len() - at).min([1, 2, 4, 4][c / 8 % 4]);
            bytes[at..at + room].copy_from_slice(&value[..room]);
        }
        5 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let from = c % other.len().max(1);
            let part = &other[from..(from + b % 256).min(other.len())];
            bytes.splice(at..end, part.iter().copied());
        }
    }
}
