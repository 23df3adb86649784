//! Who may ask the daemon what, under which name, and that nobody keeps its owners from being heard.

use crate::common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{BINARY, Running, Site, accepted, copy_program, demanded, leaves, stdout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sluice_control::operations::{Listed, OPERATIONS, Role, arguments};

const TCP: &str = "http://127.0.0.1:8080";
const GATE: &str = "set services gate zone left\n\
                    set services gate service ping destination-address 10.71.2.2\n\
                    set services gate service ping protocol icmp\n";

/// Options of setpriv.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
const OWNERS_GROUP: [&str; 3] = ["--reuid=65534", "--regid=0", "--clear-groups"];
const ROOT: [&str; 1] = ["--reuid=0"];

/// What everyone may ask.
const OPEN: [&str; 16] = [
    "health",
    "metrics",
    "api/openapi.json",
    "api/stats",
    "api/interfaces",
    "api/routes/static",
    "api/routing-instances",
    "api/screens",
    "api/nat",
    "api/zones",
    "api/policies",
    "api/pipeline",
    "api/gate",
    "api/gtp-u",
    "api/router-advertisement",
    "api/match-policies?from_zone=left&to_zone=right&source_ip=10.0.0.1&destination_ip=10.0.0.2&protocol=icmp",
];

/// What only they do, and a body for each.
const CHANGES: [(&str, &str); 25] = [
    ("api/sessions/clear", "{}"),
    ("api/nat/bindings/clear", "{}"),
    ("api/dhcp/clients/renew", "{\"interface\":\"x\"}"),
    ("api/dhcp/clients/release", "{\"interface\":\"x\"}"),
    ("api/dhcpv6/clients/renew", "{\"interface\":\"x\"}"),
    ("api/dhcpv6/clients/release", "{\"interface\":\"x\"}"),
    ("api/gate/revoke", "{\"all\":true}"),
    ("api/gate/grant", "[]"),
    ("api/routing/bgp/clear", "{\"all\":true}"),
    ("api/dhcp-server/clear", "{\"address\":\"192.0.2.9\"}"),
    ("api/dhcpv6-server/clear", "{\"address\":\"2001:db8::9\"}"),
    ("api/gtp-u/sessions/add", "[]"),
    ("api/gtp-u/sessions/change", "{\"name\":\"x\"}"),
    ("api/gtp-u/sessions/remove", "{\"all\":true}"),
    ("api/commit", "x"),
    ("api/commit/confirm", ""),
    ("api/candidate/open", ""),
    ("api/candidate/edit", "set system host-name x"),
    ("api/candidate/load?mode=set", "set system host-name y"),
    ("api/candidate/rollback?number=0", ""),
    ("api/candidate/discard", ""),
    ("api/candidate/close", ""),
    ("api/candidate/commit", ""),
    ("api/rescue/delete", ""),
    ("api/rescue/save", ""),
];

/// What is told to owners and their group: every other question.
fn confidential() -> Vec<String> {
    let group = OPERATIONS.iter().filter(|operation| operation.about().role == Role::Group);
    let request = |operation: &&dyn Listed| {
        let required = arguments(*operation).into_iter().filter(|argument| argument.is_required);
        let query: Vec<String> = required.map(|argument| format!("{}=0", argument.name)).collect();
        format!("{}?{}", operation.about().path.trim_start_matches('/'), query.join("&"))
    };
    group.map(request).collect()
}

/// Body and status.
fn curl(site: &Site, caller: &[&str], arguments: &[&str]) -> (String, u16) {
    let mut command = site.gateway.command("setpriv");
    command.args(caller).args(["curl", "-sS", "-m", "10", "-w", "\n%{http_code}"]).args(arguments);
    let text = stdout(&command.output().unwrap());
    let (body, status) = text.rsplit_once('\n').unwrap();
    (body.to_owned(), status.parse().unwrap())
}

/// The same of a path, over TCP or the unix socket.
fn ask(site: &Site, caller: &[&str], tcp: bool, path: &str, more: &[&str]) -> (String, u16) {
    let socket = site.state().join("sluice.sock").display().to_string();
    let (place, way) = if tcp { (TCP, vec![]) } else { ("http://sluice", vec!["--unix-socket", &socket]) };
    let url = format!("{place}/{path}");
    curl(site, caller, &[&way, more, &[url.as_str()]].concat())
}

/// What everybody may ask, and what changes something, stands above a second time: an operation that says otherwise by mistake is
/// found here.
#[test]
fn every_operation_is_tried() {
    let listed = |role: Role| -> BTreeSet<&'static str> {
        let abouts = OPERATIONS.iter().map(|operation| operation.about());
        abouts.filter(|about| about.role == role).map(|about| about.path.trim_start_matches('/')).collect()
    };
    let bare = |path: &'static str| path.split('?').next().unwrap();
    assert_eq!(listed(Role::Anyone), BTreeSet::from(OPEN.map(bare)));
    assert_eq!(listed(Role::Owner), BTreeSet::from(CHANGES.map(|(path, _)| bare(path))));
}

/// Every question and change, times everyone who may come.
#[test]
fn what_is_confidential_is_told_to_owners_only() {
    let site = Site::new("access");
    let _gateway = site.start(&site.write("a.conf", GATE));
    accepted(&site.sluice(&["rescue", "save"]));
    // who; over TCP; may read what is confidential; may change something
    let callers: [(&[&str], bool, bool, bool); 5] = [
        (&ROOT, false, true, true),
        (&OWNERS_GROUP, false, true, false),
        (&NOBODY, false, false, false),
        (&ROOT, true, false, false),
        (&NOBODY, true, false, false),
    ];
    for (caller, tcp, reads, may_change) in callers {
        let ask = |path: &str, more: &[&str]| ask(&site, caller, tcp, path, more);
        for path in OPEN {
            assert_eq!(ask(path, &[]).1, 200, "{path} for {caller:?}, tcp {tcp}");
        }
        for path in confidential() {
            let (body, status) = ask(&path, &[]);
            assert_eq!(status, if reads { 200 } else { 403 }, "{path} for {caller:?}, tcp {tcp}");
            assert!(reads || (body.contains("only root") && body.contains("unix socket") == tcp), "{body}");
        }
        for (path, body) in CHANGES {
            let (_, status) = ask(path, &["-d", body]);
            match (tcp, may_change) {
                (true, _) => assert_eq!(status, 404, "{path} for {caller:?}: TCP answers questions only"),
                (false, false) => assert_eq!(status, 403, "{path} for {caller:?}"),
                (false, true) => assert!([200, 422].contains(&status), "{path} for {caller:?}: {status}"),
            }
        }
    }
    // the binary may lie where nobody else can read; a copy does not
    let copy = site.dir().join("sluice");
    copy_program(BINARY, &copy);
    for (caller, told) in [(&OWNERS_GROUP, true), (&NOBODY, false)] {
        let mut show = site.gateway.command("setpriv");
        show.args(caller).arg(&copy).args(["show", "configuration", "--state-dir"]).arg(site.state());
        assert_eq!(show.output().unwrap().status.success(), told, "{caller:?}");
    }
}

/// The unit has a umask that takes everything from others.
#[test]
fn everybody_may_ask_a_daemon_that_its_unit_started() {
    assert!(include_str!("../../../contrib/systemd/sluice.service").contains("\nUMask=0027\n"));
    let site = Site::new("umask");
    let copy = site.dir().join("sluice");
    copy_program(BINARY, &copy);
    let heard = std::os::unix::net::UnixDatagram::bind(site.dir().join("notify")).unwrap();
    let mut start = site.gateway.command("sh");
    start.args(["-c", "umask 0027; exec \"$@\"", "sh", BINARY, "run", "--listen", "none", "--config"]);
    start.arg(site.write("a.conf", "")).arg("--state-dir").arg(site.state()).stdin(Stdio::null());
    let _daemon = Running::spawn(start.env("NOTIFY_SOCKET", site.dir().join("notify")));
    heard.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&buffer).lines().any(|line| line.trim_matches('\0') == "READY=1") {
        buffer.fill(0);
        heard.recv(&mut buffer).expect("the daemon is not ready");
    }
    // as the daemon leaves it behind a lease
    let servers = site.state().join("resolv.conf");
    std::fs::write(&servers, "nameserver 192.0.2.1\n").unwrap();
    let as_nobody = |words: &[&std::ffi::OsStr]| {
        let mut command = site.gateway.command("setpriv");
        accepted(&command.args(NOBODY).args(words).output().unwrap())
    };
    let zones = ["show", "zones", "--state-dir"].map(std::ffi::OsStr::new);
    let shown = as_nobody(&[&[copy.as_os_str()], &zones[..], &[site.state().as_os_str()]].concat());
    assert!(shown.contains("left"), "{shown}");
    assert!(as_nobody(&["cat".as_ref(), servers.as_os_str()]).contains("192.0.2.1"));
}

/// DNS rebinding: the Host field is the only thing a browser says of where a page believes to be.
#[test]
fn names_of_others_are_refused_over_tcp() {
    let site = Site::new("names");
    let _gateway = site.start(&site.write("a.conf", "set system host-name gw1\n"));
    let status = |host: &str, path: &str| {
        curl(&site, &NOBODY, &["-H", &format!("Host: {host}"), &format!("{TCP}/{path}")])
    };
    for path in ["health", "metrics", "api/stats", "api/sessions", "api/configuration", "nowhere"] {
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example:8080",
            "10.71.1.1:8080",
            "127.0.0.1:80",
            "",
        ] {
            let (body, status) = status(host, path);
            assert!([400, 421].contains(&status), "{host} {path}: {status} {body}");
        }
    }
    for host in ["127.0.0.1:8080", "localhost:8080", "localhost", "gw1", "GW1:8080"] {
        assert_eq!(status(host, "health").1, 200, "{host}");
    }
    assert!(status("evil.example", "health").0.contains("--listen-name"));
}

/// Connections that say nothing, held by [`hold`] in other processes: `count` of them over both ways in, by so many users,
/// each of whom is nobody to the daemon.
fn begin_flood(site: &Site, count: usize, users: u32) -> Vec<Running> {
    let copy = site.dir().join("flood");
    copy_program(std::env::current_exe().unwrap(), &copy);
    let child = |user: u32| {
        let ids = [format!("--reuid={}", 64000 + user), format!("--regid={}", 64000 + user)];
        let mut command = site.gateway.command("setpriv");
        command.args(ids).arg("--clear-groups").arg(&copy).args([
            "--exact",
            "access::hold",
            "--ignored",
            "--nocapture",
        ]);
        command.env("FLOOD_SOCKET", site.state().join("sluice.sock"));
        command.env("FLOOD_COUNT", (count / users as usize).to_string());
        Running::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    };
    let mut children: Vec<Running> = (0..users).map(child).collect();
    for child in &mut children {
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")), "the flood has begun");
    }
    children
}

#[test]
#[ignore = "a part of the test that begins floods"]
fn hold() {
    let Some(socket) = std::env::var_os("FLOOD_SOCKET") else { return };
    let count: usize = std::env::var("FLOOD_COUNT").unwrap().parse().unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let unix: Vec<UnixStream> = (0..count / 2).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let begin = |n: usize| {
        let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
        // some have begun to ask, or even asked and do not read what they are told
        let said: &[u8] =
            [&b""[..], b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"][n % 3];
        let _ = stream.write_all(said);
        stream
    };
    let tcp: Vec<TcpStream> = (0..count / 2).map(begin).collect();
    println!("holding {}", unix.len() + tcp.len());
    let _ = std::io::stdin().read(&mut [0]);
}

fn timed(work: impl FnOnce() -> Output) -> (String, Duration) {
    let begun = Instant::now();
    (accepted(&work()), begun.elapsed())
}

/// Who hangs up leaves work behind, which has its turn as long as it goes on: each wants a page with all policies.
#[test]
fn who_hangs_up_leaves_no_room_to_more_at_work() {
    let site = Site::new("hangup");
    let policy = |n: u32| {
        let it = format!("set security policies from-zone right to-zone left policy p{n}");
        format!("{it} match source-address any destination-address any application any\n{it} then deny\n")
    };
    let gateway = site.start(&site.write("a.conf", &(0..1000).map(policy).collect::<String>()));
    let pid = gateway.json("/health").unwrap()["pid"].as_u64().unwrap();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let ask_and_leave = || {
        // one that finds no seat is closed at once
        let _ = TcpStream::connect("127.0.0.1:8080")
            .and_then(|mut stream| stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    };
    let (before, mut most) = (threads(), 0);
    for _ in 0..4 {
        let flood = || (0..400).map(|_| ask_and_leave()).map(|()| threads()).max();
        most = most.max(site.gateway.enter(flood).unwrap().unwrap_or_default());
        let (_, took) = timed(|| site.sluice(&["show", "zones"]));
        assert!(took < Duration::from_secs(2), "show zones took {took:?}");
    }
    // those at work, and the owner's
    assert!(most < before + 20, "{most} threads, {before} before");
}

/// Every command that asks the daemon, as one user's and as many users' connections fill what others may have. Those that say
/// nothing for half a minute go by themselves.
#[test]
fn no_flood_of_idle_connections_holds_up_a_command() {
    let site = Site::new("flood");
    let conf = site.write("a.conf", GATE);
    let gateway = site.start(&conf);
    accepted(&site.sluice(&["rescue", "save"]));
    let pid = gateway.json("/health").unwrap()["pid"].as_u64().unwrap();
    let commands: Vec<Vec<String>> =
        ["show", "clear", "gate"].into_iter().flat_map(|c| leaves(&[c])).collect();
    assert!(commands.len() > 20, "{commands:?}");
    let mut idle = UnixStream::connect(site.state().join("sluice.sock")).unwrap();
    let begun = Instant::now();
    for users in [1, 6] {
        let _flood = begin_flood(&site, 1500, users);
        let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert!(files() < 700, "{} files are open", files());
        for command in &commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let more: Vec<&str> = demanded(&words.join(" ")).split_whitespace().collect();
            let (_, took) = timed(|| site.sluice(&[words, more].concat()));
            assert!(took < Duration::from_secs(2), "{command:?} took {took:?}");
        }
        let (_, took) = timed(|| site.commit(&conf));
        assert!(took < Duration::from_secs(20), "commit took {took:?}");
        // nor are Prometheus and others locked out
        let open =
            OPEN.iter().flat_map(|path| [true, false].map(|tcp| (&NOBODY[..], tcp, (*path).to_owned())));
        let confidential = confidential().into_iter().map(|path| (&ROOT[..], false, path));
        for (caller, tcp, path) in open.chain(confidential) {
            let begun = Instant::now();
            assert_eq!(ask(&site, caller, tcp, &path, &[]).1, 200, "{path}, tcp {tcp}");
            assert!(begun.elapsed() < Duration::from_secs(2), "{path}, tcp {tcp} took {:?}", begun.elapsed());
        }
    }
    idle.set_read_timeout(Some(Duration::from_secs(45))).unwrap();
    assert_eq!(idle.read_to_end(&mut vec![]).unwrap(), 0, "the daemon ends it");
    assert!(begun.elapsed() > Duration::from_secs(29), "after {:?}", begun.elapsed());
}
