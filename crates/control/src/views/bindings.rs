//! `show nat bindings`: the table of persistent-nat.

use sluice_dataplane::Binding;

use crate::api::nat::{NatBindingView, NatBindingsView};
use crate::api::protocol;
use crate::commit::Shared;
use crate::functions::bindings::table::permit;
use crate::state::error::AskError;

pub fn view(shared: &Shared) -> Result<NatBindingsView, AskError> {
    let active = shared.active();
    let one = |binding: Binding| NatBindingView {
        protocol: protocol::name(binding.protocol).into_owned(),
        internal_address: binding.inside.0,
        internal_port: binding.inside.1,
        reflexive_address: binding.outside.0,
        reflexive_port: binding.outside.1,
        kind: permit(binding.permits).name().to_owned(),
        rule: active.nat_rule_name(binding.rule).unwrap_or_default(),
        sessions: binding.sessions,
        max_sessions: binding.most_sessions,
        left_s: (binding.sessions == 0).then(|| binding.timeout_s.saturating_sub(binding.idle_s)),
        timeout_s: binding.timeout_s,
    };
    let mut bindings: Vec<_> = shared.dataplane.bindings()?.into_iter().map(one).collect();
    bindings
        .sort_by_key(|binding| (binding.internal_address, binding.internal_port, binding.protocol.clone()));
    Ok(NatBindingsView { limit: shared.dataplane.sizes().bindings, bindings })
}
