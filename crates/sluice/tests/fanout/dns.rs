//! A name server for the gateway's namespace, whose answers and silence are the test's to choose.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Site;

#[derive(Clone)]
pub enum Record {
    A(Ipv4Addr),
    /// Port and host; priority and weight are 1.
    Srv(u16, String),
}

#[derive(Default)]
struct Zone {
    names: Mutex<BTreeMap<String, Vec<Record>>>,
    is_silent: AtomicBool,
    by_tcp: AtomicU32,
    asked: AtomicU32,
    ended: AtomicBool,
}

pub struct Dns {
    zone: Arc<Zone>,
    /// For /etc/resolv.conf of whoever is to ask here.
    pub resolv: PathBuf,
}

impl Dns {
    pub fn start(site: &Site) -> Dns {
        let zone = Arc::new(Zone::default());
        let (udp, tcp) = site
            .gateway
            .enter(|| (UdpSocket::bind("127.0.0.1:53").unwrap(), TcpListener::bind("127.0.0.1:53").unwrap()))
            .unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let own = zone.clone();
        std::thread::spawn(move || {
            while !own.ended.load(Ordering::Acquire) {
                own.by_udp(&udp);
                own.by_tcp(&tcp);
            }
        });
        Dns { zone, resolv: site.write_all("resolv.conf", "nameserver 127.0.0.1\n") }
    }

    pub fn set(&self, name: &str, records: Vec<Record>) {
        self.zone.names.lock().unwrap().insert(name.to_owned(), records);
    }

    /// From now on questions get no answer, or get one again.
    pub fn be_silent(&self, silent: bool) {
        self.zone.is_silent.store(silent, Ordering::Release);
    }

    pub fn asked(&self) -> u32 {
        self.zone.asked.load(Ordering::Acquire)
    }

    pub fn asked_by_tcp(&self) -> u32 {
        self.zone.by_tcp.load(Ordering::Acquire)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.zone.ended.store(true, Ordering::Release);
    }
}

impl Zone {
    fn by_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 1500];
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
        self.asked.fetch_add(1, Ordering::AcqRel);
        if self.is_silent.load(Ordering::Acquire) {
            return;
        }
        let mut answer = self.answer(&buffer[..length]);
        // as servers do it that have never heard of EDNS: the rest is to be had over TCP
        if answer.len() > 512 {
            answer[2] |= 2;
            answer[6..8].fill(0);
            answer.truncate(question_end(&answer));
        }
        let _ = socket.send_to(&answer, from);
    }

    fn by_tcp(&self, listener: &TcpListener) {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
        let mut length = [0; 2];
        while !self.is_silent.load(Ordering::Acquire) && stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut question).is_err() {
                return;
            }
            self.by_tcp.fetch_add(1, Ordering::AcqRel);
            let answer = self.answer(&question);
            let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
            let _ = stream.write_all(&answer);
        }
    }

    /// RFC 1035 section 4.1.
    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let end = question_end(question);
        let name = name_of(&question[12..end - 4]);
        let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
        let names = self.names.lock().unwrap();
        let found = names.get(&name);
        let data: Vec<Vec<u8>> =
            found.into_iter().flatten().filter_map(|record| data(record, kind)).collect();
        let mut answer = question[..end].to_vec();
        answer[2..4].copy_from_slice(&[0x85, if found.is_some() { 0x80 } else { 0x83 }]);
        answer[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
        answer[8..12].fill(0);
        for data in data {
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 1]);
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        answer
    }
}

fn question_end(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += usize::from(message[at]) + 1;
    }
    at + 5
}

fn name_of(mut labels: &[u8]) -> String {
    let mut name = vec![];
    while let Some((length, rest)) = labels.split_first().filter(|(length, _)| **length > 0) {
        let (label, behind) = rest.split_at(usize::from(*length));
        name.push(String::from_utf8_lossy(label).to_lowercase());
        labels = behind;
    }
    name.join(".")
}

fn data(record: &Record, kind: u16) -> Option<Vec<u8>> {
    match record {
        Record::A(address) if kind == 1 => Some(address.octets().to_vec()),
        Record::Srv(port, host) if kind == 33 => {
            let mut data = vec![0, 1, 0, 1];
            data.extend(port.to_be_bytes());
            for label in host.split('.') {
                data.push(label.len() as u8);
                data.extend(label.as_bytes());
            }
            data.push(0);
            Some(data)
        }
        _ => None,
    }
}
