//! How much of the kernel's limits a program takes, as the verifier counts it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use sluice_libbpf::program;

use crate::error::{Doing, Result};

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// As the kernel has it: the first 15 characters.
    pub name: String,
    /// Number of its variant.
    pub variant: u32,
    /// Instructions that the verifier looked at; a million is its limit.
    pub verified_instructions: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
    /// How many maps it refers to.
    pub maps: usize,
    /// Bytes of the deepest chain of calls, as the kernel counts them: each frame in steps of 16 or 32.
    pub stack: u32,
}

/// Each program with what `log` says of it, which lists those of a name in the same order.
pub(crate) fn accounts<'a>(
    programs: impl Iterator<Item = (u32, &'a OwnedFd)>,
    log: &str,
) -> Result<Vec<Examined>> {
    let mut frames: BTreeMap<&str, VecDeque<Vec<u32>>> = BTreeMap::new();
    for part in log.split("prog '").skip(1) {
        let name = part.split('\'').next().unwrap_or_default();
        frames.entry(name).or_default().push_back(depths(part));
    }
    let mut found = Vec::new();
    for (variant, fd) in programs {
        let doing = || "examine a program".to_owned();
        let details = program::details(fd.as_fd()).doing(doing)?;
        let calls = program::calls(fd.as_fd()).doing(doing)?;
        let frames = frames.get_mut(details.name.as_str()).and_then(VecDeque::pop_front);
        found.push(Examined {
            stack: frames.map_or(0, |frames| deepest(0, &frames, &calls)),
            name: details.name,
            variant,
            verified_instructions: details.verified_instructions,
            jited_bytes: details.jited_bytes,
            maps: details.map_ids.len(),
        });
    }
    Ok(found)
}

/// Stack of each function in a program's part of the log: `stack depth 16+32`, or from Linux 7 on a line a function,
/// `subprog 0 (name) main ... stack 16`.
fn depths(part: &str) -> Vec<u32> {
    let lines = part.lines().filter(|line| line.starts_with("subprog "));
    let own: Vec<u32> = lines.filter_map(|line| line.rsplit_once(" stack ")?.1.trim().parse().ok()).collect();
    if !own.is_empty() {
        return own;
    }
    let line = part.lines().find_map(|line| line.strip_prefix("stack depth "));
    line.unwrap_or_default().split('+').filter_map(|depth| depth.trim().parse().ok()).collect()
}

/// `frames` and `calls` by function; functions do not call each other in circles.
fn deepest(function: usize, frames: &[u32], calls: &[Vec<usize>]) -> u32 {
    let own = frames.get(function).copied().unwrap_or(0).max(1).next_multiple_of(16);
    let below = calls.get(function).into_iter().flatten().map(|callee| deepest(*callee, frames, calls));
    own + below.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{deepest, depths};

    #[test]
    fn kernels_say_it_in_two_ways() {
        assert_eq!(depths("p': BPF program load log\nstack depth 40+8\nprocessed 3 insns"), [40, 8]);
        let lines = "p': log\nstack depth max 48\nsubprog 0 (p) main insns_self 9 insns_total 12 stack 40\n\
                     subprog 1 (q) static insns_self 3 insns_total 3 stack 8\nprocessed 12 insns";
        assert_eq!(depths(lines), [40, 8]);
    }

    #[test]
    fn the_deepest_chain_counts() {
        let calls = vec![vec![1, 2], vec![2], vec![]];
        assert_eq!(deepest(0, &[40, 8, 100], &calls), 48 + 16 + 112);
        assert_eq!(deepest(0, &[0], &[]), 16);
    }
}
