//! What is changed of devices so that frames with VLAN tags arrive, with their tags in them: it is put back when no unit needs it.

use std::collections::{BTreeMap, BTreeSet};

use sluice_plan::KernelWants;

use crate::kernel::{Kernel, KernelError, Link, ethtool};

/// Changed settings by device: features that were on, by ethtool's names, and flags that were off ([`PROMISCUOUS`], [`ALL_MULTICAST`]).
pub type Tags = BTreeMap<String, Vec<String>>;

/// These take tags out of the frames, where XDP cannot see them.
const TAKEN_OUT: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
/// These let through VLANs that the kernel knows, and it knows none of ours.
const FILTERS: [&str; 2] = ["rx-vlan-filter", "rx-vlan-stag-filter"];
/// Flags as `ip link` calls them.
const PROMISCUOUS: &str = "promisc";
const ALL_MULTICAST: &str = "allmulti";
/// What filters is below these devices, which pass a flag on to it, and no feature.
const UPPER: [&str; 2] = ["bond", "team"];

/// Has a device whose packets XDP judges leave VLAN tags where it sees them, and one with tagged units receive what those are
/// sent. What was changed is added to `changed`, also on an error.
pub fn change(
    kernel: &Kernel,
    link: &Link,
    wants: &KernelWants,
    changed: &mut Vec<String>,
) -> Result<(), KernelError> {
    if wants.tags_in_frames.contains(&link.name) {
        leave_in(&link.name, changed)?;
    }
    if wants.tagged().any(|tagged| *tagged == link.name) {
        let_through(kernel, link, changed)?;
    }
    Ok(())
}

fn leave_in(device: &str, changed: &mut Vec<String>) -> Result<(), KernelError> {
    let taken_out = |reason: String| KernelError {
        action: format!("have {device} leave VLAN tags in its frames (`ethtool -K {device} rxvlan off`)"),
        reason,
        advice: "use mode tc, which sees them wherever they are",
    };
    let switched = ethtool::switch_off(device, &TAKEN_OUT).map_err(|error| taken_out(error.to_string()))?;
    changed.extend(switched.off);
    let kept = switched.kept.first();
    kept.map_or(Ok(()), |feature| Err(taken_out(format!("its driver keeps {feature} on"))))
}

/// No filter of VLANs, none of multicast groups, which are joined on the units' own devices. Where a filter of VLANs stays, a
/// promiscuous device is without.
fn let_through(kernel: &Kernel, link: &Link, changed: &mut Vec<String>) -> Result<(), KernelError> {
    let device = &link.name;
    let switched = ethtool::switch_off(device, &FILTERS).unwrap_or_else(|error| {
        tracing::debug!(%device, %error, "its filter of VLANs is as it was");
        ethtool::Switched::default()
    });
    changed.extend(switched.off);
    let is_upper = link.kind.as_deref().is_some_and(|kind| UPPER.contains(&kind));
    if (is_upper || !switched.kept.is_empty()) && !link.promiscuous {
        kernel.set_promiscuous(link.index, device, true)?;
        changed.push(PROMISCUOUS.to_owned());
    }
    if !link.all_multicast {
        kernel.set_all_multicast(link.index, device, true)?;
        changed.push(ALL_MULTICAST.to_owned());
    }
    Ok(())
}

/// Changes again what somebody has changed back, and says what.
pub fn restore(kernel: &Kernel, links: &[Link], wants: &KernelWants) -> Vec<String> {
    let mut restored = vec![];
    for link in links {
        let mut settings = vec![];
        // what cannot be is told by the next commit
        let _ = change(kernel, link, wants, &mut settings);
        restored.extend(settings.iter().map(|setting| format!("{setting} of {}", link.name)));
    }
    restored
}

/// Changes them back. Returns what failed; a device that has gone is skipped.
pub fn put_back(kernel: &Kernel, changed: &Tags) -> Vec<String> {
    let links = match kernel.links() {
        Ok(links) => links,
        Err(error) => return vec![error.to_string()],
    };
    let each = changed.iter().flat_map(|(device, settings)| settings.iter().map(move |s| (device, s)));
    let failed = each.filter_map(|(device, setting)| {
        let link = links.iter().find(|link| link.name == *device)?;
        let done = match setting.as_str() {
            PROMISCUOUS => kernel.set_promiscuous(link.index, device, false).map_err(|e| e.to_string()),
            ALL_MULTICAST => kernel.set_all_multicast(link.index, device, false).map_err(|e| e.to_string()),
            feature => ethtool::switch_on(device, feature).map_err(|e| e.to_string()),
        };
        Some(format!("{setting} of {device} is not as it was before: {}", done.err()?))
    });
    failed.collect()
}

/// Whether a plan needs a setting changed.
fn is_needed(wants: &KernelWants, device: &String, setting: &str) -> bool {
    if TAKEN_OUT.contains(&setting) {
        wants.tags_in_frames.contains(device)
    } else {
        wants.tagged().any(|tagged| tagged == device)
    }
}

/// What to store once a plan is in force for which this was changed.
pub fn remembered(before: &Tags, changed: Tags, wants: &KernelWants) -> Tags {
    let mut remembered = parted(before, wants, true);
    for (device, settings) in changed {
        let known: &mut Vec<String> = remembered.entry(device).or_default();
        let new: BTreeSet<String> = settings.into_iter().filter(|setting| !known.contains(setting)).collect();
        known.extend(new);
    }
    remembered
}

/// What was changed, and a plan needs so no more.
pub fn unneeded(before: &Tags, wants: &KernelWants) -> Tags {
    parted(before, wants, false)
}

fn parted(before: &Tags, wants: &KernelWants, needed: bool) -> Tags {
    let part = before.iter().map(|(device, settings)| {
        let part = settings.iter().filter(|setting| is_needed(wants, device, setting) == needed);
        (device.clone(), part.cloned().collect::<Vec<_>>())
    });
    part.filter(|(_, settings)| !settings.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use sluice_plan::VlanPair;

    use super::*;

    fn tags(list: &[(&str, &[&str])]) -> Tags {
        let owned = |settings: &[&str]| settings.iter().map(|setting| (*setting).to_owned()).collect();
        list.iter().map(|(device, settings)| ((*device).to_owned(), owned(settings))).collect()
    }

    #[test]
    fn a_setting_stays_changed_as_long_as_what_needs_it() {
        let pair = |parent: &str| VlanPair {
            device: format!("{parent}.7"),
            peer: String::new(),
            parent: Some(parent.to_owned()),
            mtu: 1500,
        };
        let wants = KernelWants {
            tags_in_frames: vec!["a".to_owned(), "c".to_owned()],
            vlan_pairs: vec![pair("b"), pair("c")],
            ..KernelWants::default()
        };
        let filter = "rx-vlan-filter";
        let parse = TAKEN_OUT[0];
        let before =
            tags(&[("a", &[parse, filter]), ("b", &[parse, filter, PROMISCUOUS]), ("d", &[ALL_MULTICAST])]);
        let now = remembered(&before, tags(&[("a", &[TAKEN_OUT[1]]), ("c", &[filter])]), &wants);
        let expected = [("a", &[parse, TAKEN_OUT[1]][..]), ("b", &[filter, PROMISCUOUS]), ("c", &[filter])];
        assert_eq!(now, tags(&expected));
        let back = [("a", &[filter][..]), ("b", &[parse]), ("d", &[ALL_MULTICAST])];
        assert_eq!(unneeded(&before, &wants), tags(&back));
    }
}
