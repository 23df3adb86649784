//! Which changes of routes may have taken away what the configuration has. Others are many, and nobody puts them back.

use std::collections::HashSet;
use std::sync::Arc;

use netlink_packet_route::route::RouteMessage;
use sluice_language::config::Prefix;
use sluice_plan::KernelWants;

use crate::kernel::{destination, is_lasting};
use crate::state::active::Active;

/// Destinations of the active configuration's routes, and the subnets of its addresses.
#[derive(Default)]
pub struct Ours {
    active: Option<Arc<Active>>,
    destinations: HashSet<Prefix>,
}

impl Ours {
    /// True also where the configuration is another one than at the last look: what came just before belonged to this one.
    pub fn are_concerned(&mut self, active: &Arc<Active>, message: &RouteMessage) -> bool {
        if self.active.as_ref().is_none_or(|known| !Arc::ptr_eq(known, active)) {
            (self.active, self.destinations) = (Some(active.clone()), destinations(&active.plan.kernel));
            return true;
        }
        concerns(&self.destinations, message)
    }
}

fn concerns(ours: &HashSet<Prefix>, message: &RouteMessage) -> bool {
    is_lasting(message) || destination(message).is_none_or(|prefix| ours.contains(&prefix))
}

fn destinations(wants: &KernelWants) -> HashSet<Prefix> {
    let subnets = wants.addresses.iter().map(|(_, prefix)| sluice_plan::network(*prefix));
    wants.routes.iter().map(|route| route.destination).chain(subnets).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use netlink_packet_route::route::RouteProtocol;
    use rtnetlink::RouteMessageBuilder;

    use super::*;

    fn concerned(ours: &HashSet<Prefix>, to: &str, len: u8, protocol: RouteProtocol) -> bool {
        let to: IpAddr = to.parse().unwrap();
        let builder = RouteMessageBuilder::<IpAddr>::new().destination_prefix(to, len).unwrap();
        concerns(ours, &builder.protocol(protocol).build())
    }

    #[test]
    fn routes_of_others_concern_nobody_unless_they_stand_where_ours_do() {
        let prefix = |addr: &str, len| Prefix { addr: addr.parse().unwrap(), len };
        let wants = KernelWants {
            addresses: vec![("wan0".to_owned(), prefix("10.0.1.1", 24))],
            ..Default::default()
        };
        let ours = destinations(&wants);
        assert!(!concerned(&ours, "10.9.0.0", 16, RouteProtocol::Bgp));
        assert!(!concerned(&ours, "10.0.1.0", 25, RouteProtocol::Bgp));
        assert!(concerned(&ours, "10.0.1.0", 24, RouteProtocol::Bgp), "in place of a connected one");
        assert!(concerned(&ours, "10.9.0.0", 16, RouteProtocol::Other(83)), "of a configuration of before");
        assert!(concerned(&ours, "fd00::", 64, RouteProtocol::Kernel));
    }
}
