//! A gateway between two hosts, each in a namespace of its own.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::{Netns, VethEnd, veth};
use sluice_lab::patience::patience;

pub const BINARY: &str = env!("CARGO_BIN_EXE_sluice");

/// How long a daemon may take to say that it may not run.
const REFUSAL: Duration = Duration::from_secs(30);
/// How long any command may take; commits of large configurations take long on a busy machine.
const LONGEST: Duration = Duration::from_secs(90);

/// `sluice lab run` of a scene on both hooks, as a user runs it: what it prints. It must succeed; what did not comes first.
pub fn lab(scene: &str) -> String {
    let output = Command::new(BINARY).args(["lab", "run", scene, "--hook", "both"]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("FAIL")).collect();
    assert!(output.status.success(), "{}\n{errors}\n{text}", failed.join("\n"));
    text.into_owned()
}

/// left may open sessions to right, not the other way round.
pub const BASE: &str = "
set interfaces left0 unit 0 family inet address 10.71.1.1/24
set interfaces left0 unit 0 family inet6 address fd71:1::1/64
set interfaces right0 unit 0 family inet address 10.71.2.1/24
set interfaces right0 unit 0 family inet6 address fd71:2::1/64
set security zones security-zone left interfaces left0.0
set security zones security-zone left host-inbound-traffic system-services ping
set security zones security-zone right interfaces right0.0
set security policies from-zone left to-zone right policy out match source-address any
set security policies from-zone left to-zone right policy out match destination-address any
set security policies from-zone left to-zone right policy out match application any
set security policies from-zone left to-zone right policy out then permit
set security flow max-sessions 4096
set security flow max-sessions-v6 4096
";

/// An interface that a test takes away again.
pub const EXTRA: &str = "\
set interfaces extra0 unit 0 family inet address 10.71.9.1/24
set security zones security-zone right interfaces extra0.0
";

/// Listeners at an address, one in the data plane and one in user space.
pub fn listeners(interface: &str, address: &str) -> String {
    format!(
        "\
set services fan-out listener plane interface {interface}
set services fan-out listener plane mode auto
set services fan-out listener plane address {address}
set services fan-out listener plane port 514
set services fan-out listener plane receiver r address 10.71.2.2
set services fan-out listener plane receiver r port 5514
set services fan-out listener sockets mode userspace
set services fan-out listener sockets address {address}
set services fan-out listener sockets port 515
set services fan-out listener sockets receiver r address 10.71.2.2
set services fan-out listener sockets receiver r port 5515
"
    )
}

pub struct Site {
    pub gateway: Netns,
    pub left: Netns,
    pub right: Netns,
    /// Names of the hosts at the gateway.
    hosts: Mutex<Vec<String>>,
    dir: PathBuf,
}

impl Site {
    pub fn new(label: &str) -> Site {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("sluice-test-{}-{n}-{label}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let make = |part: &str| Netns::create(&format!("{label}-{part}")).unwrap();
        let site =
            Site { gateway: make("gw"), left: make("l"), right: make("r"), hosts: Mutex::default(), dir };
        site.connect(&site.left, "left0", &["10.71.1.2/24", "fd71:1::2/64"]);
        site.connect(&site.right, "right0", &["10.71.2.2/24", "fd71:2::2/64"]);
        for (host, net) in [(&site.left, "1"), (&site.right, "2")] {
            host.ip(&format!("route add default via 10.71.{net}.1")).unwrap();
            host.ip(&format!("-6 route add default via fd71:{net}::1")).unwrap();
        }
        site
    }

    /// A pair between the gateway's `device` and the host's eth0.
    pub fn connect(&self, host: &Netns, device: &str, addresses: &[&str]) {
        let near = VethEnd { netns: &self.gateway, name: device, mac: None, addresses: &[] };
        veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses }).unwrap();
        self.hosts.lock().unwrap().push(host.name().to_owned());
    }

    /// A third network, behind the gateway's third0.
    pub fn connect_third(&self, third: &Netns) {
        self.connect(third, "third0", &["10.71.3.2/24", "fd71:3::2/64"]);
        third.ip("route add default via 10.71.3.1").unwrap();
        third.ip("-6 route add default via fd71:3::1").unwrap();
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join(self.instance())
    }

    fn instance(&self) -> String {
        self.dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    pub fn pins(&self) -> PathBuf {
        Path::new("/sys/fs/bpf/sluice").join(self.instance())
    }

    /// Writes a configuration of [`BASE`] and more.
    pub fn write(&self, name: &str, more: &str) -> PathBuf {
        self.write_all(name, &format!("{BASE}{more}"))
    }

    pub fn write_all(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A running daemon, between hosts that can answer.
    pub fn start(&self, configuration: &Path) -> Gateway<'_> {
        let mut gateway = self.daemon(configuration);
        gateway.start().unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
        for host in &*self.hosts.lock().unwrap() {
            // A test may have removed it.
            let settled = || Netns::open(host).and_then(|host| host.is_settled()).unwrap_or(true);
            wait_until("the devices of a host are up", Duration::from_secs(5), settled);
        }
        gateway
    }

    pub fn daemon(&self, configuration: &Path) -> Gateway<'_> {
        Gateway::new(Path::new(BINARY), &self.gateway, configuration, &self.state()).unwrap()
    }

    /// Runs the binary in the gateway's namespace to its end.
    pub fn sluice(&self, arguments: &[&str]) -> Output {
        let mut command = self.gateway.command(BINARY);
        ends_within(command.args(arguments).arg("--state-dir").arg(self.state()), LONGEST)
    }

    /// A daemon that has to be refused.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.gateway.command(BINARY);
        command.args(["run", "--listen", "none"]).args(arguments).arg("--state-dir").arg(self.state());
        ends(&mut command)
    }

    pub fn commit(&self, configuration: &Path) -> Output {
        self.sluice(&["commit", &configuration.display().to_string()])
    }

    /// Echo requests are answered: the first one, unless the machine is too busy for it.
    pub fn pings(&self, from: &Netns, to: &str) -> bool {
        let ping = ["-c", "1", "-w", "3", "-n", to];
        from.command("ping").args(ping).output().unwrap().status.success()
    }

    /// Nobody answers one within a second.
    pub fn silent(&self, from: &Netns, to: &str) -> bool {
        !from.command("ping").args(["-c", "1", "-W", "1", "-n", to]).output().unwrap().status.success()
    }

    pub fn addresses(&self, device: &str) -> String {
        self.gateway.ip(&format!("-brief address show dev {device}")).unwrap()
    }

    /// Ids of the pinned links, by file name.
    pub fn links(&self) -> Vec<(String, u64)> {
        let mut links: Vec<_> = fs::read_dir(self.pins().join("links"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let link = bpftool(&["link", "show", "pinned", &path.display().to_string()]);
                (path.file_name().unwrap().to_string_lossy().into_owned(), link["id"].as_u64().unwrap())
            })
            .collect();
        links.sort();
        links
    }

    /// The word `active`.
    pub fn active(&self) -> u32 {
        let pin = self.pins().join("active").display().to_string();
        let entry = bpftool(&["map", "lookup", "pinned", &pin, "key", "0", "0", "0", "0"]);
        let byte = |v: &Value| u32::from_str_radix(v.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        entry["value"].as_array().unwrap().iter().rev().fold(0, |word, v| word << 8 | byte(v))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Removing pins detaches the programs; the namespaces take the rest with them.
        let _ = fs::remove_dir_all(self.pins());
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A process that ends with its test, however the test ends.
pub struct Running(Option<Child>);

impl Running {
    pub fn new(child: Child) -> Running {
        Running(Some(child))
    }

    pub fn spawn(command: &mut Command) -> Running {
        Running::new(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Waits until it has ended by itself, and gives what it has said. It is killed, and the test fails, where that takes longer.
    pub fn ended(mut self, what: &str, patience: Duration) -> Output {
        let child = self.0.take().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let output = receiver.recv_timeout(patience).unwrap_or_else(|_| {
            // it may have ended just now
            let _ = kill(pid, Signal::SIGKILL);
            let output = receiver.recv().unwrap().unwrap();
            panic!("{what}: has not ended within {patience:?}: {}{}", stdout(&output), stderr(&output))
        });
        output.unwrap()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended by itself; then there is nothing to do but to collect it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A copy of a program to be run. Another process writes it: a file that this one has open for writing is inherited by
/// whatever other tests begin at that moment, and cannot be run until those have closed it (ETXTBSY).
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    assert!(Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap().success(), "{}", to.display());
}

/// Whether programs that a test needs are there; a machine without them says so (`scripts/setup.sh` installs them).
pub fn installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !Path::new(program).exists()).collect();
    if !missing.is_empty() {
        eprintln!("NOT TESTED: {missing:?} cannot be found; run scripts/setup.sh");
    }
    missing.is_empty()
}

/// Runs a command that has to be refused: a daemon that is not would run for ever.
pub fn ends(command: &mut Command) -> Output {
    ends_within(command, REFUSAL)
}

fn ends_within(command: &mut Command, usual: Duration) -> Output {
    let what = format!("{command:?}");
    Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).ended(&what, patience(usual))
}

pub fn bpftool(arguments: &[&str]) -> Value {
    let output = Command::new("bpftool").arg("-j").args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("bpftool {arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stdout)))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts an exit code and returns what was said on standard error.
pub fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

pub fn accepted(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    stdout(output)
}

/// What stands under `Commands:` in the help of a command, down to those without parts.
pub fn leaves(command: &[&str]) -> Vec<Vec<String>> {
    let help = Command::new(BINARY).args(command).arg("--help").output().unwrap();
    let help = accepted(&help);
    let Some((_, list)) = help.split_once("Commands:\n") else {
        return vec![command.iter().map(|word| (*word).to_owned()).collect()];
    };
    let names =
        list.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").flat_map(|name| leaves(&[command, &[name]].concat())).collect()
}

/// What a command must be told.
pub fn demanded(command: &str) -> &'static str {
    match command {
        "show match-policies" => {
            "--from-zone left --to-zone right --source-ip 10.0.0.1 --destination-ip 10.0.0.2 --protocol icmp"
        }
        "gate grant" => "--user mallory --source 10.71.1.2 --service ping",
        "gate revoke" => "--all",
        _ => "",
    }
}

/// Waits until every packet is accounted for: a reading may fall between two counters of one packet.
pub fn balances(gateway: &Gateway) -> Value {
    let patience = Duration::from_secs(20);
    let begun = Instant::now();
    loop {
        let stats = gateway.json("/api/stats").unwrap();
        if ["ingress", "egress"].iter().all(|side| stats["equations"][side]["difference"] == 0) {
            return stats;
        }
        assert!(begun.elapsed() < patience, "{} not within {patience:?}", stats["equations"]);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a condition holds; how long that took, or a panic after `patience`. What asks by starting a process rests
/// longer than it asks: others run beside it.
pub fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        if holds() {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        std::thread::sleep((2 * asked.elapsed()).clamp(Duration::from_millis(2), Duration::from_millis(200)));
    }
}

/// Whether all is tried, as `make soak` does; `make test` tries a part, each time the same one.
pub fn is_soak() -> bool {
    std::env::var_os("SLUICE_SOAK").is_some()
}
