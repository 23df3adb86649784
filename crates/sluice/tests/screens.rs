//! Screens as an operator sees them: what is dropped, shown and logged, and what `alarm-without-drop` changes.

use crate::common;

use std::time::Duration;

use common::{BASE, Site, accepted, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;

pub const SCREEN: &str = "\
set security screen ids-option edge icmp large
set security screen ids-option edge tcp syn-fin
set security zones security-zone left screen edge
";
const ALARM: &str = "set security screen ids-option edge alarm-without-drop\n";

/// Whether an echo of more than 1024 bytes is answered.
fn large_ping(site: &Site, address: &str) -> bool {
    let arguments = ["-s", "1200", "-c", "1", "-W", "1", "-n", address];
    site.left.command("ping").args(arguments).output().unwrap().status.success()
}

fn seen(gateway: &Gateway, check: &str) -> Value {
    let list = gateway.json("/api/screens").unwrap();
    list.as_array().unwrap().iter().find(|view| view["check"] == check).unwrap().clone()
}

fn logged(gateway: &Gateway, action: &str) -> Vec<String> {
    let log = gateway.json("/api/log?last=1000").unwrap();
    let of_screens = log.as_array().unwrap().iter().filter(|entry| entry["event"] == "RT_SCREEN_ICMP");
    of_screens.map(|entry| entry["fields"].to_string()).filter(|fields| fields.contains(action)).collect()
}

#[test]
fn screens_drop_count_and_log_or_only_count_and_log() {
    let site = Site::new("screens");
    let gateway = site.start(&site.write("a.conf", SCREEN));
    assert!(site.pings(&site.left, "10.71.2.2"), "a small echo is no matter for the screen");
    assert!(!large_ping(&site, "10.71.2.2") && !large_ping(&site, "fd71:2::2"));
    let large = seen(&gateway, "icmp_large");
    assert_eq!(
        (&large["packets"], &large["zone"], &large["action"]),
        (&2.into(), &"left".into(), &"drop".into())
    );
    assert_eq!(seen(&gateway, "syn_fin")["packets"], 0);
    wait_until("the log", Duration::from_secs(5), || !logged(&gateway, "\"drop\"").is_empty());
    let entry = &logged(&gateway, "\"drop\"")[0];
    for part in ["icmp_large", "10.71.1.2", "10.71.2.2", "left0.0"] {
        assert!(entry.contains(part), "{entry}");
    }
    let shown = accepted(&site.sluice(&["show", "screens", "--zone", "left"]));
    assert!(shown.contains("icmp_large") && shown.contains("syn_fin"), "{shown}");
    let other = accepted(&site.sluice(&["show", "screens", "--zone", "right"]));
    assert!(!other.contains("icmp_large"), "{other}");

    accepted(&site.commit(&site.write_all("b.conf", &format!("{BASE}{SCREEN}{ALARM}"))));
    std::thread::sleep(Duration::from_millis(1100)); // the log's bound of one entry a second
    assert!(large_ping(&site, "10.71.2.2") && large_ping(&site, "fd71:2::2"));
    let large = seen(&gateway, "icmp_large");
    assert_eq!((&large["packets"], &large["action"]), (&4.into(), &"alarm-without-drop".into()));
    wait_until("the log", Duration::from_secs(5), || !logged(&gateway, "alarm-without-drop").is_empty());
}
