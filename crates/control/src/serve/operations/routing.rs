//! Routing protocols.

use schemars::JsonSchema;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{
    BfdSessionView, BgpCleared, BgpFilter, BgpNeighborView, ClearBgpRequest, OspfInterfaceView,
    OspfNeighborView,
};
use crate::functions::frr::FrrError;
use crate::views::routing;

impl From<FrrError> for Failure {
    fn from(error: FrrError) -> Self {
        Self::new(Fault::Internal, error)
    }
}

/// Who BGP speaks to.
pub static BGP: Operation<BgpFilter, Vec<BgpNeighborView>> = Operation {
    about: About::question("bgp", "/api/routing/bgp", "BGP neighbours: sessions, how long, how many routes"),
    act: Act::Ask(|shared, filter| Ok(routing::bgp(shared, filter)?)),
};

/// Who OSPF has found.
pub static OSPF: Operation<NoArguments, Vec<OspfNeighborView>> = Operation {
    about: About::question("ospf", "/api/routing/ospf", "Neighbours of OSPF for IPv4"),
    act: Act::Ask(|shared, _| Ok(routing::ospf(shared)?)),
};

/// Where it looks.
pub static OSPF_INTERFACES: Operation<NoArguments, Vec<OspfInterfaceView>> = Operation {
    about: About::question("ospf-interfaces", "/api/routing/ospf/interfaces", "Interfaces of OSPF for IPv4"),
    act: Act::Ask(|shared, _| Ok(routing::ospf_interfaces(shared)?)),
};

/// Who OSPFv3 has found.
pub static OSPF3: Operation<NoArguments, Vec<OspfNeighborView>> = Operation {
    about: About::question("ospf3", "/api/routing/ospf3", "Neighbours of OSPF for IPv6"),
    act: Act::Ask(|shared, _| Ok(routing::ospf3(shared)?)),
};

/// Who is watched.
pub static BFD: Operation<NoArguments, Vec<BfdSessionView>> = Operation {
    about: About::question("bfd", "/api/routing/bfd", "BFD sessions"),
    act: Act::Ask(|shared, _| Ok(routing::bfd(shared)?)),
};

/// Begins sessions anew.
pub static CLEAR_BGP: Operation<NoArguments, BgpCleared> = Operation {
    about: About {
        faults: &[(Fault::Refused, "neither a neighbour nor all of them was named; nothing was done")],
        ..About::change(
            "clear-bgp",
            "/api/routing/bgp/clear",
            "Begin BGP sessions anew, or only have policies asked once more",
            Body::Filter(ClearBgpRequest::json_schema),
        )
    },
    act: Act::Change(clear_bgp),
};

fn clear_bgp(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<BgpCleared, Failure> {
    let request: ClearBgpRequest = order.filter()?;
    if request.neighbor.is_some() == request.all {
        return Err(Failure::new(Fault::Refused, "name a neighbour or say `all`"));
    }
    Ok(routing::clear_bgp(&gateway.shared, &request)?)
}
