//! `monitor interface traffic`: a table that is drawn anew each second, until q or Ctrl-C.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_control::api::InterfaceView;
use sluice_control::operations::NoArguments;
use sluice_control::operations::interfaces::INTERFACES;

use super::grammar::Given;
use super::out::{Done, Out, Raw};
use super::shell::Shell;
use crate::exit::Failure;
use crate::interrupt;

const EVERY: Duration = Duration::from_secs(1);
/// In tenths of a second: how soon a key is seen.
const KEY: u8 = 1;

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
        let link = if i.up { "up" } else { "down" };
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
