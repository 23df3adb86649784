//! Leases as Kea writes them down: a line for each change of one, the last one counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::IpAddr;

use super::process::Place;

/// So much of each file is read.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub address: IpAddr,
    /// Bits of a delegated prefix; of an address all.
    pub length: u8,
    /// Empty where a DHCPv6 client does not say it.
    pub hardware_address: String,
    /// Of DHCPv6 clients.
    pub duid: Option<String>,
    pub hostname: String,
    /// Seconds since 1970.
    pub expires_s: u64,
    /// A client has found the address to be taken (RFC 2131 4.4.1).
    pub declined: bool,
}

impl Lease {
    /// Delegated, not an address.
    pub fn is_prefix(&self) -> bool {
        self.address.is_ipv6() && self.length < 128
    }
}

/// Leases that have not ended at a time. While Kea writes the file anew, what stood in it is in others.
pub fn read(place: &Place, now_s: u64) -> io::Result<Vec<Lease>> {
    let mut found = BTreeMap::new();
    let file = |ending: &str| place.dir().join(format!("{}{ending}", place.names().leases));
    let cleaned = file(".completed").exists();
    let before: &[&str] = if cleaned { &[".completed"] } else { &[".2", ".1"] };
    for ending in before.iter().chain(&[""]) {
        match File::open(file(ending)) {
            Ok(file) => add(file, &mut found)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found.into_values().flatten().filter(|lease| lease.expires_s > now_s).collect())
}

fn add(file: impl Read, found: &mut BTreeMap<IpAddr, Option<Lease>>) -> io::Result<()> {
    let mut columns: Vec<String> = vec![];
    for line in BufReader::new(file.take(MOST_BYTES)).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let fields: Vec<&str> = line.split(',').collect();
        if columns.is_empty() {
            columns = fields.into_iter().map(str::to_owned).collect();
            continue;
        }
        let field = |name: &str| {
            let index = columns.iter().position(|column| column == name)?;
            fields.get(index).copied()
        };
        let Some(address) = field("address").and_then(|text| text.parse().ok()) else { continue };
        found.insert(address, lease(address, field));
    }
    Ok(())
}

/// None = it was given back.
fn lease<'a>(address: IpAddr, field: impl Fn(&str) -> Option<&'a str>) -> Option<Lease> {
    let number = |name| field(name).and_then(|text| text.parse::<u64>().ok());
    let (lifetime, state) = (number("valid_lifetime")?, number("state").unwrap_or(0));
    // 2: its time was over, and Kea has seen to it
    if lifetime == 0 || state > 1 {
        return None;
    }
    let all = if address.is_ipv4() { 32 } else { 128 };
    Some(Lease {
        address,
        length: number("prefix_len").and_then(|bits| u8::try_from(bits).ok()).unwrap_or(all),
        hardware_address: field("hwaddr")?.to_owned(),
        duid: field("duid").map(str::to_owned),
        hostname: field("hostname").unwrap_or_default().to_owned(),
        expires_s: number("expire")?,
        declined: state == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";

    fn leases(text: &str) -> Vec<Lease> {
        let mut found = BTreeMap::new();
        add(text.as_bytes(), &mut found).unwrap();
        found.into_values().flatten().collect()
    }

    #[test]
    fn the_last_line_of_an_address_counts() {
        let text = format!(
            "{HEADER}10.0.0.5,02:00:00:00:00:01,,600,1000,1,0,0,a,0,\n10.0.0.6,02:00:00:00:00:02,,600,1000,1,0,0,b,0,\n\
             10.0.0.5,02:00:00:00:00:01,,600,2000,1,0,0,a,0,\n10.0.0.6,02:00:00:00:00:02,,0,1000,1,0,0,b,0,\n\
             10.0.0.7,02:00:00:00:00:03,,600,1000,1,0,0,,1,\n10.0.0.8,02:00:00:00:00:04,,600,1000,1,0,0,,2,\nnot,a,lease\n10.0.0"
        );
        let found = leases(&text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].expires_s, found[0].hostname.as_str(), found[0].declined), (2000, "a", false));
        assert!(found[1].declined);
    }

    #[test]
    fn addresses_and_prefixes_of_dhcpv6_are_told_apart() {
        let found = leases(
            "address,duid,valid_lifetime,expire,subnet_id,pref_lifetime,lease_type,iaid,prefix_len,fqdn_fwd,fqdn_rev,hostname,hwaddr,state\n\
             2001:db8::5,00:03:00:01:02,600,1000,1,300,0,7,128,0,0,a,02:00:00:00:00:01,0\n\
             2001:db8:100::,00:03:00:01:02,600,1000,1,300,2,7,56,0,0,,,0\n",
        );
        let told: Vec<_> = found.iter().map(|own| (own.address.to_string(), own.length)).collect();
        assert_eq!(told, [("2001:db8::5".to_owned(), 128), ("2001:db8:100::".to_owned(), 56)]);
        assert_eq!(found[1].duid.as_deref(), Some("00:03:00:01:02"));
    }

    #[test]
    fn what_is_no_lease_file_has_no_leases() {
        for text in ["", "\n\n", "address\n10.0.0.5", "\u{0},,\n,,,\n", "a,b\n10.0.0.5,1\n"] {
            assert_eq!(leases(text), [], "{text:?}");
        }
    }
}
