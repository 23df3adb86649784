//! Suite `cps`: TCP connections a second between two hosts through each gateway.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use sluice_lab::netns::Netns;

use crate::generator::site::WAN_HOST_ADDRESS;
use crate::method::result::{Bar, Bars, Better, Chart, Check, Figure, Role, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::{Forwarder, Lane};

pub const SUITE: Suite = Suite {
    name: "cps",
    help: "TCP connections a second through each gateway: handshake, one byte, reset",
    says: "Whole connections that two hosts open and end one after the other through the gateway: handshake, one byte \
        from the server, a reset. Sluice's own count of sessions must be the number of connections.",
    silent: &[
        "The hosts' TCP costs several times what the gateway costs and shares its CPUs: the capacity of the gateway \
            itself is in the `new` rows of `prog`.",
        "Resets instead of orderly ends keep ports free; an orderly end is three packets more.",
    ],
    run: suite,
};

/// The last one is the first one's A/A.
const FORWARDERS: [Forwarder; 5] =
    [Forwarder::Linux, Forwarder::Tc, Forwarder::Xdp, Forwarder::Nftables, Forwarder::Linux];
const PORT: u16 = 5201;
const CLIENTS: usize = 4;
const SERVERS: usize = 2;

/// A lane with servers that answer every connection with one byte.
struct Busy {
    lane: Lane,
    listener: TcpListener,
}

/// Connections of one run, and the sessions that Sluice counted in it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    connections: u64,
    seconds: f64,
    sessions: Option<u64>,
}

impl Busy {
    fn new(forwarder: Forwarder) -> Result<Busy> {
        let lane = Lane::new(forwarder, "cps")?;
        let listener = lane.site.wan_host.enter(|| TcpListener::bind((WAN_HOST_ADDRESS, PORT)))?;
        let listener = listener.context("cannot listen")?;
        Ok(Busy { lane, listener })
    }

    fn measure(&self, length: Duration) -> Result<Seen> {
        let sessions = self.lane.sessions()?;
        let (stop, connections) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        let seconds = thread::scope(|scope| -> Result<f64> {
            for _ in 0..SERVERS {
                scope.spawn(|| serve(&self.listener, &stop));
            }
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    scope.spawn(|| connect_until(&self.lane.site.lan_host, began + length, &connections))
                })
                .collect();
            let ended: Result<Vec<()>> = clients
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
                .collect();
            let seconds = began.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            // One more a server, so that it looks at the flag; each is a connection like the others. Whoever looked
            // already takes none, so nobody waits for a byte.
            for _ in 0..SERVERS {
                let _ = self.lane.site.lan_host.enter(|| connect(&address()).map(drop));
            }
            ended?;
            Ok(seconds)
        })?;
        let after = self.lane.sessions()?;
        let sessions = sessions.zip(after).map(|(before, after)| after - before);
        Ok(Seen { connections: connections.into_inner(), seconds, sessions })
    }
}

fn address() -> SocketAddr {
    SocketAddr::from((
        WAN_HOST_ADDRESS.parse::<std::net::Ipv4Addr>().expect("an address of this crate"),
        PORT,
    ))
}

fn serve(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // A client that has gone already is the client's affair.
        if let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"!");
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

fn connect_until(host: &Netns, end: Instant, connections: &AtomicU64) -> Result<()> {
    host.enter(|| {
        let address = address();
        while Instant::now() < end {
            one_connection(&address)?;
            connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?
}

/// Handshake; what ends it is a reset.
fn connect(address: &SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, PATIENCE).context("cannot connect")?;
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&stream.as_fd(), sockopt::Linger, &linger)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

const PATIENCE: Duration = Duration::from_secs(3);

/// Handshake, one byte, and a reset that leaves nothing behind.
fn one_connection(address: &SocketAddr) -> Result<()> {
    let mut stream = connect(address)?;
    let mut byte = [0];
    let read = stream.read(&mut byte).context("the server's byte did not come")?;
    ensure!(read == 1, "the server ended a connection without its byte");
    Ok(())
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let length = context.pick(Duration::from_millis(1500), Duration::from_secs(10));
    context.progress.at(0.0, "setting up the gateways");
    let lanes = FORWARDERS[..4].iter().map(|forwarder| Busy::new(*forwarder)).collect::<Result<Vec<_>>>()?;
    let mut seen: Vec<Vec<Seen>> = vec![vec![]; FORWARDERS.len()];
    let total = (FORWARDERS.len() * context.rounds) as f64;
    let mut done = 0.0;
    let samples = interleave(FORWARDERS.len(), context.rounds, |i, _| {
        context.progress.at(done / total, FORWARDERS[i].name());
        done += 1.0;
        let measured = lanes[i % lanes.len()].measure(length);
        let measured = measured.with_context(|| format!("connections through {}", FORWARDERS[i].name()))?;
        seen[i].push(measured);
        Ok(measured.connections as f64 / measured.seconds)
    })?;
    let mut result = SuiteResult::new(SUITE.name);
    for lane in &lanes {
        result.checks.push(lane.lane.mode_check()?);
    }
    result.figures = (0..FORWARDERS.len() - 1).map(|i| figure(i, &samples, &seen[i])).collect();
    result.charts.push(chart(&result.figures));
    result.notes.push(format!("{CLIENTS} clients, {SERVERS} servers, {:.1} s a round", length.as_secs_f64()));
    Ok(result)
}

fn figure(i: usize, samples: &[Vec<f64>], seen: &[Seen]) -> Figure {
    let forwarder = FORWARDERS[i];
    let figure = Figure::new(forwarder.name(), "connections/s", Better::Higher, samples[i].clone());
    let mut figure = match forwarder {
        Forwarder::Linux => figure.same(&samples[0], &samples[FORWARDERS.len() - 1]),
        _ => figure.against("Linux forwarding", &samples[0]),
    };
    figure.headline = forwarder == Forwarder::Tc;
    figure.checks.extend(sessions_check(seen));
    figure
}

/// Every connection must have been a session of Sluice's, and nothing else.
fn sessions_check(seen: &[Seen]) -> Option<Check> {
    let made = seen.iter().map(|seen| seen.sessions).sum::<Option<u64>>()?;
    let connections: u64 = seen.iter().map(|seen| seen.connections + SERVERS as u64).sum();
    Some(Check::new(
        "sessions = connections",
        made == connections && made > 0,
        format!("{connections} connections, {made} sessions"),
    ))
}

fn chart(figures: &[Figure]) -> Chart {
    let bar = |figure: &Figure| Bar {
        name: figure.name.clone(),
        role: if figure.name.starts_with("sluice") { Role::Subject } else { Role::Peer },
        estimate: figure.estimate,
    };
    Chart::Bars(Bars {
        title: "TCP connections a second".to_owned(),
        unit: "connections/s".to_owned(),
        bars: figures.iter().map(bar).collect(),
        note: "The hosts' own TCP is in every bar.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_no_session_is_seen() {
        let seen = |sessions| Seen { connections: 98, seconds: 1.0, sessions };
        assert!(sessions_check(&[seen(Some(100))]).unwrap().passed);
        assert!(!sessions_check(&[seen(Some(99))]).unwrap().passed);
        assert!(sessions_check(&[seen(None)]).is_none());
    }
}
