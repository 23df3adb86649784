//! One look-up of one name, with EDNS (RFC 6891) and, where an answer is truncated, over TCP (RFC 7766).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;
use sluice_language::fan_out::Target;
use tokio::task::JoinSet;

/// For one question to one server; it is asked twice.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Weight of a receiver at most.
const LARGEST: u16 = 256;
/// Hosts of SRV records that are asked for side by side.
const AT_ONCE: usize = 16;

/// Answers that are cached; beyond that, those no listener uses are dropped.
pub const REMEMBERED: usize = 4096;

/// Addresses and weights.
pub type Meaning = Vec<(SocketAddr, u16)>;

/// How a name stands in logs.
pub fn text(name: &Target) -> String {
    match name {
        Target::Address(address) => address.to_string(),
        Target::Host(host, port) => format!("{host}:{port}"),
        Target::Service(name) => name.clone(),
    }
}

/// What hosts of SRV records meant when they last had an answer.
pub type Hosts = Mutex<HashMap<Target, Meaning>>;

/// A host that has no answer while its service has one means what it meant before.
pub async fn look_up(name: &Target, known: &Hosts) -> Result<Meaning, String> {
    let found = match name {
        Target::Address(address) => Ok(vec![(*address, 1)]),
        Target::Host(host, port) => match Resolvers::new() {
            Ok(resolvers) => resolvers.hosts(host, *port).await.map(|answer| answer.remembered(name, known)),
            Err(error) => Err(error),
        }
        .map_err(|error| error.to_string()),
        Target::Service(name) => service(name, known).await,
    };
    sorted(found)
}

fn sorted(found: Result<Meaning, String>) -> Result<Meaning, String> {
    found.map(|mut found| {
        found.sort();
        found.dedup_by_key(|(address, _)| *address);
        found
    })
}

/// One a family, so that each has an answer of its own. As /etc/resolv.conf and /etc/hosts are at the moment.
#[derive(Clone)]
struct Resolvers {
    v4: TokioResolver,
    v6: TokioResolver,
}

fn resolver(strategy: LookupIpStrategy) -> Result<TokioResolver, NetError> {
    let mut builder = TokioResolver::builder_tokio().unwrap_or_else(|_| {
        // resolv.conf(5): without a name server the one on this machine is asked
        let local = NameServerConfig::udp_and_tcp([127, 0, 0, 1].into());
        let config = ResolverConfig::from_parts(None, vec![], vec![local]);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    });
    let options = builder.options_mut();
    options.timeout = TIMEOUT;
    options.attempts = 2;
    options.edns0 = true;
    options.ip_strategy = strategy;
    builder.build()
}

/// What a host has, and which of its questions had no answer at all.
#[derive(Debug, Default)]
struct Answer {
    found: Meaning,
    is_v4_missing: bool,
    is_v6_missing: bool,
}

impl Answer {
    /// What was known of a family that was not answered for stays; it is kept for the next time.
    fn remembered(mut self, host: &Target, known: &Hosts) -> Meaning {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |address: &SocketAddr| match address {
            SocketAddr::V4(_) => self.is_v4_missing,
            SocketAddr::V6(_) => self.is_v6_missing,
        };
        let before = known.get(host).into_iter().flatten();
        let kept: Meaning = before.filter(|(address, _)| is_missing(address)).copied().collect();
        self.found.extend(kept);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(host.clone(), self.found.clone());
        self.found
    }
}

impl Resolvers {
    fn new() -> Result<Resolvers, NetError> {
        Ok(Resolvers { v4: resolver(LookupIpStrategy::Ipv4Only)?, v6: resolver(LookupIpStrategy::Ipv6Only)? })
    }

    /// An error where neither family has an address, or an answer that says so of both.
    async fn hosts(&self, host: &str, port: u16) -> Result<Answer, NetError> {
        let (v4, v6) = tokio::join!(self.v4.lookup_ip(host), self.v6.lookup_ip(host));
        // NODATA and NXDOMAIN are answers, too
        let is_missing =
            |result: &Result<_, NetError>| result.as_ref().is_err_and(|error| !error.is_no_records_found());
        let (is_v4_missing, is_v6_missing) = (is_missing(&v4), is_missing(&v6));
        let found = [&v4, &v6].into_iter().flatten().flat_map(|found| found.iter());
        let found: Meaning = found.map(|address| (SocketAddr::new(address, port), 1)).collect();
        match (v4, v6) {
            // what is missing says more than that the other has none
            (Err(_), Err(error)) if is_v6_missing => Err(error),
            (Err(error), Err(_)) => Err(error),
            _ => Ok(Answer { found, is_v4_missing, is_v6_missing }),
        }
    }
}

/// Records of the lowest priority; a weight of 0 counts as the least there is.
async fn service(name: &str, known: &Hosts) -> Result<Meaning, String> {
    let resolvers = Resolvers::new().map_err(|error| error.to_string())?;
    let answer = resolvers.v4.srv_lookup(name).await.map_err(|error| error.to_string())?;
    let records = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record.clone()),
        _ => None,
    });
    let records: Vec<SRV> = records.collect();
    let first = records.iter().map(|record| record.priority).min().unwrap_or(0);
    let records: Vec<SRV> = records.into_iter().filter(|record| record.priority == first).collect();
    let largest = records.iter().map(|record| record.weight).max().unwrap_or(0);
    let (mut found, mut failed) = (vec![], None);
    for part in records.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for record in part.iter().cloned() {
            let resolvers = resolvers.clone();
            asked.spawn(async move {
                let host = record.target.to_utf8();
                (resolvers.hosts(&host, record.port).await, Target::Host(host, record.port), record)
            });
        }
        while let Some(Ok((result, host, record))) = asked.join_next().await {
            match remembered(result, &host, known) {
                Ok(addresses) => found.extend(weighted(&addresses, share(record.weight, largest))),
                Err(error) => failed = Some(format!("{}: {error}", text(&host))),
            }
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        None if found.is_empty() => Err("it has no SRV records".to_owned()),
        _ => Ok(found),
    }
}

fn remembered(result: Result<Answer, NetError>, host: &Target, known: &Hosts) -> Result<Meaning, NetError> {
    match result {
        Ok(answer) => Ok(answer.remembered(host, known)),
        Err(error) => known.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned().ok_or(error),
    }
}

fn weighted(addresses: &Meaning, weight: u16) -> Meaning {
    addresses.iter().map(|(address, _)| (*address, weight)).collect()
}

/// The weight of a record (RFC 2782 has up to 65535) as one of a receiver, in proportion to the largest.
fn share(weight: u16, largest: u16) -> u16 {
    let scaled = match largest > LARGEST {
        true => (u32::from(weight) * u32::from(LARGEST) / u32::from(largest)) as u16,
        false => weight,
    };
    scaled.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_records_keep_their_proportions() {
        assert_eq!([0, 1, 256].map(|weight| share(weight, 256)), [1, 1, 256]);
        assert_eq!([0, 500, 1000].map(|weight| share(weight, 1000)), [1, 128, 256]);
        assert_eq!([1, 65535].map(|weight| share(weight, 65535)), [1, 256]);
    }

    #[test]
    fn a_family_that_was_not_answered_for_keeps_its_addresses() {
        let (known, host) = (Hosts::default(), Target::Host("a.example".to_owned(), 514));
        let meaning = |addresses: &[&str]| -> Meaning {
            addresses.iter().map(|address| (address.parse().unwrap(), 1)).collect()
        };
        let both = Answer { found: meaning(&["10.0.0.1:514", "[fd00::1]:514"]), ..Answer::default() };
        both.remembered(&host, &known);
        let v6 = || Answer { found: meaning(&["[fd00::2]:514"]), ..Answer::default() };
        let half = Answer { is_v4_missing: true, ..v6() };
        assert_eq!(half.remembered(&host, &known), meaning(&["[fd00::2]:514", "10.0.0.1:514"]));
        assert_eq!(v6().remembered(&host, &known), meaning(&["[fd00::2]:514"]), "no A record is an answer");
    }
}
