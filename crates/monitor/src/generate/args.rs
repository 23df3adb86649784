//! `sluice pcap generate`.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::frame::{Frame, LinkType};

use super::truth::{self, Tally, Totals};
use super::writer::{CaptureWriter, Interface, formats_of};
use super::{Generator, Mix, Options, Size};

/// Makes a capture with planted faults, and the truth about them as JSON beside it.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Frames in the capture.
    #[arg(long, default_value_t = 1_000_000)]
    pub packets: u64,
    /// Senders; every two of them talk to each other.
    #[arg(long, default_value_t = 100)]
    pub flows: u32,
    #[arg(long, value_enum, default_value = "mixed")]
    pub(crate) protocol: Mix,
    /// Length of frames in bytes without FCS, or imix.
    #[arg(long, default_value = "imix")]
    pub size: Size,
    /// Share of numbers that never come, 0 to 0.2.
    #[arg(long, default_value_t = 0.0)]
    pub loss: f64,
    /// Share of packets that come after later ones.
    #[arg(long, default_value_t = 0.0)]
    pub reorder: f64,
    /// Share of packets that come twice within a fifth of a second.
    #[arg(long, default_value_t = 0.0)]
    pub duplicate: f64,
    /// Share of packets that come again two seconds later or below the window of 512 numbers.
    #[arg(long, default_value_t = 0.0)]
    pub replay: f64,
    /// Packets of a flow under one key; 0: keys never change.
    #[arg(long, default_value_t = 0)]
    pub rekey: u32,
    /// VLAN identifier of all frames; two for QinQ, the outer one first.
    #[arg(long, value_delimiter = ',', value_name = "ID[,ID]")]
    pub vlan: Vec<u16>,
    /// The same seed makes the same bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Packets per second of capture time. Left out, the capture spans ten seconds, or more above 1,000,000.
    #[arg(long)]
    pub rate: Option<u64>,
    /// A name that ends in .pcap or .pcapng, and .gz or .zst after it to compress.
    #[arg(long)]
    pub output: PathBuf,
}

impl GenerateArgs {
    /// Not checked yet; that is done where generating starts.
    pub fn options(&self) -> Options {
        Options {
            packets: self.packets,
            flows: self.flows,
            protocol: self.protocol,
            size: self.size,
            loss: self.loss,
            reorder: self.reorder,
            duplicate: self.duplicate,
            replay: self.replay,
            rekey: self.rekey,
            vlans: self.vlan.clone(),
            seed: self.seed,
            rate: self.rate,
        }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Path of the JSON file beside the capture.
    pub truth: PathBuf,
    /// What was planted and made.
    pub totals: Totals,
}

/// Where the truth about a capture is.
pub fn truth_path(capture: &Path) -> PathBuf {
    let name = capture.file_name().unwrap_or_default().to_string_lossy();
    let end = name.find(".pcap").unwrap_or(name.len());
    capture.with_file_name(format!("{}.truth.json", &name[..end]))
}

/// Writes the capture and its truth.
pub fn generate(options: Options, output: &Path) -> anyhow::Result<Generated> {
    let Some((format, packing)) = formats_of(output) else {
        bail!(
            "{}: expected a name that ends in .pcap or .pcapng, with .gz or .zst after it",
            output.display()
        );
    };
    let command = command(&options);
    let mut generator = Generator::new(options)?;
    let path = truth_path(output);
    let no_file = |path: &Path| format!("{} could not be written", path.display());
    let mut truth = File::create(&path)
        .and_then(|file| truth::Writer::new(BufWriter::with_capacity(1 << 18, file), &command))
        .with_context(|| no_file(&path))?;
    let interface = Interface { link: LinkType::Ethernet, name: "generated".to_owned() };
    CaptureWriter::create(output, format, packing, &[interface])
        .and_then(|writer| write_frames(&mut generator, writer, &mut truth))
        .with_context(|| no_file(output))?;
    let (clear, totals) = (generator.clear(), generator.totals());
    truth.finish(generator.tallies().map(Tally::channel), &clear, &totals).with_context(|| no_file(&path))?;
    Ok(Generated { truth: path, totals })
}

fn write_frames(
    generator: &mut Generator,
    mut writer: CaptureWriter,
    truth: &mut dyn truth::Record,
) -> io::Result<()> {
    let (mut data, mut number) = (Vec::with_capacity(16 << 10), 0);
    while let Some(time_ns) = generator.next(&mut data, truth)? {
        number += 1;
        let wire_len = data.len() as u32;
        let frame = Frame { time_ns, interface: 0, wire_len, link: LinkType::Ethernet, data: &data, number };
        writer.write(&frame, None)?;
        data.clear();
    }
    writer.finish()
}

/// The command line that makes the same capture.
fn command(options: &Options) -> String {
    let Options { packets, flows, loss, reorder, duplicate, replay, rekey, seed, .. } = options;
    let protocol = serde_json::to_value(options.protocol).unwrap_or_default();
    let size = match options.size {
        Size::Fixed(size) => size.to_string(),
        Size::Imix => "imix".to_owned(),
    };
    let vlans = match &options.vlans[..] {
        [] => String::new(),
        [only] => format!(" --vlan {only}"),
        [outer, inner, ..] => format!(" --vlan {outer},{inner}"),
    };
    format!(
        "sluice pcap generate --packets {packets} --flows {flows} --protocol {} --size {size} --loss {loss} \
         --reorder {reorder} --duplicate {duplicate} --replay {replay} --rekey {rekey}{vlans} --seed {seed} \
         --rate {}",
        protocol.as_str().unwrap_or_default(),
        options.rate()
    )
}
