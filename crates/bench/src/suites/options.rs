//! Options that every suite has.

use crate::method::progress::Progress;
use crate::method::result::Profile;
use crate::method::run::CONFIRMED_ROUNDS;
use crate::method::suite::Context;
use crate::report::output::OutputArgs;

/// Options that every suite has.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct CommonArgs {
    /// Seconds and rounds of each measurement [default: quick]
    #[arg(long, value_enum)]
    pub profile: Option<Profile>,
    /// Interleaved rounds [default: 3 in quick, 9 in full]; fewer than 9 make no figure worth quoting
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// Measure through these real devices: traffic goes out of A, through the machine under test, and into B
    #[arg(long = "if", value_name = "A,B", value_parser = pair)]
    pub interfaces: Option<(String, String)>,
    /// Another machine, on which `sluice bench serve` runs, receives
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && a != b && !b.contains(',') => {
            Ok((a.to_owned(), b.to_owned()))
        }
        _ => Err("two devices with a comma between them are needed, like eth1,eth2".to_owned()),
    }
}

impl CommonArgs {
    pub fn context(&self, usual: Profile, progress: Progress) -> Context {
        let profile = self.profile.unwrap_or(usual);
        let rounds = match profile {
            Profile::Quick => 3,
            Profile::Full => CONFIRMED_ROUNDS,
        };
        Context {
            profile,
            rounds: self.rounds.map_or(rounds, usize::from),
            interfaces: self.interfaces.clone(),
            peer: self.peer.clone(),
            wanted: vec![],
            progress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_devices_are_two_devices() {
        assert_eq!(pair("eth1,eth2"), Ok(("eth1".to_owned(), "eth2".to_owned())));
        for wrong in ["eth1", "eth1,", ",eth2", "eth1,eth1", "a,b,c"] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }
}
