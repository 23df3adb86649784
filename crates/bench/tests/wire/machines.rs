//! Two machines, each a namespace: one serves, the other sends and asks what came.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sluice_bench::generator::wire::control::{self, Remote};
use sluice_bench::method::progress::Progress;
use sluice_bench::method::result::{Profile, Table};
use sluice_bench::method::suite::Context;
use sluice_bench::suites;
use sluice_lab::netns::{Netns, VethEnd, veth};

fn machines() -> (Netns, Netns) {
    let (near, far) = (Netns::create("near").unwrap(), Netns::create("far").unwrap());
    for netns in [&near, &far] {
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    }
    let end = |netns, name, addresses| VethEnd { netns, name, mac: None, addresses };
    veth(end(&near, "a0", &["192.0.2.1/24"]), end(&far, "b0", &["192.0.2.2/24"])).unwrap();
    (near, far)
}

/// Serves on a thread that ends with the test's process.
fn serve(far: &Netns) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    let namespace = far.descriptor().unwrap();
    thread::spawn(move || {
        namespace.enter_for_good().unwrap();
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        control::serve(listen, "b0", |address| tell.send(address).unwrap())
    });
    let port = told.recv_timeout(Duration::from_secs(10)).unwrap().port();
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), port))
}

fn context(interfaces: (&str, &str), peer: Option<String>) -> Context {
    Context {
        profile: Profile::Quick,
        rounds: 1,
        interfaces: Some((interfaces.0.to_owned(), interfaces.1.to_owned())),
        peer,
        progress: Progress::silent(),
        wanted: vec![],
    }
}

/// A veth doubles, reorders and changes nothing, and loses only what its ring of 256 frames has no room for while the
/// receiving CPU is elsewhere. It counts that, for all runs of the suite; the table shows some of them.
fn assert_as_a_veth(netns: &Netns, table: &Table) {
    let statistics = netns.run("ethtool", ["-S", "a0"]).unwrap();
    let refused: u64 = statistics
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(name, _)| name.ends_with("_xdp_xmit_errors"))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum();
    let lost: u64 = table.rows.iter().map(|row| row[4].parse::<u64>().unwrap()).sum();
    assert!(lost <= refused, "of {lost} lost frames the veth refused {refused}: {table:?}");
    for row in &table.rows {
        assert!(row[6..].iter().all(|count| count == "0"), "{row:?}");
    }
}

#[test]
fn what_one_machine_sends_the_other_counts() {
    let _alone = crate::alone();
    let (near, far) = machines();
    let address = serve(&far);
    let wire = suites::find("wire").unwrap();
    let run = |b: &str| near.enter(|| (wire.run)(&context(("a0", b), Some(address.to_string())))).unwrap();
    let result = run("b0").unwrap();
    assert!(result.errors.is_empty(), "{:?}", result.errors);
    assert!(result.checks.iter().all(|check| check.passed), "{:?}", result.checks);
    assert_eq!(result.figures.len(), 4);
    for figure in &result.figures {
        assert!(figure.estimate.value > 0.01 && figure.checks.iter().all(|check| check.passed), "{figure:?}");
    }
    assert_as_a_veth(&near, &result.tables[0]);
    let error = run("b1").unwrap_err();
    assert!(error.to_string().contains("the peer receives on b0, not on b1"), "{error}");
}

#[test]
fn two_devices_of_one_machine_are_measured_alike() {
    let _alone = crate::alone();
    let netns = Netns::create("nics").unwrap();
    netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    let end = |name| VethEnd { netns: &netns, name, mac: None, addresses: &[] };
    veth(end("a0"), end("b0")).unwrap();
    let wire = suites::find("wire").unwrap();
    let result = netns.enter(|| (wire.run)(&context(("a0", "b0"), None))).unwrap().unwrap();
    assert!(result.errors.is_empty() && result.figures.len() == 4, "{result:?}");
    assert_as_a_veth(&netns, &result.tables[0]);
    let missing = netns.enter(|| (wire.run)(&context(("a0", "none"), None))).unwrap().unwrap_err();
    assert!(missing.to_string().contains("there is no device none"), "{missing}");
}

#[test]
fn whoever_speaks_something_else_is_told_or_left() {
    let _alone = crate::alone();
    use std::io::{BufRead, BufReader, Write};
    let (near, far) = machines();
    let address = serve(&far);
    let answer = |text: &str| {
        let talk = || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        };
        near.enter(talk).unwrap()
    };
    assert!(answer("{\"request\":\"hello\",\"version\":99}\n").contains("version 99 is not spoken here"));
    assert_eq!(answer("GET / HTTP/1.1\n"), "");
    // It still serves.
    let remote =
        near.enter(|| Remote::connect(&address.to_string()).map(|remote| remote.hello)).unwrap().unwrap();
    assert_eq!((remote.device.as_str(), remote.native), ("b0", true));
    let refused = near.enter(|| Remote::connect("192.0.2.2:1").err().unwrap()).unwrap();
    assert!(refused.to_string().contains("sluice bench serve"), "{refused}");
}
