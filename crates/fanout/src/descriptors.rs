//! How many files and sockets this process may have open, and who gets which part of them.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Sockets of senders that a worker keeps open with `keep-source`, where the process may have as many.
const SOURCES: u64 = 4096;

/// Uses all that the process may have, and says how many that is.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(hard)
    });
    limit.unwrap_or_else(|error| {
        tracing::warn!(%error, "the limit of open files stays as it is");
        getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
    })
}

/// For the senders of one of so many workers. The other half is for everything else that the process does.
pub fn sources(limit: u64, workers: usize) -> usize {
    (limit / 2 / workers.max(1) as u64).clamp(1, SOURCES) as usize
}

/// This process or this machine has none left, which says nothing of whom a socket was for.
pub fn is_short_of(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_senders() {
        assert_eq!(
            [sources(1024, 2), sources(1 << 20, 64), sources(100, 2), sources(10, 64)],
            [256, 4096, 25, 1]
        );
    }
}
