//! Restart, kill, commit and upgrade under traffic at full rate: nothing is lost, and nothing denied gets through.

#[path = "../../crates/sluice/tests/upgrade/trees.rs"]
mod trees;

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use sluice_lab::branch::{Branch, HOST_DEVICE, Hook, Site};
use sluice_lab::demo::configuration_text;
use sluice_lab::gateway::Gateway;
use sluice_lab::state::StateDirectory;
use sluice_lab::stats::{self, Stats};
use sluice_lab::stream::{Account, Shape, Stream};

const OWN: &str = env!("CARGO_BIN_EXE_sluice");
const FLOWS: u32 = 1000;
const DENIED_EVERY: u32 = 16;
const GENERATOR_CPU: usize = 0;

/// Two generators at full rate would only disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What happens to the daemon while packets flow.
type Disturbance = fn(&mut Gateway, &[PathBuf; 2]) -> anyhow::Result<()>;

#[test]
fn restarts_lose_nothing_on_tc() {
    check(Hook::Tc, "restart-tc", restart);
}

#[test]
#[ignore = "as on the other hook; make upgrades runs it"]
fn restarts_lose_nothing_on_xdp() {
    check(Hook::Xdp, "restart-xdp", restart);
}

#[test]
#[ignore = "as on the other hook; make upgrades runs it"]
fn kills_lose_nothing_on_tc() {
    check(Hook::Tc, "kill-tc", kill);
}

#[test]
fn kills_lose_nothing_on_xdp() {
    check(Hook::Xdp, "kill-xdp", kill);
}

#[test]
fn commits_lose_nothing_on_tc() {
    check(Hook::Tc, "commit-tc", commit);
}

#[test]
#[ignore = "as on the other hook; make upgrades runs it"]
fn commits_lose_nothing_on_xdp() {
    check(Hook::Xdp, "commit-xdp", commit);
}

fn restart(gateway: &mut Gateway, _: &[PathBuf; 2]) -> anyhow::Result<()> {
    for _ in 0..3 {
        let status = gateway.stop()?;
        anyhow::ensure!(status.success(), "the daemon ended with {status}");
        thread::sleep(Duration::from_millis(100));
        gateway.start()?;
    }
    Ok(())
}

fn kill(gateway: &mut Gateway, _: &[PathBuf; 2]) -> anyhow::Result<()> {
    for _ in 0..3 {
        gateway.kill()?;
        thread::sleep(Duration::from_millis(100));
        gateway.start()?;
    }
    Ok(())
}

fn commit(gateway: &mut Gateway, configurations: &[PathBuf; 2]) -> anyhow::Result<()> {
    for turn in 0..10 {
        gateway.commit(&configurations[(turn + 1) % 2])?;
    }
    Ok(())
}

/// There and back again, and each of them killed where it stands.
fn become_a_twin(gateway: &mut Gateway, _: &[PathBuf; 2]) -> anyhow::Result<()> {
    let twin = trees::twin();
    for program in [&twin, Path::new(OWN), &twin] {
        upgrade(gateway, program)?;
    }
    Ok(())
}

fn upgrade_once(gateway: &mut Gateway, _: &[PathBuf; 2]) -> anyhow::Result<()> {
    upgrade(gateway, Path::new(OWN))
}

fn upgrade(gateway: &mut Gateway, program: &Path) -> anyhow::Result<()> {
    gateway.kill()?;
    gateway.set_program(program);
    gateway.start()
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn a_twin_and_back_lose_nothing_on_tc() {
    trees::twin();
    check(Hook::Tc, "twin-tc", become_a_twin);
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn a_twin_and_back_lose_nothing_on_xdp() {
    trees::twin();
    check(Hook::Xdp, "twin-xdp", become_a_twin);
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn upgrades_from_the_version_before_lose_nothing_on_tc() {
    if let Some(before) = trees::before() {
        check_from(&before, Hook::Tc, "before-tc", upgrade_once);
    }
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn upgrades_from_the_version_before_lose_nothing_on_xdp() {
    if let Some(before) = trees::before() {
        check_from(&before, Hook::Xdp, "before-xdp", upgrade_once);
    }
}

/// The opposite: without programs packets are lost, which the account must show, and still none gets through that
/// the policies deny, though the kernel has routes and forwards.
#[test]
#[ignore = "as on the other hook; make upgrades runs it"]
fn detached_programs_lose_packets_and_fail_closed_on_tc() {
    check_detached(Hook::Tc, "detached-tc");
}

#[test]
fn detached_programs_lose_packets_and_fail_closed_on_xdp() {
    check_detached(Hook::Xdp, "detached-xdp");
}

fn detach(gateway: &mut Gateway, _: &[PathBuf; 2]) -> anyhow::Result<()> {
    gateway.kill()?;
    for link in fs::read_dir(gateway.pins().join("links"))? {
        fs::remove_file(link?.path())?;
    }
    thread::sleep(Duration::from_millis(100));
    gateway.start()
}

fn check(hook: Hook, label: &str, disturb: Disturbance) {
    check_from(Path::new(OWN), hook, label, disturb);
}

/// `program` is who is disturbed.
fn check_from(program: &Path, hook: Hook, label: &str, disturb: Disturbance) {
    let (account, stats) = run(program, hook, label, disturb);
    assert!(account.is_exact(), "{label}: {account:?}\n{stats:#?}");
    assert!(stats.equations.hold(), "{label}: {:?}", stats.equations);
}

fn check_detached(hook: Hook, label: &str) {
    let (account, _) = run(Path::new(OWN), hook, label, detach);
    assert!(account.arrived < account.sent && account.flows_with_loss > 0, "{label}: {account:?}");
    assert!(account.arrived > 0 && account.arrived_denied == 0, "{label}: {account:?}");
}

/// The stream from trust to dmz through a disturbed gateway.
fn run(program: &Path, hook: Hook, label: &str, disturb: Disturbance) -> (Account, Stats) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let state = StateDirectory::new(label).unwrap();
    let branch = Branch::create(Some(hook)).unwrap();
    let configurations = write_configurations(state.path(), hook);
    let mut gateway = Gateway::new(program, &branch.gateway, &configurations[0], state.path()).unwrap();
    gateway.start().unwrap();
    let (trust, dmz) = (branch.host(Site::Trust), branch.host(Site::Dmz));
    // Neighbours are resolved before anything is counted.
    trust.run("ping", ["-c1", "-W2", &Site::Dmz.host4().to_string()]).unwrap();
    // Frames made in the kernel reach a veth without an XDP program only when it polls.
    branch.gateway.run("ethtool", ["-K", &Site::Trust.device(), "gro", "on"]).unwrap();

    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape(&branch)).unwrap();
    let _sink = stream.sink(dmz, HOST_DEVICE).unwrap();
    let running = stream.start(trust, GENERATOR_CPU, None).unwrap();
    thread::sleep(Duration::from_millis(200));
    let before = stream.sent_total();
    disturb(&mut gateway, &configurations)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
    let during = stream.sent_total() - before;
    thread::sleep(Duration::from_millis(200));
    let account = stream.finish(running).unwrap();

    println!("{label}: {during} packets during the disturbance, {account:?}");
    let stats = stats::at_rest(&gateway).unwrap();
    assert!(account.sent_denied > 0 && during > 1_000, "{label}: too little was tried, {account:?}");
    gateway.finish().unwrap();
    (account, stats)
}

fn shape(branch: &Branch) -> Shape {
    let trust = branch.host(Site::Trust);
    Shape {
        flows: FLOWS,
        denied_every: DENIED_EVERY,
        ifindex: trust.ifindex(HOST_DEVICE).unwrap(),
        source_mac: Site::Trust.host_mac(),
        destination_mac: Site::Trust.gateway_mac(),
        source: Site::Trust.host4(),
        destination: Site::Dmz.host4(),
    }
}

/// The branch with a policy that denies the stream's marked packets; the second one has another policy before it, so
/// that every rule moves.
fn write_configurations(directory: &Path, hook: Hook) -> [PathBuf; 2] {
    let branch = configuration_text(hook, None).unwrap();
    let deny = policy("no-discard", "any", "discard", "deny");
    let moved = policy("unrelated", "web-host-v6", "junos-ftp", "reject");
    let applications = "applications { application discard { protocol udp; destination-port 9; } }\n";
    [("a.conf", deny.clone()), ("b.conf", moved + &deny)].map(|(name, policies)| {
        let anchor = "policy office-to-servers {";
        assert!(branch.contains(anchor));
        let text = branch.replace(anchor, &format!("{policies}{anchor}")) + applications;
        let file = directory.join(name);
        fs::write(&file, text).unwrap();
        file
    })
}

fn policy(name: &str, source: &str, application: &str, action: &str) -> String {
    format!(
        "policy {name} {{ match {{ source-address {source}; destination-address any; application {application}; }} \
         then {{ {action}; }} }}\n"
    )
}
