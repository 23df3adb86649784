//! What a reload says, it does; what it cannot do, it refuses.

use super::bed::{FanOut, LISTENER, PATIENCE, Sink, receiver, send, sinks_at, site, total, yaml};
use crate::common::{ends, refused, wait_until};
use sluice_lab::metrics::Metrics;
use sluice_metrics::judge;

#[test]
fn a_mode_of_the_data_plane_is_refused_by_a_process_without_one() {
    let site = site("fan-re-mode");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("userspace", ""));
    for mode in ["tc_ebpf", "xdp", "auto"] {
        let before = fanout.words().matches("refused").count();
        fanout.rewrite(&yaml(mode, ""));
        wait_until("the refusal", PATIENCE, || fanout.words().matches("refused").count() > before);
        let before = total(&sinks);
        send(&site.left, LISTENER, 0..30, 20_000, 1);
        wait_until("it serves as before", PATIENCE, || total(&sinks) >= before + 30);
    }
    assert!(fanout.words().contains("restart `sluice fanout`"), "{}", fanout.words());
    assert!(!fanout.words().contains("reloaded"), "{}", fanout.words());
}

fn follows(mode: &str) {
    let site = site(&format!("fan-re-{mode}-all"));
    let text = yaml(mode, "");
    let fanout = FanOut::start(&site, &text);
    let reads = |place: &str| Metrics::read(&site.gateway, place).is_ok();
    assert!(reads("127.0.0.1:9090"));
    let page = fanout.metrics();
    judge::read(&page).unwrap();
    let drops = page.lines().filter(|line| line.starts_with("sluice_fanout_dropped_packets_total{"));
    let reason = if mode == "userspace" { "\"no_receiver\"" } else { "\"fanout_no_receiver\"" };
    assert!(
        drops.into_iter().any(|line| line.contains(reason) && line.ends_with("} 0")),
        "an increase is only seen from a zero: {page}"
    );
    fanout.rewrite(&text.replace("127.0.0.1:9090", "127.0.0.1:9191"));
    wait_until("the metrics move", PATIENCE, || reads("127.0.0.1:9191") && !reads("127.0.0.1:9090"));
    // more addresses of the same port: our own server is in the way and gives way
    fanout.rewrite(&text.replace("127.0.0.1:9090", "0.0.0.0:9191"));
    wait_until("they are everywhere", PATIENCE, || reads("10.71.1.1:9191"));
    let taken = site.gateway.enter(|| std::net::TcpListener::bind("127.0.0.1:9292").unwrap()).unwrap();
    fanout.rewrite(&text.replace("127.0.0.1:9090", "127.0.0.1:9292"));
    wait_until("a place that is taken is refused", PATIENCE, || {
        fanout.words().lines().any(|line| line.contains("refused") && line.contains("9292"))
    });
    assert!(reads("127.0.0.1:9191"), "nothing changed");
    drop(taken);
    let quiet = text.replace("log_level: info", "log_level: error");
    // a commit still says at the old level that it is complete
    let commits = || fanout.words().matches("commit complete").count();
    let wanted = if mode == "userspace" { 0 } else { commits() + 1 };
    fanout.rewrite(&quiet);
    wait_until("the quiet file is in force", PATIENCE, || reads("127.0.0.1:9090") && commits() >= wanted);
    let before = fanout.words().lines().count();
    fanout.rewrite(&quiet.replace("127.0.0.1:9090", "127.0.0.1:9393"));
    wait_until("one more reload", PATIENCE, || reads("127.0.0.1:9393"));
    fanout.rewrite("listeners: 7\n");
    wait_until("an error is logged", PATIENCE, || fanout.words().lines().count() > before);
    let words = fanout.words();
    let since: Vec<&str> = words.lines().skip(before).filter(|line| line.contains("INFO")).collect();
    assert!(since.len() <= 1, "told to be quiet: {since:?}");
}

#[test]
fn metrics_and_log_level_follow_the_file_in_userspace() {
    follows("userspace");
}

#[test]
fn metrics_and_log_level_follow_the_file_on_tc() {
    follows("tc_ebpf");
}

#[test]
fn framing_follows_the_file() {
    let site = site("fan-re-frame");
    let sink = Sink::tcp(&site.right, &receiver(0));
    let framed = |framing: &str| yaml("tcp_forward", &format!("    settings: {{framing: {framing}}}\n"));
    let fanout = FanOut::start(&site, &framed("octet_counting"));
    fanout.rewrite(&framed("newline"));
    wait_until("the reload", PATIENCE, || fanout.words().contains("reloaded"));
    // octet counting has no line feeds, so this sink counts nothing of it
    let mut next = 0;
    wait_until("messages end in line feeds", PATIENCE, || {
        send(&site.left, LISTENER, next..next + 3, 20_000, 1);
        next += 3;
        sink.got() > 0
    });
}

#[test]
fn an_absent_interface_is_no_right_file() {
    let site = site("fan-check-dev");
    for mode in ["userspace", "xdp", "tc_ebpf", "af_xdp", "auto"] {
        let config = site.write_all("config.yaml", &yaml(mode, "").replace("left0", "left9"));
        let said =
            refused(&site.sluice(&["fanout", "--check", "--config", &config.display().to_string()]), 2);
        assert!(said.contains("config.yaml:5:") && said.contains("left9"), "{mode}: {said}");
    }
}

/// As in a container: /proc/sys cannot be written, and the node forwards IPv4 but not IPv6.
#[test]
fn it_starts_where_proc_sys_cannot_be_written() {
    let site = site("fan-ro");
    site.gateway.run("sysctl", ["-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=0"]).unwrap();
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys";
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start_after(&site, &yaml("tc_ebpf", ""), Some(read_only.to_owned()));
    assert!(fanout.words().contains("of this family nothing is forwarded"), "{}", fanout.words());
    send(&site.left, LISTENER, 0..30, 20_000, 1);
    wait_until("it serves", PATIENCE, || total(&sinks) >= 30);
    drop(fanout);
    // IPv6 that is asked for is not left out in silence
    let six =
        yaml("tc_ebpf", "").replace("10.71.1.1:514", "[fd71:1::1]:514").replace("10.71.2.", "[fd71:2::");
    let six = six.replace(":5514\"}", "]:5514\"}");
    let config = site.write_all("six.yaml", &six);
    let mut command = site.gateway.command("unshare");
    let script = format!("{read_only} && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &script, "sh", crate::common::BINARY, "fanout"]);
    command.args([
        "--config",
        &config.display().to_string(),
        "--state-dir",
        &site.state().display().to_string(),
    ]);
    let said = refused(&ends(&mut command), 1);
    assert!(said.contains("ipv6") && said.contains("container"), "{said}");
}

/// The file is read while there is no way to the receivers; the tree it stands for lacks their device.
#[test]
fn a_way_that_comes_up_behind_the_reading_of_the_file_is_taken() {
    for mode in ["tc_ebpf", "xdp"] {
        let site = site(&format!("fan-way-{mode}"));
        let sinks = sinks_at(&site, receiver);
        site.gateway.ip("link set right0 down").unwrap();
        let fanout = FanOut::start(&site, &yaml(mode, ""));
        assert!(fanout.words().contains("no route to this receiver yet"), "{}", fanout.words());
        site.gateway.ip("link set right0 up").unwrap();
        wait_until("it is served", PATIENCE, || {
            send(&site.left, LISTENER, 0..30, 20_000, 1);
            sinks.iter().all(|sink| sink.got() > 0)
        });
        drop(fanout);
    }
}

/// A route whose source address is on the loopback, as those of unnumbered devices: the way is the route's device.
#[test]
fn the_way_to_a_receiver_is_the_device_of_its_route() {
    let site = site("fan-unnumbered");
    site.gateway.ip("addr add 10.99.0.1/32 dev lo").unwrap();
    site.gateway.ip("route add 10.98.0.1/32 via 10.71.2.11 src 10.99.0.1").unwrap();
    site.right.ip("addr add 10.98.0.1/32 dev lo").unwrap();
    let sink = Sink::udp(&site.right, "10.98.0.1:5514");
    let text = format!(
        "listeners: [{{name: test, interface: left0, mode: tc_ebpf, bind: \"{LISTENER}\", \
         downstream: [{{name: r, address: \"10.98.0.1:5514\"}}]}}]\nmetrics: {{bind: \"127.0.0.1:9090\"}}\n"
    );
    let _fanout = FanOut::start(&site, &text);
    send(&site.left, LISTENER, 0..300, 20_000, 1);
    wait_until("all messages", PATIENCE, || sink.got() >= 300);
}
