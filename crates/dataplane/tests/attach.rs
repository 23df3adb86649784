//! Programs on devices of a network namespace.

use crate::common;

use std::fs;

use common::{Netns, Pin, SMALL, activate, full_mask, run, tables};
use sluice_dataplane::{Attached, Attachment, Dataplane, Error, Hook, Variant};

fn device(hook: Hook) -> (Netns, Pin, Dataplane, Attachment) {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(ifindex), 1);
    (netns, pin, dataplane, Attachment { ifindex, hook, variant: 0 })
}

/// Link and program of every pinned link, `xdp: xdp_root`.
fn programs(pin: &Pin) -> Vec<String> {
    let name = |(link, program): (String, u32)| {
        let text = run(&["bpftool", "-j", "prog", "show", "id", &program.to_string()]);
        let name = text.split_once("\"name\":\"").unwrap().1.split('"').next().unwrap();
        format!("{}: {name}", link.rsplit_once('_').unwrap().0)
    };
    link_ids(pin).into_iter().map(name).collect()
}

/// What the kernel says of XDP on the device: `xdp`, `xdpgeneric` or nothing.
fn xdp_mode() -> Option<String> {
    let text = run(&["ip", "link", "show", "v0"]);
    text.split_whitespace().find(|word| word.starts_with("xdp")).map(str::to_owned)
}

fn links(pin: &Pin) -> Vec<String> {
    let entries = fs::read_dir(pin.path().join("links")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn link_ids(pin: &Pin) -> Vec<(String, u32)> {
    let id = |name: &String| {
        let path = pin.path().join("links").join(name);
        let text = run(&["bpftool", "-j", "link", "show", "pinned", path.to_str().unwrap()]);
        let number = |key: &str| -> u32 {
            let rest = text.split_once(&format!("\"{key}\":")).unwrap().1;
            rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        (format!("{name} {}", number("id")), number("prog_id"))
    };
    links(pin).iter().map(id).collect()
}

#[test]
fn nothing_attaches_before_a_generation_is_active() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let wanted = Attachment { ifindex, hook: Hook::Tc, variant: 0 };
    let error = dataplane.attach(&wanted).unwrap_err();
    assert!(matches!(error, Error::NotActive { .. }), "{error}");
    assert!(links(&pin).is_empty());
    activate(&dataplane, &tables(ifindex), 1);
    dataplane.attach(&wanted).unwrap();
    let error = dataplane.attach(&Attachment { variant: 1, ..wanted }).unwrap_err();
    assert!(matches!(error, Error::NotActive { variant: 1, .. }), "{error}");
}

#[test]
fn every_hook_gets_its_programs() {
    let (_netns, pin, dataplane, wanted) = device(Hook::Tc);
    let ifindex = wanted.ifindex;
    let tc = ["tcx_in: tc_root", "tcx_out: tc_egress_root"].as_slice();
    let xdp = ["tcx_in: tc_finish", "tcx_out: tc_egress_root", "xdp: xdp_root"].as_slice();
    for (hook, expected, mode) in [
        (Hook::Tc, tc, None),
        (Hook::XdpNative, xdp, Some("xdp")),
        (Hook::XdpGeneric, xdp, Some("xdpgeneric")),
        (Hook::Tc, tc, None),
        (Hook::EgressOnly, &tc[1..], None),
        (Hook::XdpNative, xdp, Some("xdp")),
    ] {
        dataplane.attach(&Attachment { hook, ..wanted }).unwrap();
        assert_eq!(programs(&pin), expected, "{hook:?}");
        assert_eq!(xdp_mode().as_deref(), mode, "{hook:?}");
        let variant = (hook != Hook::EgressOnly).then_some(0);
        assert_eq!(dataplane.attached().unwrap(), [Attached { ifindex, hook, variant }]);
    }
    dataplane.detach(ifindex).unwrap();
    assert!(links(&pin).is_empty() && dataplane.attached().unwrap().is_empty());
    assert_eq!(xdp_mode(), None);
}

#[test]
fn links_are_kept_when_the_program_is_the_same() {
    let (_netns, pin, dataplane, wanted) = device(Hook::XdpNative);
    dataplane.attach(&wanted).unwrap();
    let before = link_ids(&pin);
    dataplane.attach(&wanted).unwrap();
    assert_eq!(link_ids(&pin), before);
    drop(dataplane);

    // a new process loads roots of its own, which are the same programs
    let again = pin.open(SMALL);
    again.attach(&wanted).unwrap();
    assert_eq!(link_ids(&pin), before);
}

#[test]
fn another_variant_updates_the_link() {
    let (_netns, pin, dataplane, wanted) = device(Hook::XdpNative);
    let variants = [Variant::new(full_mask()); 2];
    let generation = dataplane.load(&tables(wanted.ifindex), &variants, 2).unwrap();
    dataplane.switch(&generation);
    dataplane.attach(&wanted).unwrap();
    let before = link_ids(&pin);
    dataplane.attach(&Attachment { variant: 1, ..wanted }).unwrap();
    let after = link_ids(&pin);
    let names = |list: &[(String, u32)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    let changed: Vec<&str> = before
        .iter()
        .zip(&after)
        .filter(|(old, new)| old.1 != new.1)
        .map(|(old, _)| old.0.split('_').next().unwrap())
        .collect();
    assert_eq!(changed, ["xdp"], "only the XDP root knows its variant");
    assert_eq!(dataplane.attached().unwrap()[0].variant, Some(1));
}

#[test]
fn a_taken_hook_is_named() {
    let (_netns, pin, dataplane, wanted) = device(Hook::XdpNative);
    let other_pin = Pin::new();
    let other = other_pin.open(SMALL);
    activate(&other, &tables(wanted.ifindex), 1);
    other.attach(&wanted).unwrap();
    for hook in [Hook::XdpNative, Hook::XdpGeneric] {
        let error = dataplane.attach(&Attachment { hook, ..wanted }).unwrap_err();
        assert!(
            matches!(&error, Error::HookTaken { interface, program_name, mode: "native", .. }
                if interface == "v0" && program_name == "xdp_root"),
            "{error}"
        );
    }
    assert!(links(&pin).is_empty(), "nothing half attached stays");
    dataplane.attach(&Attachment { hook: Hook::Tc, ..wanted }).unwrap();
}

#[test]
fn links_of_vanished_devices_are_removed() {
    let (_netns, pin, dataplane, wanted) = device(Hook::XdpNative);
    dataplane.attach(&wanted).unwrap();
    assert_eq!(links(&pin).len(), 3);
    run(&["ip", "link", "del", "v0"]);
    assert!(dataplane.attached().unwrap().is_empty());
    drop(dataplane);
    pin.open(SMALL);
    assert!(links(&pin).is_empty());
}

#[test]
fn cleanup_detaches() {
    let (_netns, pin, dataplane, wanted) = device(Hook::XdpGeneric);
    dataplane.attach(&wanted).unwrap();
    sluice_dataplane::cleanup(pin.path()).unwrap();
    assert_eq!(xdp_mode(), None);
    assert!(!pin.path().exists());
}
