//! Listeners of the data plane: a table without collisions, receivers with what their checksums differ by, and positions.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use sluice_abi::tables::{FanOutListener, FanOutTables};
use sluice_abi::{self as abi, FanoutLine, FanoutListener as Entry, FanoutReceiver};
use sluice_language::config::Config;
use sluice_language::fan_out::{Balance, Listener, Mode, Receiver};

use crate::ids::Pool;
use crate::words::words;
use crate::{IngressHook, PlanError, UnitInfo, balance};

/// Lines of one table of positions: room for the longest.
pub const BANK_LINES: u32 = balance::POSITIONS.div_ceil(abi::FANOUT_LINE_POSITIONS) as u32;

/// A listener of the data plane, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOutInfo {
    /// As configured under `services fan-out listener`.
    pub name: String,
    /// Where senders address their datagrams.
    pub bind: SocketAddr,
    /// How receivers are chosen.
    pub balance: Balance,
    /// Of its counters.
    pub index: u32,
    /// Name of the unit its datagrams arrive on.
    pub unit: String,
    /// Where the unit's programs run, and with them the listener.
    pub hook: IngressHook,
    /// Name, address and index of counters; the order is that of positions.
    pub receivers: Vec<(String, SocketAddr, u32)>,
    /// Receivers that have left the configuration, likewise: what they got stays in the account.
    pub former: Vec<(String, SocketAddr, u32)>,
}

/// Who is in the tables of the data plane, under names that ids are kept by.
pub(crate) struct Names {
    pub listeners: Vec<String>,
    pub receivers: Vec<String>,
}

pub(crate) fn names(config: &Config) -> Names {
    let mut names = Names { listeners: vec![], receivers: vec![] };
    for listener in config.fan_out.kernel() {
        names.listeners.push(listener.name.clone());
        names.receivers.extend(known(listener).map(|(r, address)| receiver_key(listener, r, address)));
    }
    names
}

/// Receivers whose address is known.
fn known(listener: &Listener) -> impl Iterator<Item = (&Receiver, SocketAddr)> {
    let family = listener.bind.is_ipv4();
    let receivers = listener.receivers.iter().filter_map(|r| r.address().map(|address| (r, address)));
    receivers.filter(move |(_, address)| address.is_ipv4() == family)
}

fn receiver_key(listener: &Listener, receiver: &Receiver, address: SocketAddr) -> String {
    format!("{} {} {address}", listener.name, receiver.name)
}

/// The parts of a [`receiver_key`] of this listener, with its id.
fn former(ids: &Pool, listener: &str) -> Vec<(String, SocketAddr, u32)> {
    let parts = |(key, id): (&str, u32)| {
        let (name, address) = key.strip_prefix(listener)?.strip_prefix(' ')?.rsplit_once(' ')?;
        Some((name.to_owned(), address.parse().ok()?, id))
    };
    ids.retired().filter_map(parts).collect()
}

/// Order of a table of positions; `names` are the addresses of receivers.
pub fn positions(balance: Balance, names: &[String], weights: &[u32]) -> Vec<u16> {
    match balance {
        Balance::RoundRobin => balance::sequence(weights),
        Balance::Flow | Balance::Source => balance::maglev(names, weights),
    }
}

/// Names have these numbers; `known_receivers` is the pool of their ids.
pub(crate) fn compile(
    config: &Config,
    units: &[UnitInfo],
    (listeners, receivers): (&BTreeMap<String, u32>, &BTreeMap<String, u32>),
    known_receivers: &Pool,
) -> Result<(FanOutTables, Vec<FanOutInfo>), PlanError> {
    let (mut tables, mut infos) = (FanOutTables::default(), vec![]);
    for listener in config.fan_out.kernel() {
        let unit = unit_of(listener, units)?;
        let info = FanOutInfo {
            name: listener.name.clone(),
            bind: listener.bind,
            balance: listener.balance,
            index: listeners[&listener.name],
            unit: unit.name.clone(),
            hook: unit.hook,
            receivers: known(listener)
                .map(|(r, address)| (r.name.clone(), address, receivers[&receiver_key(listener, r, address)]))
                .collect(),
            former: former(known_receivers, &listener.name),
        };
        let first_receiver = tables.receivers.len() as u32;
        tables
            .receivers
            .extend(info.receivers.iter().map(|(_, a, index)| receiver(listener.bind, *a, *index)));
        let first_line = tables.lines.len() as u32;
        tables.lines.resize((first_line + 2 * BANK_LINES) as usize, FanoutLine::default());
        let (be_addr, be_port) = endpoint(listener.bind);
        let entry = Entry {
            be_addr,
            be_port,
            unit: unit.index as u16,
            index: info.index as u16,
            family: if listener.bind.is_ipv4() { 4 } else { 6 },
            balance: match listener.balance {
                Balance::RoundRobin => abi::FANOUT_ROUND_ROBIN as u8,
                Balance::Flow => abi::FANOUT_FLOW as u8,
                Balance::Source => abi::FANOUT_SOURCE as u8,
            },
            ..Entry::default()
        };
        let receivers = info.receivers.len() as u32;
        tables.listeners.push(FanOutListener {
            slot: 0,
            entry,
            first_receiver,
            receivers,
            first_line,
            bank_lines: BANK_LINES,
        });
        let names: Vec<String> = info.receivers.iter().map(|(_, address, _)| address.to_string()).collect();
        let weights: Vec<u32> = known(listener).map(|(r, _)| r.weight.into()).collect();
        let index = tables.listeners.len() - 1;
        write_positions(&mut tables, index, &positions(listener.balance, &names, &weights));
        infos.push(info);
    }
    assign_slots(&mut tables)?;
    Ok((tables, infos))
}

/// Writes the first table of positions of a listener.
pub fn write_positions(tables: &mut FanOutTables, listener: usize, positions: &[u16]) {
    let listener = &mut tables.listeners[listener];
    for (position, receiver) in positions.iter().enumerate() {
        let line = &mut tables.lines[listener.first_line as usize + position / abi::FANOUT_LINE_POSITIONS];
        line.receiver[position % abi::FANOUT_LINE_POSITIONS] = listener.first_receiver as u16 + receiver;
    }
    listener.entry.table = u64::from(listener.first_line) << 32 | positions.len() as u64;
}

/// The unit a listener listens on. What it was promised is not changed silently.
fn unit_of<'a>(listener: &Listener, units: &'a [UnitInfo]) -> Result<&'a UnitInfo, PlanError> {
    let wanted = listener.interface.as_deref().unwrap_or_default();
    let unit = units
        .iter()
        .find(|unit| unit.name == wanted)
        .ok_or_else(|| PlanError::FanOutUnit { listener: listener.name.clone(), unit: wanted.to_owned() })?;
    let fits = match listener.mode {
        Mode::Xdp => unit.hook != IngressHook::Tc,
        Mode::TcEbpf => unit.hook == IngressHook::Tc,
        _ => true,
    };
    if fits {
        return Ok(unit);
    }
    Err(PlanError::FanOutMode {
        listener: listener.name.clone(),
        mode: listener.mode.name(),
        unit: unit.name.clone(),
        hook: unit.hook.name(),
    })
}

fn endpoint(address: SocketAddr) -> ([u32; 4], u16) {
    let be_addr = match address.ip() {
        IpAddr::V4(ip) => [u32::from_ne_bytes(ip.octets()), 0, 0, 0],
        IpAddr::V6(ip) => words(ip.octets()),
    };
    (be_addr, address.port().to_be())
}

/// Sum of 16-bit words as they lie in memory, folded (RFC 1071).
fn sum(words: impl IntoIterator<Item = u16>) -> u16 {
    let mut sum: u32 = words.into_iter().map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn halves(words: [u32; 4]) -> impl Iterator<Item = u16> {
    words.into_iter().flat_map(|word| [word as u16, (word >> 16) as u16])
}

fn receiver(listener: SocketAddr, address: SocketAddr, index: u32) -> FanoutReceiver {
    let ((old_addr, old_port), (be_addr, be_port)) = (endpoint(listener), endpoint(address));
    // RFC 1624 equation 3: the new words, and the complements of the old ones
    let address_delta = sum(halves(be_addr).chain(halves(old_addr.map(|word| !word))));
    let transport_delta = sum([address_delta, be_port, !old_port]);
    FanoutReceiver {
        be_addr,
        be_port,
        index: index as u16,
        address_delta,
        transport_delta,
        ..Default::default()
    }
}

/// How many multipliers are tried before the table is called too full.
const TRIES: u32 = 1 << 20;

/// An odd multiplier under which no two listeners share a slot.
fn assign_slots(tables: &mut FanOutTables) -> Result<(), PlanError> {
    let mut multiplier = 1u32;
    for _ in 0..TRIES {
        let slots: Vec<usize> =
            tables.listeners.iter().map(|l| abi::fanout_slot(&l.entry, multiplier)).collect();
        let distinct: std::collections::BTreeSet<_> = slots.iter().collect();
        if distinct.len() == slots.len() {
            tables.multiplier = multiplier;
            tables.listeners.iter_mut().zip(slots).for_each(|(listener, slot)| listener.slot = slot);
            return Ok(());
        }
        // A step that visits every odd number.
        multiplier = multiplier.wrapping_mul(0xd9f5_0b35).wrapping_add(0x9e37_79ba) | 1;
    }
    Err(PlanError::FanOutTable { listeners: tables.listeners.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole sum of a header before and after, as a receiver computes it.
    fn updated(check: u16, delta: u16) -> u16 {
        !sum([!check, delta])
    }

    #[test]
    fn deltas_keep_checksums_right() {
        for (from, to) in [
            ("192.0.2.1:514", "198.51.100.7:5514"),
            ("10.0.0.1:1", "10.0.0.2:1"),
            ("[2001:db8::1]:53", "[fd00::ffff:1]:65535"),
            ("255.255.255.254:65535", "0.0.0.1:1"),
        ] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let receiver = receiver(from, to, 0);
            let whole = |address: SocketAddr, rest: u16| {
                let (words, port) = endpoint(address);
                !sum(halves(words).chain([port, rest]))
            };
            for rest in [0, 1, 0x1234, 0xfffe] {
                let check = updated(whole(from, rest), receiver.transport_delta);
                assert_eq!(sum([check, !whole(to, rest)]) % 0xffff, 0, "{from} {to} {rest:#x}");
            }
        }
    }

    #[test]
    fn turns_stand_in_lines() {
        let listener = FanOutListener {
            slot: 0,
            entry: Entry::default(),
            first_receiver: 7,
            receivers: 3,
            first_line: 4,
            bank_lines: BANK_LINES,
        };
        let mut tables = FanOutTables {
            listeners: vec![listener],
            lines: vec![FanoutLine::default(); 4 + BANK_LINES as usize],
            ..Default::default()
        };
        let positions: Vec<u16> = (0..100).map(|n| n % 3).collect();
        write_positions(&mut tables, 0, &positions);
        assert_eq!(tables.listeners[0].entry.table, 4 << 32 | 100);
        assert_eq!((tables.lines[4].receiver[31], tables.lines[5].receiver[0]), (7 + 31 % 3, 7 + 32 % 3));
    }
}
