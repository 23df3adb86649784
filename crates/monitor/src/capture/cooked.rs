//! Interfaces of a capture with LINKTYPE_LINUX_SLL2 (`tcpdump -i any`): each frame's header says by which it came.

use std::collections::HashMap;

use sluice_wire::cooked::v2::HEADER;
use sluice_wire::fields::be32;

use crate::frame::{Batch, LinkType};

/// Number of the interface that the frame came by or went to.
const IFINDEX: std::ops::Range<usize> = 4..8;

/// Numbers of the interfaces, in the order in which they appear. The first keeps the number that the file gives.
#[derive(Debug, Default)]
pub(super) struct Cooked {
    numbers: HashMap<(u16, u32), u16>,
    next: u16,
}

impl Cooked {
    /// Numbers the interfaces of a batch, if it is of such a capture.
    pub fn number(&mut self, batch: &mut Batch) {
        if batch.records().first().is_none_or(|record| record.link != LinkType::LinuxCooked2) {
            return;
        }
        let (numbers, next) = (&mut self.numbers, &mut self.next);
        batch.number_interfaces(|record, data| {
            let header: Option<&[u8; HEADER]> = data.first_chunk();
            let (LinkType::LinuxCooked2, Some(header)) = (record.link, header) else {
                return record.interface;
            };
            let number = (*next).max(record.interface);
            *numbers.entry((record.interface, be32(header, IFINDEX))).or_insert_with(|| {
                *next = number.saturating_add(1);
                number
            })
        });
    }
}
