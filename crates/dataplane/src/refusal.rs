//! Why a device takes no XDP program, and what helps.

use std::io;
use std::os::fd::BorrowedFd;

use sluice_libbpf::device::{try_xdp, xdp};
use sluice_libbpf::{Target, program};

use crate::error::Error;
use crate::{objects, sys};

pub(crate) fn explain(program: BorrowedFd<'_>, ifindex: u32, target: Target, source: io::Error) -> Error {
    let interface = sys::interface_name(ifindex);
    let taken = matches!(source.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
    match xdp(ifindex) {
        Ok(state) if taken && state.program_id != 0 => {
            let program_id = state.program_id;
            let program_name = program::name_of(program_id).unwrap_or_default();
            Error::HookTaken { interface, program_id, program_name, mode: state.mode.name() }
        }
        _ => {
            let mode = if target == Target::XdpNative { "native" } else { "generic" };
            let words = words_in(&objects::said_during(|| {
                if let Err(error) = try_xdp(program, ifindex, target) {
                    tracing::debug!(%error, interface, "refused again");
                }
            }));
            let cure = cure(words.as_deref().unwrap_or_default(), &interface);
            Error::Xdp { interface, mode, words, cure, source }
        }
    }
}

/// The text that comes with a refusal in netlink's extended acknowledgement, as libbpf tells it.
fn words_in(said: &str) -> Option<String> {
    let told = said.lines().find_map(|line| line.split_once("Kernel error message: "))?;
    Some(told.1.trim().to_owned()).filter(|words| !words.is_empty())
}

/// By words that drivers use. The first that fits.
const CURES: [(&str, &str); 7] = [
    (
        "peer tx queues",
        "give it as many receive queues as its other end sends by (`ethtool -L {} rx N`), or that end fewer \
         (`ethtool -L DEVICE tx N` there)",
    ),
    ("channel", "halve its channels (`ethtool -l {}` lists them, `ethtool -L {} combined N` sets them)"),
    ("queue", "change its queues (`ethtool -l {}` lists them, `ethtool -L {}` sets them)"),
    ("peer mtu", "lower the MTU of its other end"),
    ("mtu", "lower its MTU: `set interfaces {} mtu 3498` suits most drivers with pages of 4 KB"),
    ("lro", "`ethtool -K {} lro off`"),
    ("gro_hw", "`ethtool -K {} rx-gro-hw off`"),
];

fn cure(words: &str, interface: &str) -> String {
    const OTHERWISE: &str = "or use mode tc, which works everywhere";
    let words = words.to_lowercase();
    match CURES.iter().find(|(word, _)| words.contains(word)) {
        Some((_, cure)) => format!("{}, {OTHERWISE}", cure.replace("{}", interface)),
        None => "its driver may have said more to `dmesg`; mode tc works everywhere".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_say_has_a_cure() {
        let said = "libbpf: Kernel error message: veth: Peer MTU is too large to set XDP\n";
        assert_eq!(words_in(said).unwrap(), "veth: Peer MTU is too large to set XDP");
        assert_eq!(words_in("libbpf: something else\n"), None);
        for (words, has) in [
            ("XDP expects number of rx queues not less than peer tx queues", "ethtool -L a0 rx N"),
            ("the Rx/Tx channel count should be at most half of the maximum", "ethtool -L a0 combined N"),
            ("the current MTU is larger than the maximum allowed MTU", "set interfaces a0 mtu 3498"),
            ("Peer MTU is too large to set XDP", "MTU of its other end"),
            ("XDP is not supported with LRO", "ethtool -K a0 lro off"),
            ("Can't set XDP while host is implementing GRO_HW/CSUM", "ethtool -K a0 rx-gro-hw off"),
            ("", "dmesg"),
        ] {
            let cure = cure(words, "a0");
            assert!(cure.contains(has) && cure.contains("mode tc"), "{words}: {cure}");
        }
    }
}
