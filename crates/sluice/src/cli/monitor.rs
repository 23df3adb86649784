//! `monitor interface traffic`: a table that is drawn anew each second, until q or Ctrl-C; packets on their way.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_control::api::InterfaceView;
use sluice_control::api::trace::{TraceFilter, TracedPacket};
use sluice_control::operations::NoArguments;
use sluice_control::operations::interfaces::INTERFACES;

use super::grammar::{Argument, Given, Value, flag, named};
use super::out::{Done, Out, Raw};
use super::pipe::Form;
use super::shell::Shell;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::up_or_down;
use crate::trace::{self, Wanted};

const EVERY: Duration = Duration::from_secs(1);
/// In tenths of a second: how soon a key is seen.
const KEY: u8 = 1;

const PORT: Value = Value::Number(1, 65_535);
/// Packets that are told, when nobody says how many.
const USUALLY_TRACED: u64 = 100;

macro_rules! filter {
    ($($more:expr,)*) => {
        &[
            named("count", "End after so many packets", Value::Number(1, 1_000_000_000)),
            named("destination-port", "Destination port, or source port in the other direction", PORT),
            named("destination-prefix", "Destination address, or source address in the other direction", Value::Prefix),
            flag("drops", "Only packets that are dropped"),
            named("duration", "End after so many seconds", Value::Number(1, 1_000_000)),
            named("interface", "Interface they arrive on; of own packets, the one they leave by", Value::Name("interface")),
            named("port", "Port of either side", PORT),
            named("prefix", "Address of either side", Value::Prefix),
            named("protocol", "tcp, udp, icmp, icmp6 or a number", Value::Name("protocol")),
            named("source-port", "Source port, or destination port in the other direction", PORT),
            named("source-prefix", "Source address, or destination address in the other direction", Value::Prefix),
            $($more,)*
            named("zone", "Zone they come from; of own packets, the one they go to", Value::Name("zone")),
        ]
    };
}

pub const TRACED: &[Argument] = filter!();
pub const CAPTURED: &[Argument] =
    filter!(named("write-file", "Write frames and verdicts here, as pcapng", Value::Any("file")),);

fn wanted<'a>(shell: &'a Shell, given: &Given) -> Wanted<'a> {
    Wanted {
        state_dir: &shell.state_dir,
        filter: TraceFilter {
            source_prefix: given.get("source-prefix"),
            destination_prefix: given.get("destination-prefix"),
            prefix: given.get("prefix"),
            protocol: given.get("protocol"),
            source_port: given.number("source-port"),
            destination_port: given.number("destination-port"),
            port: given.number("port"),
            zone: given.get("zone"),
            interface: given.get("interface"),
        },
        drops: given.has("drops"),
        snaplen: None,
        count: given.number("count"),
        duration: given.number("duration"),
    }
}

pub fn trace(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let wanted = wanted(shell, given);
    let count = wanted.count.or(Some(USUALLY_TRACED));
    show(&Wanted { count, ..wanted }, out, trace::block)
}

pub fn capture(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let wanted = wanted(shell, given);
    match given.get("write-file") {
        None => show(&wanted, out, trace::line),
        Some(file) => {
            let told = trace::write(&Wanted { snaplen: Some(trace::LONGEST), ..wanted }, Path::new(&file))?;
            interrupt::forget();
            out.text(&told.to_string())
        }
    }
}

/// Each packet as text, or as data a line.
fn show(wanted: &Wanted<'_>, out: &mut Out, text: fn(&TracedPacket) -> String) -> Done {
    out.takes(&[Form::Text, Form::Json])?;
    let mut stopped = Ok(());
    let told = trace::follow(
        wanted,
        || (),
        |packet, _| {
            let lines = match out.form {
                Form::Json => serde_json::to_string(packet)?,
                _ => text(packet),
            };
            stopped = out.lines(&lines).and_then(|()| out.flush());
            // whoever stopped it knows why
            match stopped {
                Ok(()) => Ok(()),
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            }
        },
    )?;
    stopped?;
    interrupt::forget();
    match out.form {
        Form::Json => Ok(()),
        _ => out.line(&told.to_string()),
    }
}

pub fn traffic(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    if !out.is_terminal {
        // once: nobody is there to end it
        return out
            .show(&shell.ask(&INTERFACES, &NoArguments {})?, |list| rows(list, &BTreeMap::new(), None));
    }
    let raw = Raw::begin(Some(KEY)).map_err(Failure::failed)?;
    let mut before: Option<(Instant, BTreeMap<String, [u64; 2]>)> = None;
    while !interrupt::requested() {
        let list = shell.ask(&INTERFACES, &NoArguments {})?;
        let asked = Instant::now();
        let (counted, since) = before
            .take()
            .map_or((BTreeMap::new(), None), |(at, counted)| (counted, Some(asked.duration_since(at))));
        print!("\x1b[H\x1b[2J");
        out.lines(&rows(&list, &counted, since))?;
        out.line("")?;
        out.line("q or Ctrl-C ends this")?;
        out.flush()?;
        let counts = list.iter().map(|i| (i.name.clone(), [i.counters.received, i.counters.sent])).collect();
        before = Some((asked, counts));
        while asked.elapsed() < EVERY && !interrupt::requested() {
            if let Ok(Some(b'q' | b'Q' | 27)) = raw.key() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn rows(list: &[InterfaceView], before: &BTreeMap<String, [u64; 2]>, since: Option<Duration>) -> String {
    let mut text = format!(
        "{:<18}{:<5}{:>16}{:>11}{:>17}{:>11}\n",
        "Interface", "Link", "Input packets", "(pps)", "Output packets", "(pps)"
    );
    for i in list {
        let counts = [i.counters.received, i.counters.sent];
        let rate = |side: usize| match (before.get(&i.name), since) {
            (Some(counted), Some(since)) => {
                let packets = counts[side].saturating_sub(counted[side]) as f64;
                format!("({:.0})", packets / since.as_secs_f64())
            }
            _ => "(-)".to_owned(),
        };
        let link = up_or_down(i.link);
        text += &format!(
            "{:<18}{link:<5}{:>16}{:>11}{:>17}{:>11}\n",
            i.name,
            counts[0],
            rate(0),
            counts[1],
            rate(1)
        );
    }
    text
}
