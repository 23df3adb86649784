//! Which rows there are, and their names.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::harness::Hook;
use crate::packets::{Family, Protocol};

/// What a row measures; prints and parses as `xdp v4 udp established 10000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RowSpec {
    pub hook: Hook,
    pub family: Family,
    pub protocol: Protocol,
    pub kind: Kind,
    pub sessions: usize,
    /// Policies of the zone pair.
    pub rules: usize,
}

impl fmt::Display for RowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowSpec { hook, family, protocol, kind, sessions, rules } = self;
        f.write_str(&format!("{hook:?} {family:?} {protocol:?} {kind:?} {sessions}").to_lowercase())?;
        if *rules == 1 { Ok(()) } else { write!(f, " rules {rules}") }
    }
}

impl FromStr for RowSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<RowSpec> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (hook, family, protocol, kind, sessions, rules) = match words[..] {
            [hook, family, protocol, kind, sessions] => (hook, family, protocol, kind, sessions, "1"),
            [hook, family, protocol, kind, sessions, "rules", rules] => {
                (hook, family, protocol, kind, sessions, rules)
            }
            _ => bail!(
                "row `{text}` is not of the form `xdp|tc v4|v6 udp|tcp established|new|denied|miss SESSIONS [rules N]`"
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
        })
    }
}

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
        for wrong in [
            "xdp v4 udp new 1 rules",
            "xdp v4 udp established",
            "xdp v5 udp established 1",
            "xdp v4 udp established many",
        ] {
            assert!(wrong.parse::<RowSpec>().is_err(), "{wrong}");
        }
    }
}
