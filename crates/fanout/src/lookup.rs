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
        Target::Host(host, port) => match resolver() {
            Ok(resolver) => hosts(&resolver, host, *port).await,
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

/// As /etc/resolv.conf and /etc/hosts are at the moment.
fn resolver() -> Result<TokioResolver, NetError> {
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
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

async fn hosts(resolver: &TokioResolver, host: &str, port: u16) -> Result<Meaning, NetError> {
    let found = resolver.lookup_ip(host).await?;
    Ok(found.iter().map(|address| (SocketAddr::new(address, port), 1)).collect())
}

/// Records of the lowest priority; a weight of 0 counts as the least there is.
async fn service(name: &str, known: &Hosts) -> Result<Meaning, String> {
    let resolver = resolver().map_err(|error| error.to_string())?;
    let answer = resolver.srv_lookup(name).await.map_err(|error| error.to_string())?;
    let records = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record.clone()),
        _ => None,
    });
    let records: Vec<SRV> = records.collect();
    let first = records.iter().map(|record| record.priority).min().unwrap_or(0);
    let records: Vec<SRV> = records.into_iter().filter(|record| record.priority == first).collect();
    let (mut found, mut failed) = (vec![], None);
    for part in records.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for record in part.iter().cloned() {
            let resolver = resolver.clone();
            asked.spawn(async move {
                let host = record.target.to_utf8();
                (hosts(&resolver, &host, record.port).await, Target::Host(host, record.port), record)
            });
        }
        while let Some(Ok((result, host, record))) = asked.join_next().await {
            match remembered(result, &host, known) {
                Ok(addresses) => found.extend(weighted(&addresses, &record)),
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

fn remembered(result: Result<Meaning, NetError>, host: &Target, known: &Hosts) -> Result<Meaning, NetError> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    match result {
        Ok(found) => {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(host.clone(), found.clone());
            Ok(found)
        }
        Err(error) => known.get(host).cloned().ok_or(error),
    }
}

fn weighted(addresses: &Meaning, record: &SRV) -> Meaning {
    addresses.iter().map(|(address, _)| (*address, record.weight.clamp(1, 256))).collect()
}
