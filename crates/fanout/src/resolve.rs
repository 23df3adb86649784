//! Receivers that are names: A and AAAA through the system's resolver, SRV (RFC 2782) by a question of our own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use sluice_language::fan_out::{FanOut, Listener, Receiver, Target};

const TIMEOUT: Duration = Duration::from_secs(2);

/// What names meant when they were last asked for; a name that cannot be asked keeps its meaning.
#[derive(Debug, Default)]
pub struct Resolver {
    known: HashMap<Target, Vec<(SocketAddr, u16)>>,
}

impl Resolver {
    /// The same fan-out with addresses in the place of names.
    pub fn expand(&mut self, fan_out: &FanOut) -> FanOut {
        let mut expanded = fan_out.clone();
        for listener in &mut expanded.listeners {
            let receivers = std::mem::take(&mut listener.receivers);
            listener.receivers = receivers.into_iter().flat_map(|r| self.receivers(listener, r)).collect();
        }
        expanded
    }

    fn receivers(&mut self, listener: &Listener, receiver: Receiver) -> Vec<Receiver> {
        if receiver.address().is_some() {
            return vec![receiver];
        }
        match look_up(&receiver.target) {
            Ok(found) => drop(self.known.insert(receiver.target.clone(), found)),
            Err(error) => {
                let (listener, receiver) = (&listener.name, &receiver.name);
                tracing::warn!(listener, receiver, %error, "the name cannot be looked up; what it meant stays");
            }
        }
        let found = self.known.get(&receiver.target).cloned().unwrap_or_default();
        let one = |(address, weight): (SocketAddr, u16)| Receiver {
            name: format!("{}/{}", receiver.name, address.ip()),
            target: Target::Address(address),
            weight: receiver.weight * weight,
            drain: receiver.drain,
        };
        found.into_iter().map(one).collect()
    }
}

/// Whether any receiver is a name.
pub fn has_names(fan_out: &FanOut) -> bool {
    fan_out.listeners.iter().flat_map(|l| &l.receivers).any(|receiver| receiver.address().is_none())
}

fn look_up(target: &Target) -> io::Result<Vec<(SocketAddr, u16)>> {
    let mut found = match target {
        Target::Address(address) => vec![(*address, 1)],
        Target::Host(host, port) => hosts(host, *port)?.into_iter().map(|address| (address, 1)).collect(),
        Target::Service(name) => service(name)?,
    };
    found.sort();
    found.dedup_by_key(|(address, _)| *address);
    Ok(found)
}

fn hosts(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Records of the lowest priority; a weight of 0 counts as the least there is.
fn service(name: &str) -> io::Result<Vec<(SocketAddr, u16)>> {
    let records = ask(name, &name_servers()?)?;
    let first = records.iter().map(|record| record.priority).min().unwrap_or(0);
    let mut found = vec![];
    for record in records.iter().filter(|record| record.priority == first) {
        let weight = record.weight.clamp(1, 256);
        found.extend(hosts(&record.host, record.port)?.into_iter().map(|address| (address, weight)));
    }
    Ok(found)
}

fn name_servers() -> io::Result<Vec<SocketAddr>> {
    let text = std::fs::read_to_string("/etc/resolv.conf")?;
    let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver"));
    Ok(servers.filter_map(|s| s.trim().parse::<IpAddr>().ok()).map(|ip| SocketAddr::new(ip, 53)).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct Record {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

/// RFC 1035 4.1: one question, the first answer of a server.
fn ask(name: &str, servers: &[SocketAddr]) -> io::Result<Vec<Record>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no name server in /etc/resolv.conf");
    for server in servers {
        match ask_one(name, *server) {
            Ok(records) => return Ok(records),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask_one(name: &str, server: SocketAddr) -> io::Result<Vec<Record>> {
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let id = socket.local_addr()?.port() ^ 0x5a5a;
    socket.send(&question(name, id))?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer)?;
        if buffer[..2] == id.to_be_bytes() {
            let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no SRV records of {name}"));
            return answer(&buffer[..length]).ok_or_else(bad);
        }
    }
}

const SRV: u16 = 33;

fn question(name: &str, id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    // recursion desired, one question
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, SRV as u8, 0, 1]);
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// None when the message is malformed, an error (RFC 1035 4.1.1) or without SRV records.
fn answer(bytes: &[u8]) -> Option<Vec<Record>> {
    if bytes.get(3)? & 15 != 0 {
        return None;
    }
    let (questions, answers) = (word(bytes, 4)?, word(bytes, 6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = label_end(bytes, at)? + 4;
    }
    let mut records = vec![];
    for _ in 0..answers {
        at = label_end(bytes, at)?;
        let (kind, length) = (word(bytes, at)?, usize::from(word(bytes, at + 8)?));
        let data = at + 10;
        if kind == SRV {
            let (priority, weight, port) =
                (word(bytes, data)?, word(bytes, data + 2)?, word(bytes, data + 4)?);
            records.push(Record { priority, weight, port, host: host_name(bytes, data + 6)? });
        }
        at = data + length;
    }
    (!records.is_empty()).then_some(records)
}

/// Behind a name, which ends in an empty label or a pointer (RFC 1035 4.1.4).
fn label_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

fn host_name(bytes: &[u8], mut at: usize) -> Option<String> {
    let mut labels = vec![];
    // a name has at most 127 labels, so a circle of pointers ends here
    for _ in 0..255 {
        match *bytes.get(at)? {
            0 => return Some(labels.join(".")),
            length if length >= 0xc0 => at = usize::from(word(bytes, at)? & 0x3fff),
            length => {
                let label = bytes.get(at + 1..at + 1 + usize::from(length))?;
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += usize::from(length) + 1;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records of `_s._udp.x`, the second with a pointer to the name of the first.
    fn message(id: u16) -> Vec<u8> {
        let mut bytes = question("_s._udp.x", id);
        bytes[2] = 0x81;
        bytes[7] = 2;
        let fixed =
            |bytes: &mut Vec<u8>, length: u8| bytes.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 9, 0, length]);
        fixed(&mut bytes, 13);
        bytes.extend([0, 1, 0, 5, 2, 2]);
        let host = bytes.len() as u8;
        bytes.extend(*b"\x01a\x03net\0");
        fixed(&mut bytes, 10);
        bytes.extend([0, 2, 0, 0, 2, 3]);
        bytes.extend([1, b'b', 0xc0, host + 2]);
        bytes
    }

    #[test]
    fn srv_records_are_read() {
        let record =
            |priority, weight, port, host: &str| Record { priority, weight, port, host: host.into() };
        let wanted = vec![record(1, 5, 514, "a.net"), record(2, 0, 515, "b.net")];
        assert_eq!(answer(&message(7)), Some(wanted));
    }

    #[test]
    fn malformed_answers_are_refused_and_never_loop() {
        let whole = message(7);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length]), None, "{length}");
        }
        let mut circle = whole.clone();
        let end = circle.len();
        circle[end - 2..].copy_from_slice(&[0xc0, (end - 2) as u8]);
        assert_eq!(answer(&circle), None);
    }

    #[test]
    fn a_server_is_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            let id = u16::from_be_bytes([buffer[0], buffer[1]]);
            assert_eq!(buffer[..length], question("_s._udp.x", id));
            server.send_to(&message(id), from).unwrap();
        });
        assert_eq!(ask("_s._udp.x", &[address]).unwrap().len(), 2);
    }
}
