//! Thousands of generated requests, sound and unsound, for every operation of the daemon; the document judges what it answers.

use crate::common;

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;

use common::{Site, accepted, is_soak, stderr, stdout};
use sluice_control::Client;
use sluice_control::api::CloseQuery;
use sluice_control::operations::candidate::CLOSE_CANDIDATE;
use sluice_control::operations::{OPERATIONS, Role};

const CONFIGURATION: &str = "\
set services gate zone left
set services gate service ping destination-address 10.71.2.2
set services gate service ping protocol icmp
set security policies from-zone left to-zone right policy out then log session-init
";

/// Where the daemon listens unless it is told otherwise.
const TCP: &str = "127.0.0.1:8080";

/// `make setup` for tests installs it into target/venv, and SCHEMATHESIS names another one.
fn tool() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("venv/bin/schemathesis");
    let tool = std::env::var_os("SCHEMATHESIS").map_or(venv, PathBuf::from);
    if !tool.exists() && std::env::var_os("SLUICE_OFFLINE").is_some() {
        eprintln!("not tried: there is no {}", tool.display());
        return None;
    }
    assert!(tool.exists(), "no {}: SLUICE_TARGET=test scripts/setup.sh installs it", tool.display());
    Some(tool)
}

/// schemathesis knows TCP alone: a port in the gateway's namespace behind which the daemon's socket is.
fn relay(site: &Site) -> SocketAddr {
    let listener = site.gateway.enter(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let (address, socket) = (listener.local_addr().unwrap(), site.state().join("sluice.sock"));
    thread::spawn(move || {
        // until the test's process ends
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = UnixStream::connect(&socket) else { continue };
            carry(near, far);
        }
    });
    address
}

/// Either end closes its direction when the other has.
fn carry(near: TcpStream, far: UnixStream) {
    let (mut near_read, mut far_read) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let (mut near, mut far) = (near, far);
    thread::spawn(move || {
        let _ = io::copy(&mut near_read, &mut far);
        let _ = far.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let _ = io::copy(&mut far_read, &mut near);
        let _ = near.shutdown(Shutdown::Both);
    });
}

/// schemathesis may find nothing; gives how many operations it has tried.
fn finds_nothing(site: &Site, tool: &Path, address: &str, document: &Path, which: &[&str]) -> usize {
    let output = asks(site, tool, address, document, which);
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}");
    let tested = said.lines().find_map(|line| line.trim().strip_prefix("Tested: "));
    tested.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

fn asks(site: &Site, tool: &Path, address: &str, document: &Path, which: &[&str]) -> Output {
    let mut command = site.gateway.command(tool);
    command.arg("--config-file").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis.toml"));
    command.arg("run").arg(document).arg("--url").arg(format!("http://{address}"));
    command.args([
        "--checks",
        "all",
        "--max-examples",
        if is_soak() { "60" } else { "10" },
        "--seed",
        "1",
        "--no-color",
        "--continue-on-failure",
    ]);
    command.args(which);
    command.current_dir(site.dir()).output().unwrap()
}

#[test]
fn schemathesis_finds_nothing() {
    let Some(tool) = tool() else { return };
    let site = Site::new("thesis");
    let gateway = site.start(&site.write("a.conf", CONFIGURATION));
    let address = relay(&site);
    let document = site.dir().join("openapi.json");
    fs::write(&document, gateway.get("/api/openapi.json").unwrap()).unwrap();
    let tried = finds_nothing(&site, &tool, &address.to_string(), &document, &[]);
    assert_eq!(tried, OPERATIONS.len());
    // over TCP anyone may ask what is for anyone
    let open = OPERATIONS.iter().filter(|operation| operation.about().role == Role::Anyone).count();
    let tried = finds_nothing(&site, &tool, TCP, &document, &["--include-by", "/x-role == anyone"]);
    assert_eq!(tried, open);
    assert_eq!(gateway.json("/health").unwrap()["status"], "ok");
    // one of the requests may have opened the candidate for this process alone, behind which the relay is
    Client::new(&site.state()).ask(&CLOSE_CANDIDATE, &CloseQuery { discard: true }).unwrap();
    accepted(&site.commit(&site.write("b.conf", CONFIGURATION)));
}
