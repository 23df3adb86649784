//! Routes to prefixes that the DHCPv6 server has delegated: they come with a lease and go with it, whatever Kea does meanwhile.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use sluice_language::Config;
use sluice_language::dhcp_server::Family;
use sluice_plan::RouteWant;

use crate::commit::Shared;
use crate::functions::dhcp_server::delegated::{self, NextHops};
use crate::functions::dhcp_server::leases::{self, Lease};
use crate::functions::dhcp_server::process::Place;
use crate::kernel::clock::unix_ms;

/// Files are read again after so long also where they look like before, and routes looked for.
const CHECK: Duration = Duration::from_secs(10);

/// What could not be put in place is tried again after so long.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct DelegatedRoutes {
    read: Option<Read>,
    /// None = the kernel may have others.
    in_force: Option<Vec<RouteWant>>,
    checked: Option<Instant>,
    /// What failed last, and when.
    error: Option<(String, Instant)>,
}

/// What stood in the files.
struct Read {
    stamp: Stamp,
    at: Instant,
    leases: Vec<Lease>,
    hops: NextHops,
}

/// Of the directory, where next hops are renamed into, and of the lease file, which grows.
type Stamp = (Option<SystemTime>, Option<SystemTime>, u64);

impl DelegatedRoutes {
    /// Those that stand after it.
    pub fn look(&mut self, shared: &Shared, config: &Config, place: &Place) -> Vec<RouteWant> {
        if self.error.as_ref().is_none_or(|(_, at)| at.elapsed() > RETRY) {
            let before = self.error.take();
            if let Err(error) = self.keep(shared, config, place) {
                if before.is_none_or(|(told, _)| told != error) {
                    tracing::error!("routes to delegated prefixes are not all in place: {error}");
                }
                self.error = Some((error, Instant::now()));
            }
        }
        self.in_force.clone().unwrap_or_default()
    }

    fn keep(&mut self, shared: &Shared, config: &Config, place: &Place) -> Result<(), String> {
        let wants = self.wants(config, place).map_err(|error| error.to_string())?;
        let is_same = self.in_force.as_ref() == Some(&wants);
        let is_old = !wants.is_empty() && self.checked.is_none_or(|at| at.elapsed() > CHECK);
        if !is_same || is_old && !shared.kernel.has_delegated(&wants) {
            self.in_force = None;
            shared.kernel.keep_delegated(&wants).map_err(|error| error.to_string())?;
            self.in_force = Some(wants);
        } else if !is_old {
            return Ok(());
        }
        self.checked = Some(Instant::now());
        Ok(())
    }

    fn wants(&mut self, config: &Config, place: &Place) -> io::Result<Vec<RouteWant>> {
        if !config.dhcp_server.of(Family::Inet6).any(|subnet| subnet.delegated.is_some()) {
            self.read = None;
            return Ok(vec![]);
        }
        let stamp = stamp(place);
        let is_current = |read: &Read| read.stamp == stamp && read.at.elapsed() < CHECK;
        let now_s = unix_ms() / 1000;
        let read = match self.read.take().filter(is_current) {
            Some(read) => read,
            None => read(place, stamp, now_s)?,
        };
        let read = self.read.insert(read);
        read.leases.retain(|lease| lease.expires_s > now_s);
        Ok(delegated::routes(config, &read.leases, &read.hops))
    }
}

fn read(place: &Place, stamp: Stamp, now_s: u64) -> io::Result<Read> {
    // in this order: a lease is written down before its next hop
    let hops = delegated::next_hops(place.dir())?;
    let leases = leases::read(place, now_s)?;
    delegated::forget_others(place.dir(), &hops, &leases);
    Ok(Read { stamp, at: Instant::now(), leases, hops })
}

fn stamp(place: &Place) -> Stamp {
    let modified = |about: &fs::Metadata| about.modified().ok();
    let dir = fs::metadata(place.dir()).ok();
    let leases = fs::metadata(place.dir().join(place.names().leases)).ok();
    (
        dir.as_ref().and_then(modified),
        leases.as_ref().and_then(modified),
        leases.map_or(0, |about| about.len()),
    )
}
