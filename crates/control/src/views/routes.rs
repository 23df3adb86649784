//! Static routes and routing instances, and whether the kernel has them.

use sluice_language::config::RoutingInstance;
use sluice_plan::InstanceWant;

use crate::api::routes::{RoutingInstanceView, StaticRouteView};
use crate::commit::Shared;
use crate::kernel::{KernelError, Link, changes};

pub fn statics(shared: &Shared) -> Result<Vec<StaticRouteView>, KernelError> {
    let active = shared.active();
    let wants = &active.plan.kernel;
    let instance = |table: u32| wants.instances.iter().find(|want| want.table == table);
    let compared = changes::compare_routes(&shared.kernel, wants)?;
    let views = compared.into_iter().map(|(route, present)| StaticRouteView {
        destination: format!("{}/{}", route.destination.addr, route.destination.len),
        preference: route.preference,
        target: route.target.to_string(),
        present,
        routing_instance: instance(route.table).map(|want| want.device.clone()),
    });
    Ok(views.collect())
}

pub fn instances(shared: &Shared) -> Result<Vec<RoutingInstanceView>, KernelError> {
    let active = shared.active();
    let links = shared.kernel.links()?;
    let all = active.config.routing_instances.iter().zip(&active.plan.kernel.instances);
    Ok(all.map(|(instance, want)| view(instance, want, &links)).collect())
}

fn view(instance: &RoutingInstance, want: &InstanceWant, links: &[Link]) -> RoutingInstanceView {
    let vrf = links.iter().find(|link| link.is_instance() && link.name == want.device);
    let is_port = |device: &str| {
        let master = links.iter().find(|link| link.name == device).and_then(|link| link.master);
        vrf.is_some_and(|vrf| master == Some(vrf.index))
    };
    let units = instance.interfaces.iter().zip(&want.ports);
    RoutingInstanceView {
        name: instance.name.clone(),
        instance_type: instance.instance_type.clone(),
        description: instance.description.clone(),
        table: want.table,
        interfaces: instance.interfaces.clone(),
        missing: units.filter(|(_, port)| !is_port(port)).map(|(unit, _)| unit.clone()).collect(),
        up: vrf.is_some_and(|vrf| vrf.up),
    }
}
