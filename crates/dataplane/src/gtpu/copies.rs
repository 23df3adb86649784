//! Other ends of tunnels that copies go into: sets of rules name them, and flows, see bpf/gtpu/duplicate.h.

use std::slice;

use sluice_abi::GtpuRules;

use super::{Book, Gtpu, GtpuRefused, Peer, entry_of, peer_of};

/// Of all of these; 0 = there are no copies.
fn numbers(rules: &[GtpuRules]) -> impl Iterator<Item = u32> {
    rules.iter().flat_map(|rules| rules.copy_peer).map(u32::from).filter(|number| *number != 0)
}

impl Book {
    /// What a new set of rules names has one user more.
    pub(super) fn share_of(&mut self, rules: &GtpuRules) -> Result<(), GtpuRefused> {
        let filters = u32::from(rules.filters);
        if filters != 0 && !self.flows.filters.share(filters) {
            return Err(GtpuRefused::NoFilters);
        }
        let shared = self.share_copies(slice::from_ref(rules));
        if shared.is_err() {
            self.flows.filters.leave(filters);
        }
        shared
    }

    /// What new rules name, or new flows, has one user more for each time.
    pub(super) fn share_copies(&mut self, rules: &[GtpuRules]) -> Result<(), GtpuRefused> {
        for (shared, number) in numbers(rules).enumerate() {
            if !self.peers.share(number) {
                for number in numbers(rules).take(shared) {
                    self.peers.leave(number);
                }
                return Err(GtpuRefused::NoCopies);
            }
        }
        Ok(())
    }

    /// Nobody has these any more.
    pub(super) fn leave_copies(&mut self, rules: &[GtpuRules]) {
        for number in numbers(rules) {
            self.peers.leave(number);
        }
    }
}

impl Gtpu {
    /// From now on sessions may have rules whose copies go to these: their numbers in order. Those of the last call are gone
    /// when no session's rules name them.
    ///
    /// # Errors
    /// When there is no room for so many; then the old ones stay.
    pub fn keep_copies(&self, peers: impl IntoIterator<Item = Peer>) -> Result<Vec<u16>, GtpuRefused> {
        let mut book = self.book();
        let mut kept = vec![];
        for peer in peers {
            let taken = entry_of(&peer).and_then(|entry| Ok((entry, book.peers.take(peer)?)));
            let (entry, (number, is_new)) = taken.inspect_err(|_| {
                for number in &kept {
                    book.peers.leave(*number);
                }
            })?;
            if is_new {
                self.peers.write(number, entry);
            }
            kept.push(number);
        }
        let numbers = kept.iter().map(|number| *number as u16).collect();
        for number in std::mem::replace(&mut book.copies, kept) {
            book.peers.leave(number);
        }
        Ok(numbers)
    }

    /// Those of rules that an earlier process has written, or of flows.
    pub(super) fn note_copies(&self, book: &mut Book, rules: &[GtpuRules]) {
        for number in numbers(rules).filter(|number| *number < self.peers.len()) {
            if let Some(peer) = peer_of(&self.peers.read(number)) {
                book.peers.use_of(number, peer);
            }
        }
    }
}
