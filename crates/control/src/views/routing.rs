//! Routing protocols, out of FRR's JSON; what one of its versions does not tell is left out.

use serde_json::Value;

use crate::api::{
    BfdSessionView, BgpCleared, BgpFamilyView, BgpFilter, BgpNeighborView, ClearBgpRequest,
    OspfInterfaceView, OspfNeighborView,
};
use crate::commit::Shared;
use crate::functions::frr::FrrError;

/// None when FRR has nothing to do here.
fn ask(shared: &Shared, command: &str) -> Result<Option<Value>, FrrError> {
    if shared.active().plan.frr.is_empty() {
        return Ok(None);
    }
    let text = shared.frr.vtysh().ask(command)?;
    read(&text).map(Some)
}

/// FRR says nothing at all of a protocol that does not run.
fn read(text: &str) -> Result<Value, FrrError> {
    match text.trim() {
        "" => Ok(Value::Null),
        text => serde_json::from_str(text).map_err(|error| {
            FrrError::Failed(format!("FRR's answer is no JSON ({error}); is its daemon running?"))
        }),
    }
}

fn text(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| value[name].as_str()).map(str::to_owned)
}

fn number(value: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| value[name].as_u64())
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub fn bgp(shared: &Shared, filter: &BgpFilter) -> Result<Vec<BgpNeighborView>, FrrError> {
    let all = ask(shared, "show bgp neighbors json")?.unwrap_or_default();
    let wanted = filter.neighbor.map(|address| address.to_string());
    Ok(bgp_neighbors(&all).filter(|view| wanted.as_ref().is_none_or(|name| *name == view.neighbor)).collect())
}

fn bgp_neighbors(all: &Value) -> impl Iterator<Item = BgpNeighborView> {
    members(all).filter(|(_, neighbor)| neighbor["bgpState"].is_string()).map(|(name, neighbor)| {
        let state = text(neighbor, &["bgpState"]).unwrap_or_default();
        let is_up = state == "Established";
        let (sent, received) = ("totalSent", "totalRecv");
        let messages = |way| number(&neighbor["messageStats"], &[way]).unwrap_or(0);
        BgpNeighborView {
            neighbor: name.clone(),
            peer_as: number(neighbor, &["remoteAs"]).unwrap_or(0),
            local_as: number(neighbor, &["localAs"]).unwrap_or(0),
            description: text(neighbor, &["nbrDesc"]),
            up_s: number(neighbor, &["bgpTimerUpMsec"]).filter(|_| is_up).map(|ms| ms / 1000),
            state,
            flaps: number(neighbor, &["connectionsDropped"]).unwrap_or(0),
            last_reset: text(neighbor, &["lastResetDueTo"]),
            local_address: text(neighbor, &["hostLocal"]),
            hold_time_s: number(neighbor, &["bgpTimerHoldTimeMsecs"]).unwrap_or(0) / 1000,
            messages_received: messages(received),
            messages_sent: messages(sent),
            families: members(&neighbor["addressFamilyInfo"])
                .map(|(name, family)| bgp_family(name, family))
                .collect(),
        }
    })
}

fn bgp_family(name: &str, family: &Value) -> BgpFamilyView {
    let name = match name {
        "ipv4Unicast" => "inet",
        "ipv6Unicast" => "inet6",
        other => other,
    };
    BgpFamilyView {
        family: name.to_owned(),
        accepted: number(family, &["acceptedPrefixCounter"]).unwrap_or(0),
        sent: number(family, &["sentPrefixCounter"]).unwrap_or(0),
    }
}

pub fn ospf(shared: &Shared) -> Result<Vec<OspfNeighborView>, FrrError> {
    let all = ask(shared, "show ip ospf neighbor json")?.unwrap_or_default();
    Ok(ospf_neighbors(&all))
}

fn ospf_neighbors(all: &Value) -> Vec<OspfNeighborView> {
    let by_id = members(&all["neighbors"]);
    let each = by_id.flat_map(|(id, list)| list.as_array().into_iter().flatten().map(move |one| (id, one)));
    each.map(|(id, one)| OspfNeighborView {
        router_id: id.clone(),
        address: text(one, &["ifaceAddress", "address"]),
        // `lan0:10.1.0.1`
        interface: device(&text(one, &["ifaceName"]).unwrap_or_default()),
        state: text(one, &["nbrState", "state"]).unwrap_or_default(),
        priority: number(one, &["nbrPriority", "priority"]).unwrap_or(0),
        dead_s: number(one, &["routerDeadIntervalTimerDueMsec", "deadTimeMsecs"]).map(|ms| ms / 1000),
    })
    .collect()
}

fn device(name: &str) -> String {
    name.split(':').next().unwrap_or(name).to_owned()
}

pub fn ospf3(shared: &Shared) -> Result<Vec<OspfNeighborView>, FrrError> {
    let all = ask(shared, "show ipv6 ospf6 neighbor json")?.unwrap_or_default();
    let list = all["neighbors"].as_array().cloned().unwrap_or_default();
    let view = |one: &Value| OspfNeighborView {
        router_id: text(one, &["neighborId"]).unwrap_or_default(),
        address: text(one, &["linkLocalAddress"]),
        interface: text(one, &["interfaceName"]).unwrap_or_default(),
        state: [text(one, &["state"]), text(one, &["ifState"])]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("/"),
        priority: number(one, &["priority"]).unwrap_or(0),
        dead_s: text(one, &["deadTime"]).and_then(|time| seconds(&time)),
    };
    Ok(list.iter().map(view).collect())
}

/// `00:00:37`
fn seconds(time: &str) -> Option<u64> {
    time.split(':').try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))
}

pub fn ospf_interfaces(shared: &Shared) -> Result<Vec<OspfInterfaceView>, FrrError> {
    let all = ask(shared, "show ip ospf interface json")?.unwrap_or_default();
    let view = |(name, one): (&String, &Value)| OspfInterfaceView {
        interface: name.clone(),
        area: text(one, &["area"]).unwrap_or_default(),
        state: text(one, &["state"]).unwrap_or_default(),
        cost: number(one, &["cost"]).unwrap_or(0),
        neighbors: number(one, &["nbrCount"]).unwrap_or(0),
        adjacent: number(one, &["nbrAdjacentCount"]).unwrap_or(0),
    };
    Ok(members(&all["interfaces"]).map(view).collect())
}

pub fn bfd(shared: &Shared) -> Result<Vec<BfdSessionView>, FrrError> {
    let all = ask(shared, "show bfd peers json")?.unwrap_or_default();
    let view = |one: &Value| {
        let state = text(one, &["status"]).unwrap_or_default();
        BfdSessionView {
            peer: text(one, &["peer"]).unwrap_or_default(),
            local: text(one, &["local"]),
            interface: text(one, &["interface"]),
            up_s: number(one, &["uptime"]).filter(|_| state == "up"),
            state,
            transmit_ms: number(one, &["transmit-interval"]).unwrap_or(0),
            receive_ms: number(one, &["receive-interval"]).unwrap_or(0),
            multiplier: number(one, &["detect-multiplier"]).unwrap_or(0),
        }
    };
    Ok(all.as_array().into_iter().flatten().map(view).collect())
}

/// Only neighbours that there are: FRR would take `clear` of another one for an error of its own.
pub fn clear_bgp(shared: &Shared, request: &ClearBgpRequest) -> Result<BgpCleared, FrrError> {
    let filter = BgpFilter { neighbor: request.neighbor };
    let found = bgp(shared, &filter)?;
    for neighbor in &found {
        let soft = if request.soft { " soft" } else { "" };
        shared.frr.vtysh().ask(&format!("clear bgp {}{soft}", neighbor.neighbor))?;
    }
    Ok(BgpCleared { neighbors: found.len() as u64 })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_neighbour_is_up_only_while_its_session_is() {
        let mut all = json!({
            "192.0.2.1": {
                "remoteAs": 65001, "localAs": 65000, "bgpState": "Established", "bgpTimerUpMsec": 61_500,
                "connectionsDropped": 2, "bgpTimerHoldTimeMsecs": 90_000,
                "messageStats": { "totalSent": 4, "totalRecv": 5 },
                "addressFamilyInfo": { "ipv4Unicast": { "acceptedPrefixCounter": 3, "sentPrefixCounter": 1 } }
            },
            "warning": "not a neighbour"
        });
        let views: Vec<_> = bgp_neighbors(&all).collect();
        assert_eq!((views.len(), views[0].up_s, views[0].flaps), (1, Some(61), 2));
        assert_eq!((views[0].families[0].family.as_str(), views[0].families[0].accepted), ("inet", 3));
        all["192.0.2.1"]["bgpState"] = json!("Active");
        assert_eq!(bgp_neighbors(&all).next().unwrap().up_s, None);
    }

    #[test]
    fn both_forms_of_a_neighbour_of_ospf_are_read() {
        for (state, address) in [("state", "address"), ("nbrState", "ifaceAddress")] {
            let all = json!({ "neighbors": { "9.9.9.9": [{
                state: "Full/DR", address: "10.1.0.2", "ifaceName": "lan0:10.1.0.1", "deadTimeMsecs": 37_100 }] } });
            let view = &ospf_neighbors(&all)[0];
            assert_eq!(
                (view.state.as_str(), view.interface.as_str(), view.dead_s),
                ("Full/DR", "lan0", Some(37))
            );
            assert_eq!(view.address.as_deref(), Some("10.1.0.2"));
        }
        assert_eq!(seconds("00:01:37"), Some(97));
        assert_eq!(seconds("x"), None);
        assert!(read("").unwrap().is_null() && read("% BGP is not running").is_err());
    }
}
