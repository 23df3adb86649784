//! MTUs that devices had before a commit set them: they come back when the statement goes.

use std::collections::BTreeMap;

use sluice_plan::{KernelWants, LinkWant};

use crate::kernel::Link;

/// By device name.
pub type Mtus = BTreeMap<String, u32>;

/// Adds MTUs that must be set back to what a plan wants, and returns what to store once that is done.
pub fn restore(wants: &mut KernelWants, links: &[Link], before: &Mtus) -> Mtus {
    let mut remembered = before.clone();
    for link in links.iter().filter(|link| !link.ours) {
        let want = wants.links.iter_mut().find(|want| want.device == link.name);
        match (want, before.get(&link.name)) {
            (Some(LinkWant { mtu: Some(mtu), .. }), None) if *mtu != link.mtu => {
                remembered.insert(link.name.clone(), link.mtu);
            }
            (Some(LinkWant { mtu: Some(_), .. }), _) | (_, None) => {}
            (want, Some(original)) => {
                remembered.remove(&link.name);
                match want {
                    Some(want) => want.mtu = Some(*original),
                    None => wants.links.push(LinkWant {
                        device: link.name.clone(),
                        up: link.up,
                        mtu: Some(*original),
                    }),
                }
            }
        }
    }
    remembered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, mtu: u32) -> Link {
        Link { name: name.to_owned(), mtu, up: true, ..Default::default() }
    }

    fn want(device: &str, mtu: Option<u32>) -> LinkWant {
        LinkWant { device: device.to_owned(), up: true, mtu }
    }

    fn restored(
        links: &[Link],
        wanted: Vec<LinkWant>,
        before: &[(&str, u32)],
    ) -> (Vec<LinkWant>, Vec<(String, u32)>) {
        let mut wants = KernelWants { links: wanted, ..Default::default() };
        let before = before.iter().map(|(name, mtu)| ((*name).to_owned(), *mtu)).collect();
        let remembered = restore(&mut wants, links, &before);
        (wants.links, remembered.into_iter().collect())
    }

    #[test]
    fn the_first_change_is_remembered_and_no_later_one() {
        let first = restored(&[link("a", 1500)], vec![want("a", Some(9000))], &[]);
        assert_eq!(first, (vec![want("a", Some(9000))], vec![("a".to_owned(), 1500)]));
        let second = restored(&[link("a", 9000)], vec![want("a", Some(2000))], &[("a", 1500)]);
        assert_eq!(second, (vec![want("a", Some(2000))], vec![("a".to_owned(), 1500)]));
        assert_eq!(restored(&[link("a", 1500)], vec![want("a", Some(1500))], &[]).1, []);
    }

    #[test]
    fn without_the_statement_or_the_interface_the_old_one_comes_back() {
        let statement = restored(&[link("a", 9000)], vec![want("a", None)], &[("a", 1500)]);
        assert_eq!(statement, (vec![want("a", Some(1500))], vec![]));
        let interface = restored(&[link("a", 9000)], vec![], &[("a", 1500)]);
        assert_eq!(interface, (vec![want("a", Some(1500))], vec![]));
    }
}
