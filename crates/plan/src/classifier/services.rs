//! Classes of services: what a packet's protocol, ports or ICMP type satisfy of all lists of terms.

use std::collections::HashMap;

use sluice_abi as abi;
use sluice_language::config::Service;

use super::TooMuch;
use super::words::Words;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Ports, or ICMP type and code together.
const VALUES: usize = 1 << 16;

/// Distinct lists of terms by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    lists: Vec<Vec<Service>>,
    numbers: HashMap<Vec<Key>, u32>,
}

/// A term without what decides nothing.
type Key = (Option<u8>, (u16, u16), (u16, u16), Option<(u8, u8)>, Option<(u8, u8)>);

fn key(term: &Service) -> Key {
    (term.protocol, term.source_port, term.destination_port, term.icmp_type, term.icmp_code)
}

/// A rectangle of what one list wants of one protocol: `x` is what [`abi::ClassProtocol`] says, `y` the source port.
#[derive(Debug, Clone, Copy)]
struct Box {
    set: u32,
    x: (u16, u16),
    y: (u16, u16),
}

/// Where lists of sets begin to hold, along one axis.
struct Axis {
    /// First values of the intervals.
    starts: Vec<u16>,
    /// Boxes of each interval.
    boxes: Vec<Vec<usize>>,
}

const ALL: (u16, u16) = (0, u16::MAX);

impl Sets {
    pub fn number(&mut self, list: &[Service]) -> u32 {
        let mut keys: Vec<Key> = list.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        *self.numbers.entry(keys).or_insert_with(|| {
            self.lists.push(list.to_vec());
            self.lists.len() as u32 - 1
        })
    }

    /// Writes the tables of all protocols, and returns the lists that each class satisfies.
    pub fn classify(&self, words: &mut Words) -> Result<Vec<Vec<u32>>, TooMuch> {
        let mut classes = Interned::default();
        // Protocols that no term names in particular look the same.
        let plain = words.list(vec![classes.number(&self.of_any_protocol())]);
        let everywhere = words.list(vec![plain; 256]);
        for protocol in 0..=u8::MAX {
            let boxes = self.boxes(protocol);
            let offset = abi::CLASS_PROTOCOLS + usize::from(protocol) * abi::CLASS_PROTOCOL_WORDS;
            let header = if self.lists.iter().flatten().any(|term| term.protocol == Some(protocol)) {
                self.protocol(protocol, &boxes, words, &mut classes)?
            } else {
                [everywhere, 0, abi::CLASS_KEY_PROTOCOL, 0]
            };
            words.write(offset, &header);
        }
        Ok(classes.members)
    }

    fn of_any_protocol(&self) -> Vec<u32> {
        let any = |list: &Vec<Service>| list.iter().any(|term| term.protocol.is_none());
        (0..).zip(&self.lists).filter(|(_, list)| any(list)).map(|(number, _)| number).collect()
    }

    fn boxes(&self, protocol: u8) -> Vec<Box> {
        let mut boxes = vec![];
        for (set, list) in (0..).zip(&self.lists) {
            for term in list.iter().filter(|term| term.protocol.is_none_or(|p| p == protocol)) {
                boxes.extend(term_boxes(term).map(|(x, y)| Box { set, x, y }));
            }
        }
        boxes
    }

    fn protocol(
        &self,
        protocol: u8,
        boxes: &[Box],
        words: &mut Words,
        classes: &mut Interned,
    ) -> Result<[u32; 4], TooMuch> {
        let rows = axis(boxes, |b| b.x);
        let columns = axis(boxes, |b| b.y);
        if rows.starts.len() * columns.starts.len() > abi::MAX_SERVICE_CELLS {
            let (rows, columns) = (rows.starts.len(), columns.starts.len());
            return Err(TooMuch::Services { protocol, rows, columns });
        }
        let kind = if is_icmp(protocol) { abi::CLASS_KEY_ICMP } else { abi::CLASS_KEY_PORT };
        let offsets: Vec<u32> = rows
            .boxes
            .iter()
            .map(|here| {
                let cell = |column: usize| {
                    let start = columns.starts[column];
                    let holds = |b: &Box| b.y.0 <= start && start <= b.y.1;
                    let mut sets: Vec<u32> =
                        here.iter().map(|n| boxes[*n]).filter(holds).map(|b| b.set).collect();
                    sets.sort_unstable();
                    sets.dedup();
                    classes.number(&sets)
                };
                words.list((0..columns.starts.len()).map(cell).collect())
            })
            .collect();
        let rows = words.list(spread(&rows.starts, &offsets));
        let numbers: Vec<u32> = (0..columns.starts.len() as u32).collect();
        let columns =
            if columns.starts.len() == 1 { 0 } else { words.list(spread(&columns.starts, &numbers)) };
        Ok([rows, columns, kind, 0])
    }
}

pub(super) fn is_icmp(protocol: u8) -> bool {
    protocol == ICMP || protocol == ICMPV6
}

/// ICMP types times codes are a box for each type.
fn term_boxes(term: &Service) -> impl Iterator<Item = ((u16, u16), (u16, u16))> {
    let types = term.protocol.is_some_and(is_icmp).then(|| term.icmp_type.unwrap_or((0, u8::MAX)));
    let codes = term.icmp_code.unwrap_or((0, u8::MAX));
    let of_type = move |kind: u8| {
        let at = |code: u8| u16::from_be_bytes([kind, code]);
        ((at(codes.0), at(codes.1)), ALL)
    };
    let icmp = types.into_iter().flat_map(|(low, high)| low..=high).map(of_type);
    let ports = match (types, term.protocol) {
        (Some(_), _) => None,
        // Terms of any protocol have no ports.
        (None, None) => Some((ALL, ALL)),
        (None, Some(_)) => Some((term.destination_port, term.source_port)),
    };
    icmp.chain(ports)
}

fn axis(boxes: &[Box], side: impl Fn(&Box) -> (u16, u16)) -> Axis {
    let mut starts: Vec<u16> = vec![0];
    for b in boxes {
        let (low, high) = side(b);
        starts.push(low);
        starts.extend(high.checked_add(1));
    }
    starts.sort_unstable();
    starts.dedup();
    let mut inside = vec![vec![]; starts.len()];
    for (number, b) in boxes.iter().enumerate() {
        let (low, high) = side(b);
        let from = starts.partition_point(|start| *start < low);
        let to = starts.partition_point(|start| *start <= high);
        inside[from..to].iter_mut().for_each(|list| list.push(number));
    }
    Axis { starts, boxes: inside }
}

/// A word for each of the 65,536 values.
fn spread(starts: &[u16], words: &[u32]) -> Vec<u32> {
    let ends = starts.iter().skip(1).map(|start| usize::from(*start)).chain([VALUES]);
    let runs = starts.iter().zip(ends).zip(words);
    runs.flat_map(|((start, end), word)| std::iter::repeat_n(*word, end - usize::from(*start))).collect()
}

/// Lists of sets by class.
#[derive(Default)]
struct Interned {
    numbers: HashMap<Vec<u32>, u32>,
    members: Vec<Vec<u32>>,
}

impl Interned {
    fn number(&mut self, sets: &[u32]) -> u32 {
        if let Some(number) = self.numbers.get(sets) {
            return *number;
        }
        let number = self.members.len() as u32;
        self.numbers.insert(sets.to_vec(), number);
        self.members.push(sets.to_vec());
        number
    }
}
