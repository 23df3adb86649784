//! Which rule-sets speak of a unit: those that name it, else those that name its zone, else those of the routing-instance.

use std::collections::{BTreeMap, BTreeSet};

use sluice_language::nat::Ends;

use crate::units::{Managed, unit_name};

/// How closely `ends` describe a unit; None = not at all.
fn closeness(ends: &Ends, unit: &Managed<'_>) -> Option<u8> {
    match ends {
        Ends::Units(names) => {
            let name = unit_name(unit.interface, unit.unit);
            names.contains(&name).then_some(3)
        }
        Ends::Zones(names) => names.contains(&unit.zone.name).then_some(2),
        Ends::RoutingInstances { units, .. } => {
            units.contains(&unit_name(unit.interface, unit.unit)).then_some(1)
        }
    }
}

/// A unit with its index.
type Indexed<'a> = (&'a Managed<'a>, u32);

/// Units that none of these ends tell apart: those of a zone, but for the ones that are named. In configuration order.
pub(super) fn kinds<'a>(
    units: &'a [Indexed<'a>],
    ends: impl Iterator<Item = &'a Ends>,
) -> Vec<Vec<Indexed<'a>>> {
    let named = ends.filter_map(|ends| match ends {
        Ends::Units(names) => Some(names),
        Ends::Zones(_) | Ends::RoutingInstances { .. } => None,
    });
    let named: BTreeSet<&String> = named.flatten().collect();
    let (mut kinds, mut known): (Vec<Vec<_>>, _) = (vec![], BTreeMap::new());
    for (unit, index) in units {
        let name = Some(unit_name(unit.interface, unit.unit)).filter(|name| named.contains(name));
        let kind = *known.entry((&unit.zone.name, name)).or_insert(kinds.len());
        if kind == kinds.len() {
            kinds.push(vec![]);
        }
        kinds[kind].push((*unit, *index));
    }
    kinds
}

/// Numbers of the rule-sets that describe a unit most closely, in the order of the text.
pub(super) fn best<'a>(ends: impl Iterator<Item = &'a Ends>, unit: &Managed<'_>) -> Vec<usize> {
    closest(ends.map(|ends| closeness(ends, unit)))
}

/// The same for a pair of units: where packets come from counts first, then where they go.
pub(super) fn best_pair<'a>(
    ends: impl Iterator<Item = (&'a Ends, Option<&'a Ends>)>,
    from: &Managed<'_>,
    to: &Managed<'_>,
) -> Vec<usize> {
    closest(ends.map(|(a, b)| Some((closeness(a, from)?, b.map_or(Some(0), |b| closeness(b, to))?))))
}

fn closest<T: Ord + Copy>(list: impl Iterator<Item = Option<T>>) -> Vec<usize> {
    let list: Vec<Option<T>> = list.collect();
    let Some(best) = list.iter().flatten().max().copied() else { return vec![] };
    list.iter()
        .enumerate()
        .filter(|(_, closeness)| **closeness == Some(best))
        .map(|(number, _)| number)
        .collect()
}
