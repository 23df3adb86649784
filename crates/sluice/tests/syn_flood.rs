//! A real client and a real server through a flood of SYNs from sources that do not exist.

use crate::common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Running, Site, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;

const SCREEN: &str = "\
set security screen ids-option edge tcp syn-flood attack-threshold 100
set security zones security-zone left screen edge
";
/// Sessions may be made for the SYNs of each second up to the threshold, and they last until the sweep ends them.
const PER_SECOND: u64 = 100;
/// The table's size (`max-sessions`): without the screen it would be full in a moment.
const TABLE: u64 = 4096;

/// SYNs to port 80 with random sources, as fast as one process can until it is stopped; 4,096 frames made beforehand.
const FLOOD: &str = r#"
import random, socket, struct, sys
gateway, own, server, six = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3], ':' in sys.argv[3]
family = socket.AF_INET6 if six else socket.AF_INET
target = socket.inet_pton(family, server)
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def frame():
    host = random.randrange(1, 1 << 32)
    source = socket.inet_pton(family, '2001:db8:dead::') [:12] + struct.pack('!I', host) if six \
        else bytes([random.randrange(11, 120)]) + struct.pack('!I', host)[1:]
    tcp = struct.pack('!HHIIBBHHH', random.randrange(1024, 65536), 80, random.randrange(1 << 32), 0, 5 << 4, 2, 64240, 0, 0)
    pseudo = source + target + struct.pack('!IHBB', 20, 0, 0, 6) if six else source + target + struct.pack('!BBH', 0, 6, 20)
    tcp = tcp[:16] + struct.pack('!H', checksum(pseudo + tcp)) + tcp[18:]
    if six:
        return gateway + own + b'\x86\xdd' + struct.pack('!IHBB', 6 << 28, 20, 6, 64) + source + target + tcp
    ip = struct.pack('!BBHHHBBH', 0x45, 0, 40, 0, 0, 64, 6, 0) + source + target
    return gateway + own + b'\x08\x00' + ip[:10] + struct.pack('!H', checksum(ip)) + ip[12:] + tcp
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(('eth0', 0))
frames = [frame() for _ in range(4096)]
while True:
    for one in frames:
        try: wire.send(one)
        except OSError: pass
"#;

/// nginx in the namespace of the right host; its files are the test's own.
fn server(site: &Site) -> Running {
    let dir = std::env::temp_dir();
    let pid = dir.join(format!("sluice-test-nginx-{}-{}.pid", std::process::id(), site.right.name()));
    let text = format!(
        "daemon off; master_process off; pid {}; error_log stderr; events {{}}\n\
         http {{ access_log off; server {{ listen 80; listen [::]:80; return 200 served; }} }}\n",
        pid.display()
    );
    let configuration = site.write_all("nginx.conf", &text);
    let mut command = site.right.command("nginx");
    command.args(["-c", &configuration.display().to_string(), "-p", &dir.display().to_string()]);
    Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn flood(site: &Site, gateway_mac: &str, own_mac: &str, server: &str) -> Running {
    let mut command = site.left.command("python3");
    command.args(["-c", FLOOD, gateway_mac, own_mac, server]);
    Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn mac(command: &mut Command) -> String {
    let links: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    links[0]["address"].as_str().unwrap().replace(':', "")
}

/// What the server said, and how long it took; none = the connection came to nothing.
fn fetch(site: &Site, url: &str, more: &[&str]) -> Option<Duration> {
    let begin = Instant::now();
    let mut command = site.left.command("curl");
    command.args(["-gsS", "--noproxy", "*", "--max-time", "20"]).args(more).arg(url);
    let output = command.output().unwrap();
    (output.stdout == b"served").then(|| begin.elapsed())
}

fn seen(gateway: &Gateway, check: &str) -> u64 {
    let list = gateway.json("/api/screens").unwrap();
    let view = list.as_array().unwrap().iter().find(|view| view["check"] == check).unwrap();
    view["packets"].as_u64().unwrap()
}

fn sessions(gateway: &Gateway) -> u64 {
    let stats = gateway.json("/api/stats").unwrap();
    stats["sessions"]["v4"].as_u64().unwrap().max(stats["sessions"]["v6"].as_u64().unwrap())
}

#[test]
fn clients_reach_their_server_through_a_flood_on_tc() {
    through_a_flood(&Site::new("synt"), "tc");
}

#[test]
fn clients_reach_their_server_through_a_flood_on_xdp() {
    let site = Site::new("synx");
    // hosts behind native XDP complete their checksums themselves and poll for what is redirected to them
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    through_a_flood(&site, "xdp");
}

fn through_a_flood(site: &Site, mode: &str) {
    let modes = format!("set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n");
    let gateway = site.start(&site.write("a.conf", &format!("{SCREEN}{modes}")));
    let _server = server(site);
    let gateway_mac = mac(site.gateway.command("ip").args(["-j", "link", "show", "dev", "left0"]));
    let own_mac = mac(site.left.command("ip").args(["-j", "link", "show", "dev", "eth0"]));
    for (server, url) in [("10.71.2.2", "http://10.71.2.2/"), ("fd71:2::2", "http://[fd71:2::2]/")] {
        wait_until("the server", Duration::from_secs(5), || fetch(site, url, &[]).is_some());
        let before = seen(&gateway, "syn_flood");
        let begin = Instant::now();
        let flooding = flood(site, &gateway_mac, &own_mac, server);
        wait_until("the flood", Duration::from_secs(10), || seen(&gateway, "syn_flood") > before + 20_000);

        // the first connection of an unknown address may be reset: it proves the address; the next ones are as always
        let retry = ["--retry", "5", "--retry-all-errors", "--retry-delay", "0"];
        let took = fetch(site, url, &retry).expect("the client gets through");
        println!("{mode} {server}: {took:?} for the first");
        for _ in 0..20 {
            let took = fetch(site, url, &[]).expect("a known source connects at once");
            assert!(took < Duration::from_secs(3), "{took:?}");
        }
        let seconds = begin.elapsed().as_secs() + 2;
        let held = seen(&gateway, "syn_flood") - before;
        println!("{server}: {held} SYNs held back in {seconds} s, {} sessions", sessions(&gateway));
        assert!(sessions(&gateway) <= PER_SECOND * seconds + 50, "{} sessions", sessions(&gateway));
        assert!(sessions(&gateway) < TABLE / 2);
        assert!(held / seconds > 5 * PER_SECOND, "{held} SYNs in {seconds} s are no flood");
        drop(flooding);
    }
    assert!(seen(&gateway, "syn_cookie") >= 1, "somebody returned a cookie");
    let log = gateway.json("/api/log?last=1000").unwrap().to_string();
    assert!(log.contains("syn_flood") && log.contains("RT_SCREEN_TCP"), "{log}");
}
