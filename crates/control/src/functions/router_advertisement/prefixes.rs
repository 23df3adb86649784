//! Which prefixes a link is told of: those of the configuration, else those of the device's addresses; and those that have
//! gone, so that hosts give up what they made of them (RFC 9096 3.5, RFC 7084 L-13).

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use sluice_language::router_advertisement::{AdvertisedPrefix, INFINITE_S, PREFERRED_S, VALID_S};

use crate::kernel::LastingPrefix;

/// What has gone is told of for two hours at most: hosts shorten no lifetime below that (RFC 4862 5.5.3 e).
const GONE_S: u32 = 7200;

/// Lifetimes that the kernel counts down are the same as long as their ends are no further apart.
const SAME: Duration = Duration::from_secs(2);

/// Hosts make addresses of prefixes of this length alone (RFC 4862 5.5.3 d).
const AUTONOMOUS_LENGTH: u8 = 64;

/// What a link is told of one prefix, with lifetimes that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    as_of: Instant,
    prefix: AdvertisedPrefix,
    /// Lifetimes count down (RFC 4861 6.2.1), as those of addresses do; those of the configuration do not.
    passes: bool,
    pub gone: bool,
}

impl Told {
    fn fixed(prefix: AdvertisedPrefix, now: Instant) -> Self {
        Self { as_of: now, prefix, passes: false, gone: false }
    }

    /// As an advertisement has it now.
    pub fn now(&self, now: Instant) -> AdvertisedPrefix {
        if !self.passes {
            return self.prefix;
        }
        let passed = now.duration_since(self.as_of).as_secs() as u32;
        let left = |lifetime: u32| match lifetime {
            INFINITE_S => INFINITE_S,
            finite => finite.saturating_sub(passed),
        };
        let AdvertisedPrefix { valid_s, preferred_s, .. } = self.prefix;
        AdvertisedPrefix { valid_s: left(valid_s), preferred_s: left(preferred_s), ..self.prefix }
    }

    fn key(&self) -> (Ipv6Addr, u8) {
        (self.prefix.prefix, self.prefix.length)
    }

    fn is_as(&self, other: &Told, now: Instant) -> bool {
        let (mine, theirs) = (self.now(now), other.now(now));
        let near = |a: u32, b: u32| u64::from(a.abs_diff(b)) <= SAME.as_secs() && (a == 0) == (b == 0);
        (self.gone, self.passes, mine.on_link, mine.autonomous)
            == (other.gone, other.passes, theirs.on_link, theirs.autonomous)
            && near(mine.valid_s, theirs.valid_s)
            && near(mine.preferred_s, theirs.preferred_s)
    }
}

/// Of a device's address.
fn of_address(found: &LastingPrefix, now: Instant) -> Told {
    let is_permanent = found.valid_s == INFINITE_S;
    let prefix = AdvertisedPrefix {
        prefix: found.prefix,
        length: found.length,
        on_link: true,
        autonomous: found.length == AUTONOMOUS_LENGTH,
        valid_s: if is_permanent { VALID_S } else { found.valid_s },
        preferred_s: match found.preferred_s {
            INFINITE_S => PREFERRED_S.min(found.valid_s),
            finite => finite,
        },
    };
    // of an address that is there for ever the preferred lifetime may pass
    let passes = !is_permanent || found.preferred_s != INFINITE_S;
    Told { passes, ..Told::fixed(prefix, now) }
}

/// The prefixes of one link.
#[derive(Debug, Default)]
pub struct Prefixes(Vec<Told>);

impl Prefixes {
    /// Follows the configuration and the kernel; true = hosts have to be told.
    pub fn follow(&mut self, stated: &[AdvertisedPrefix], found: &[LastingPrefix], now: Instant) -> bool {
        let wanted: Vec<Told> = match stated {
            [] => found.iter().map(|found| of_address(found, now)).collect(),
            stated => stated.iter().map(|prefix| Told::fixed(*prefix, now)).collect(),
        };
        let before = std::mem::take(&mut self.0);
        let mut changed = false;
        for mut want in wanted {
            if self.0.iter().any(|told| told.key() == want.key()) {
                continue;
            }
            let was = before.iter().find(|told| told.key() == want.key());
            match was {
                Some(was) if was.is_as(&want, now) => want = *was,
                _ => changed = true,
            }
            self.0.push(want);
        }
        for was in before {
            if !self.0.iter().any(|told| told.key() == was.key()) {
                changed |= !was.gone;
                self.0.extend(gone(was, now));
            }
        }
        changed
    }

    pub fn told(&self) -> &[Told] {
        &self.0
    }

    pub fn now(&self, now: Instant) -> Vec<AdvertisedPrefix> {
        self.0.iter().map(|told| told.now(now)).collect()
    }
}

/// None = its time is over.
fn gone(was: Told, now: Instant) -> Option<Told> {
    let last = was.now(now);
    let valid_s = if was.gone { last.valid_s } else { last.valid_s.min(GONE_S) };
    let prefix = AdvertisedPrefix { valid_s, preferred_s: 0, ..last };
    (valid_s > 0).then_some(Told { as_of: now, prefix, passes: true, gone: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prefix: &str, valid_s: u32, preferred_s: u32) -> LastingPrefix {
        LastingPrefix { prefix: prefix.parse().unwrap(), length: 64, valid_s, preferred_s }
    }

    fn lifetimes(prefixes: &Prefixes, now: Instant) -> Vec<(u32, u32)> {
        prefixes.now(now).iter().map(|prefix| (prefix.valid_s, prefix.preferred_s)).collect()
    }

    #[test]
    fn lifetimes_of_addresses_pass_and_permanent_ones_have_those_of_the_rfc() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut prefixes = Prefixes::default();
        let both = [found("2001:db8:1::", 4000, 1000), found("fd00:1::", INFINITE_S, INFINITE_S)];
        assert!(prefixes.follow(&[], &both, begun));
        assert_eq!(lifetimes(&prefixes, after(100)), [(3900, 900), (VALID_S, PREFERRED_S)]);
        let later = [found("2001:db8:1::", 3899, 900), found("fd00:1::", INFINITE_S, INFINITE_S)];
        assert!(!prefixes.follow(&[], &later, after(100)), "the kernel counted, too");
        let renewed = [found("2001:db8:1::", 4000, 1000), both[1]];
        assert!(prefixes.follow(&[], &renewed, after(200)));
        assert_eq!(lifetimes(&prefixes, after(200)), [(4000, 1000), (VALID_S, PREFERRED_S)]);
    }

    #[test]
    fn a_prefix_that_went_is_told_of_until_its_time_is_over_and_for_two_hours_at_most() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut prefixes = Prefixes::default();
        prefixes.follow(
            &[],
            &[found("2001:db8:1::", 4000, 1000), found("fd00:1::", INFINITE_S, INFINITE_S)],
            begun,
        );
        assert!(prefixes.follow(&[], &[], after(10)));
        assert_eq!(lifetimes(&prefixes, after(10)), [(3990, 0), (7200, 0)]);
        assert!(!prefixes.follow(&[], &[], after(20)), "hosts were told");
        assert_eq!(lifetimes(&prefixes, after(20)), [(3980, 0), (7190, 0)]);
        prefixes.follow(&[], &[], after(4001));
        assert_eq!(lifetimes(&prefixes, after(4001)), [(3209, 0)]);
        assert!(prefixes.follow(&[], &[found("fd00:1::", 500, 400)], after(4002)), "it is back");
        assert_eq!(lifetimes(&prefixes, after(4002)), [(500, 400)]);
    }

    #[test]
    fn prefixes_of_the_configuration_hold_whatever_the_device_has() {
        let now = Instant::now();
        let stated = of_address(&found("2001:db8:2::", INFINITE_S, INFINITE_S), now).prefix;
        let mut prefixes = Prefixes::default();
        assert!(prefixes.follow(&[stated], &[found("2001:db8:1::", 4000, 1000)], now));
        assert_eq!(prefixes.now(now), [stated]);
        assert!(!prefixes.follow(&[stated], &[], now));
    }
}
