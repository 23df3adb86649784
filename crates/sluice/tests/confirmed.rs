//! Commits that go back unless they are confirmed. Takes a minute, so its name has it start among the first.

use crate::common;

use std::fs;
use std::time::Duration;

use crate::store::{history, host_name};
use common::{Site, accepted, wait_until};
use serde_json::Value;

/// Makes the time of a commit that waits run out, while no daemon is there. What has no checksum is taken as it is.
fn run_out(site: &Site) {
    let path = site.state().join("active.json");
    let mut stored: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    stored.as_object_mut().unwrap().remove("checksum");
    stored["confirm"]["deadline"]["boot_ms"] = 0.into();
    fs::write(&path, stored.to_string()).unwrap();
}

#[test]
fn a_commit_that_is_not_confirmed_goes_back() {
    let site = Site::new("confirmed");
    let mut gateway = site.start(&site.write("a.conf", "set system host-name first\n"));
    let confirmed = |name: &str| {
        let conf = site.write("b.conf", &format!("set system host-name {name}\n")).display().to_string();
        let said = accepted(&site.sluice(&["commit", &conf, "--confirmed", "1"]));
        assert!(said.contains("rolled back in 1 minutes unless confirmed"), "{said}");
    };
    confirmed("kept");
    assert!(history(&site)[0]["returns_unix_ms"].is_u64());
    assert_eq!(accepted(&site.sluice(&["commit", "--confirm"])), "commit confirmed\n");
    assert_eq!(accepted(&site.sluice(&["commit", "--confirm"])), "no commit waits to be confirmed\n");

    let conf = site.dir().join("b.conf").display().to_string();
    let said = accepted(&site.sluice(&["commit", &conf, "--confirmed", "1"]));
    assert!(said.contains("nothing has changed; nothing waits to be confirmed"), "{said}");

    // the daemon dies, and the next one comes too late
    confirmed("lost");
    gateway.kill().unwrap();
    let waiting = accepted(&site.sluice(&["rollback", "--if-unconfirmed"]));
    assert!(waiting.contains("left to be confirmed"), "{waiting}");
    run_out(&site);
    gateway.start().unwrap();
    assert_eq!(host_name(&site), "kept");
    assert!(accepted(&site.sluice(&["show", "system"])).contains("was not confirmed in time"));
    assert_eq!(history(&site)[0]["client"], "confirm");

    // nobody starts it again, but for a timer
    confirmed("lost");
    gateway.kill().unwrap();
    run_out(&site);
    let said = accepted(&site.sluice(&["rollback", "--if-unconfirmed"]));
    assert!(said.contains("the configuration before it is in force"), "{said}");
    assert!(site.pings(&site.left, "10.71.2.2"), "programs stay without their daemon");
    gateway.start().unwrap();
    assert_eq!(host_name(&site), "kept");

    // what waits for ever, since nothing is left to go back to, does not keep the daemon busy
    confirmed("lost");
    gateway.kill().unwrap();
    run_out(&site);
    let (kept, aside) = (site.state().join("history"), site.dir().join("history"));
    fs::rename(&kept, &aside).unwrap();
    gateway.start().unwrap();
    let said = || fs::read_to_string(site.state().join("daemon.log")).unwrap();
    let tries = || said().matches("an older one is taken").count();
    wait_until("it is tried", Duration::from_secs(10), || tries() > 0);
    let before = tries();
    std::thread::sleep(Duration::from_secs(2));
    assert!(tries() <= before + 1, "{before} and {} tries", tries());
    gateway.kill().unwrap();
    fs::remove_dir_all(&kept).unwrap_or_default();
    fs::rename(&aside, &kept).unwrap();
    gateway.start().unwrap();
    assert_eq!(host_name(&site), "kept");

    // and by itself
    confirmed("lost");
    assert_eq!(host_name(&site), "lost");
    wait_until("the commit goes back", Duration::from_secs(90), || host_name(&site) == "kept");
}
