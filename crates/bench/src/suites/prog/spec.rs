//! Which rows there are, and their names.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::generator::harness::Hook;
use crate::generator::packets::{Family, Protocol};

/// What a row measures; prints and parses as `xdp v4 udp established 10000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RowSpec {
    /// Of the programs.
    pub hook: Hook,
    /// Of the packets.
    pub family: Family,
    /// Of the packets.
    pub protocol: Protocol,
    /// Which packets they are.
    pub kind: Kind,
    /// Sessions in the table.
    pub sessions: usize,
    /// Policies of the zone pair.
    pub rules: usize,
    /// Of the zone that packets come from.
    pub screens: Screens,
}

/// What the zone's screens look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Screens {
    /// Nothing.
    #[default]
    Off,
    /// All that look at one packet, floods of SYNs and ICMP, sweeps and scans
    On,
    /// Floods of UDP, which count every datagram
    UdpFlood,
}

impl Screens {
    /// As a row's name ends.
    fn word(self) -> Option<&'static str> {
        match self {
            Screens::Off => None,
            Screens::On => Some("screens"),
            Screens::UdpFlood => Some("udp-flood"),
        }
    }

    fn of_word(word: &str) -> Option<Screens> {
        [Screens::On, Screens::UdpFlood].into_iter().find(|screens| screens.word() == Some(word))
    }
}

impl fmt::Display for RowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowSpec { hook, family, protocol, kind, sessions, rules, screens } = self;
        f.write_str(&format!("{hook:?} {family:?} {protocol:?} {kind:?} {sessions}").to_lowercase())?;
        if *rules != 1 {
            write!(f, " rules {rules}")?;
        }
        screens.word().map_or(Ok(()), |word| write!(f, " {word}"))
    }
}

impl FromStr for RowSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<RowSpec> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let screens = words.last().and_then(|word| Screens::of_word(word)).unwrap_or_default();
        if screens != Screens::Off {
            words.pop();
        }
        let (hook, family, protocol, kind, sessions, rules) = match words[..] {
            [hook, family, protocol, kind, sessions] => (hook, family, protocol, kind, sessions, "1"),
            [hook, family, protocol, kind, sessions, "rules", rules] => {
                (hook, family, protocol, kind, sessions, rules)
            }
            _ => bail!(
                "row `{text}` is not of the form `xdp|tc v4|v6 udp|tcp established|new|denied|miss SESSIONS [rules N] \
                 [screens|udp-flood]`"
            ),
        };
        let wrong = |error: String| anyhow!("row `{text}`: {error}");
        Ok(RowSpec {
            hook: Hook::from_str(hook, false).map_err(wrong)?,
            family: Family::from_str(family, false).map_err(wrong)?,
            protocol: Protocol::from_str(protocol, false).map_err(wrong)?,
            kind: Kind::from_str(kind, false).map_err(wrong)?,
            sessions: sessions.parse().with_context(|| format!("row `{text}`: number of sessions"))?,
            rules: rules.parse().with_context(|| format!("row `{text}`: number of policies"))?,
            screens,
        })
    }
}

/// Which packets a row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Packets of sessions that exist
    Established,
    /// First packets, each of a session of its own
    New,
    /// First packets that no policy permits
    Denied,
    /// TCP segments of connections that the tables do not know
    Miss,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_read_back() {
        let text = "tc v6 tcp new 1000000 rules 10";
        let spec: RowSpec = text.parse().unwrap();
        assert_eq!(spec.rules, 10);
        assert_eq!((spec.hook, spec.family, spec.protocol), (Hook::Tc, Family::V6, Protocol::Tcp));
        assert_eq!((spec.kind, spec.sessions), (Kind::New, 1_000_000));
        assert_eq!(spec.to_string(), text);
        for text in ["xdp v4 udp established 1 screens", "tc v4 udp new 5 rules 7 udp-flood"] {
            assert_eq!(text.parse::<RowSpec>().unwrap().to_string(), text);
        }
        for wrong in [
            "xdp v4 udp new 1 screens rules 2",
            "xdp v4 udp new 1 rules",
            "xdp v4 udp established",
            "xdp v5 udp established 1",
            "xdp v4 udp established many",
        ] {
            assert!(wrong.parse::<RowSpec>().is_err(), "{wrong}");
        }
    }
}
