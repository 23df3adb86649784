//! Features by which devices took VLAN tags out of the frames they receive, before XDP needed the tags there: they come back
//! when the device leaves XDP.

use std::collections::BTreeMap;

use crate::kernel::ethtool;

/// Names of features that were on, by device.
pub type Tags = BTreeMap<String, Vec<String>>;

/// What to store once a plan that wants this is in force.
pub fn remembered(before: &Tags, switched_off: Tags, wanted: &[String]) -> Tags {
    let mut remembered = before.clone();
    remembered.retain(|device, _| wanted.contains(device));
    for (device, features) in switched_off {
        remembered.entry(device).or_insert(features);
    }
    remembered
}

/// Restores features of devices whose tags need not be in the frames any more. Returns what failed; a device that has gone is
/// skipped.
pub fn put_back(before: &Tags, wanted: &[String]) -> Vec<String> {
    let unwanted = before.iter().filter(|(device, _)| !wanted.contains(device));
    let failed = unwanted.filter_map(|(device, features)| {
        let error = ethtool::take_tags_from_frames(device, features).err()?;
        (error.raw_os_error() != Some(libc::ENODEV))
            .then(|| format!("{device} does not take VLAN tags from frames again: {error}"))
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &[(&str, &str)]) -> Tags {
        list.iter().map(|(device, feature)| ((*device).to_owned(), vec![(*feature).to_owned()])).collect()
    }

    #[test]
    fn what_was_first_is_remembered_as_long_as_xdp_stays() {
        let (before, wanted) = (tags(&[("a", "hw"), ("b", "hw")]), ["a", "c"].map(str::to_owned));
        let now = remembered(&before, tags(&[("a", "stag"), ("c", "stag")]), &wanted);
        assert_eq!(now, tags(&[("a", "hw"), ("c", "stag")]));
    }
}
