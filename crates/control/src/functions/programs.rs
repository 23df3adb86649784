//! Programs of the generation: switched to and attached. This is where a commit takes effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use nix::net::if_::if_nametoindex;
use sluice_dataplane::{Attached, Attachment, Dataplane, Hook, Hooks, Renumbered, Variant};
use sluice_plan::{Ids, IngressHook, Plan};

use crate::functions::fan_out::positions::InForce;
use crate::functions::function::{Candidate, CommitError, Function, remaining};
use crate::state::store::Stored;

pub struct Programs {
    dataplane: Arc<Dataplane>,
    in_force: InForce,
    /// This commit has switched over.
    switched: bool,
}

impl Programs {
    pub fn new(dataplane: &Arc<Dataplane>, in_force: &InForce) -> Self {
        Self { dataplane: dataplane.clone(), in_force: in_force.clone(), switched: false }
    }

    fn attach(&self, plan: &Plan) -> Result<(), CommitError> {
        self.dataplane.remove_lost_links()?;
        plan.attachments.iter().try_for_each(|attachment| self.attach_one(plan, attachment))
    }

    fn attach_one(&self, plan: &Plan, attachment: &sluice_plan::Attachment) -> Result<(), CommitError> {
        let alone = plan.gate.alone(&attachment.device);
        Ok(self.dataplane.attach_behind(&wanted(attachment), alone)?)
    }

    /// Every device that is still here, also when one of them fails: the others have programs that the old generation
    /// does not know.
    fn attach_again(&self, plan: &Plan) -> Result<(), CommitError> {
        let mut first = Ok(());
        for attachment in plan.attachments.iter().filter(|attachment| is_here(attachment)) {
            if let Err(error) = self.attach_one(plan, attachment) {
                tracing::error!(interface = attachment.device, %error, "not as before");
                first = first.and(Err(error));
            }
        }
        first
    }

    fn detach_left(&self, plan: &Plan) -> Vec<String> {
        let wanted: BTreeSet<u32> = plan.attachments.iter().map(|a| a.ifindex).collect();
        match self.dataplane.attached() {
            Ok(attached) => {
                let left = attached.iter().filter(|a| !wanted.contains(&a.ifindex));
                left.flat_map(|gone| remaining(self.dataplane.detach(gone.ifindex))).collect()
            }
            Err(error) => vec![error.to_string()],
        }
    }
}

impl Function for Programs {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let Some(loaded) = candidate.loaded.take() else { return Ok(()) };
        if !candidate.counters_are_new {
            self.dataplane.begin_counters(&renumbered(&candidate.next.ids, candidate.stored))?;
        }
        self.dataplane.switch(&loaded);
        self.switched = true;
        if let Err(error) = self.attach(&candidate.plan) {
            candidate.loaded = Some(loaded); // its tables stay until what uses them has been switched back
            return Err(error);
        }
        candidate.rules = Some(loaded.rule_tables());
        *self.in_force.lock() = Some((loaded, candidate.plan.tables.fan_out.listeners.clone()));
        Ok(())
    }

    /// The old generation's programs are still in their slot.
    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        if !std::mem::take(&mut self.switched) {
            return Ok(());
        }
        let before: BTreeSet<u32> = candidate.attached.iter().map(|device| device.ifindex).collect();
        for attachment in candidate.plan.attachments.iter().filter(|a| !before.contains(&a.ifindex)) {
            self.dataplane.detach(attachment.ifindex)?;
        }
        let back = self.in_force.lock().as_ref().map(|(loaded, _)| self.dataplane.switch(loaded));
        let Some(old) = candidate.old.filter(|_| back.is_some()) else { return Ok(()) };
        let attached = self.attach_again(&old.plan);
        self.dataplane.grace()?;
        self.dataplane.retire_idle()?;
        attached
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        self.switched = false;
        log(&candidate.plan);
        self.detach_left(&candidate.plan)
    }
}

/// Numbers that names have in `ids` and had not before.
fn renumbered(ids: &Ids, before: Option<&Stored>) -> Renumbered {
    let none = Ids::default();
    let before = before.map_or(&none, |stored| &stored.ids);
    Renumbered {
        zones: ids.zones.given_since(&before.zones).collect(),
        policies: ids.policies.given_since(&before.policies).collect(),
        nat_rules: ids.nat_rules.given_since(&before.nat_rules).collect(),
        nat_pools: ids.nat_pools.given_since(&before.nat_pools).collect(),
    }
}

/// Variants of the new generation, and those of the old one behind them: until its link is updated, a device's root
/// still calls the number it was made with, on the hook where it stands.
pub fn variants(plan: &Plan, old: Option<&Plan>, attached: &[Attached]) -> Vec<Variant> {
    let mut masks: Vec<u32> = plan.variants.iter().map(|v| v.stage_mask).collect();
    if let Some(old) = old {
        masks.extend(old.variants.iter().skip(masks.len()).map(|v| v.stage_mask));
    }
    let here = attached.iter().map(|device| (device.hook, device.variant));
    let devices = plan.attachments.iter().map(|a| (wanted(a).hook, Some(a.variant))).chain(here);
    let hooks = hooks_of(masks.len(), devices);
    // packets that are on their way to a CPU when this is switched to still find programs there
    let spread = [Some(plan), old].into_iter().flatten().any(|plan| plan.tables.spread.queue > 0);
    let of = |(stage_mask, hooks): (u32, Hooks)| Variant {
        stage_mask,
        hooks: Hooks { cpu: hooks.xdp && spread, ..hooks },
    };
    masks.into_iter().zip(hooks).map(of).collect()
}

/// On which hooks devices run each of so many variants.
fn hooks_of(variants: usize, devices: impl Iterator<Item = (Hook, Option<u32>)>) -> Vec<Hooks> {
    let mut all = vec![Hooks::default(); variants];
    for (hook, variant) in devices {
        // a root that is not ours to read may call any
        let called = variant.map_or(0..variants, |number| number as usize..number as usize + 1);
        for hooks in all.get_mut(called).unwrap_or_default() {
            hooks.tc |= hook == Hook::Tc;
            hooks.xdp |= matches!(hook, Hook::XdpNative | Hook::XdpGeneric);
        }
    }
    all
}

fn is_here(attachment: &sluice_plan::Attachment) -> bool {
    if_nametoindex(attachment.device.as_str()).is_ok_and(|index| index == attachment.ifindex)
}

fn wanted(attachment: &sluice_plan::Attachment) -> Attachment {
    let hook = match attachment.ingress {
        Some(IngressHook::Tc) => Hook::Tc,
        Some(IngressHook::XdpNative) => Hook::XdpNative,
        Some(IngressHook::XdpGeneric) => Hook::XdpGeneric,
        None => Hook::EgressOnly,
    };
    Attachment { ifindex: attachment.ifindex, hook, variant: attachment.variant }
}

fn log(plan: &Plan) {
    for attachment in &plan.attachments {
        let mode = attachment.ingress.map_or("egress-only", IngressHook::name);
        let gate_alone = plan.gate.alone(&attachment.device).is_some();
        tracing::info!(
            interface = attachment.device,
            mode,
            variant = attachment.variant,
            gate_alone,
            "attached"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_for_the_hooks_that_devices_use() {
        let of = |devices: &[(Hook, Option<u32>)]| {
            let hooks = hooks_of(2, devices.iter().copied());
            hooks.into_iter().map(|hooks| (hooks.tc, hooks.xdp)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [(false, false); 2]);
        assert_eq!(of(&[(Hook::Tc, Some(0)), (Hook::EgressOnly, Some(1))]), [(true, false), (false, false)]);
        assert_eq!(of(&[(Hook::Tc, Some(0)), (Hook::XdpGeneric, Some(0))]), [(true, true), (false, false)]);
        assert_eq!(of(&[(Hook::XdpNative, Some(1))]), [(false, false), (false, true)]);
        // an unknown root, and one of a variant that is gone
        assert_eq!(of(&[(Hook::Tc, None), (Hook::XdpNative, Some(2))]), [(true, false); 2]);
    }
}
