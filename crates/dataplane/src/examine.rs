//! How much of the kernel's limits a program takes, as the verifier counts it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use crate::error::{Doing, Result};
use crate::sys;

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    pub name: String,
    /// Number of its variant.
    pub variant: u32,
    pub verified_instructions: u32,
    pub jited_bytes: u32,
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
        let depths = part.lines().find_map(|line| line.strip_prefix("stack depth "));
        let depths = depths.unwrap_or_default().split('+').filter_map(|depth| depth.trim().parse().ok());
        frames.entry(name).or_default().push_back(depths.collect());
    }
    let mut found = Vec::new();
    for (variant, fd) in programs {
        let doing = || "examine a program".to_owned();
        let details = sys::program_details(fd.as_fd()).doing(doing)?;
        let calls = sys::calls(fd.as_fd()).doing(doing)?;
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

/// `frames` and `calls` by function; functions do not call each other in circles.
fn deepest(function: usize, frames: &[u32], calls: &[Vec<usize>]) -> u32 {
    let own = frames.get(function).copied().unwrap_or(0).max(1).next_multiple_of(16);
    let below = calls.get(function).into_iter().flatten().map(|callee| deepest(*callee, frames, calls));
    own + below.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::deepest;

    #[test]
    fn the_deepest_chain_counts() {
        let calls = vec![vec![1, 2], vec![2], vec![]];
        assert_eq!(deepest(0, &[40, 8, 100], &calls), 48 + 16 + 112);
        assert_eq!(deepest(0, &[0], &[]), 16);
    }
}
