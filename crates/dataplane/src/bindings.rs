//! Bindings of persistent-nat: listed, and ended before their time. The data plane makes them, and its sweep ends those
//! that are idle.

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};
use sluice_abi::{
    NAT_BINDING_BUSY, NAT_BINDING_INSIDE, NAT_BINDING_LIVE, NAT_BINDING_OUTSIDE, NAT_BINDING_TAG,
    NAT_PERSISTENT_ANY_HOST, NAT_PERSISTENT_TARGET_HOST, NatBinding, NatBindingKey,
};
use zerocopy::IntoBytes;

use crate::Dataplane;
use crate::error::{Doing, Result};
use crate::records::{v4, v6};

/// Who reaches the inside endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// Every host (endpoint-independent filtering, RFC 4787 5).
    AnyHost,
    /// Hosts that the inside endpoint has sent to.
    TargetHost,
    /// Hosts and ports that the inside endpoint has sent to.
    TargetPort,
}

/// A binding of persistent-nat: an inside endpoint and its outside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    number: u32,
    state: u32,
    /// Address and port, host order.
    pub inside: (IpAddr, u16),
    /// Address and port, host order; of the other family with NAT64.
    pub outside: (IpAddr, u16),
    /// As the inside sends.
    pub protocol: u8,
    /// Of the inside endpoint.
    pub routing_instance: u16,
    /// Id of the source rule.
    pub rule: u16,
    /// Fixed when the binding is made.
    pub permits: Permits,
    /// Live ones, and those made since the sweep counted.
    pub sessions: u32,
    /// At one time; further ones are dropped as `nat_binding_sessions`.
    pub most_sessions: u32,
    /// Idle time after which it ends, once it has no session.
    pub timeout_s: u32,
    /// Seconds since a session of it was seen.
    pub idle_s: u32,
}

fn address(words: [u32; 4]) -> IpAddr {
    match v6(words).to_ipv4_mapped() {
        Some(_) => v4(words[3]).into(),
        None => v6(words).into(),
    }
}

fn keys(raw: &NatBinding) -> [NatBindingKey; 2] {
    let inside = NatBindingKey {
        be_addr: raw.be_inside,
        be_port: raw.be_inside_port,
        routing_instance: raw.routing_instance,
        rule: raw.rule,
        proto: raw.proto,
        side: NAT_BINDING_INSIDE,
    };
    let outside = NatBindingKey {
        be_addr: raw.be_outside,
        be_port: raw.be_outside_port,
        routing_instance: raw.outside_instance,
        rule: 0,
        proto: raw.outside_proto,
        side: NAT_BINDING_OUTSIDE,
    };
    [inside, outside]
}

impl Dataplane {
    /// How many bindings there are.
    pub fn binding_count(&self) -> u32 {
        self.bindings.word(0, offset_of!(NatBinding, sessions)).load(Ordering::Relaxed)
    }

    /// Every live binding.
    pub fn bindings(&self) -> Result<Vec<Binding>> {
        if self.binding_count() == 0 {
            return Ok(vec![]);
        }
        let now = self.now_jiffies()? as u32;
        let highest = self.bindings.read(0).counted.min(self.bindings.len() - 1);
        Ok((1..=highest).filter_map(|number| self.binding(number, now)).collect())
    }

    fn binding(&self, number: u32, now: u32) -> Option<Binding> {
        let offset = offset_of!(NatBinding, state);
        let state = || self.bindings.word(number, offset).load(Ordering::Acquire);
        let before = state();
        let raw = self.bindings.read(number);
        if before & NAT_BINDING_LIVE == 0 || before != state() {
            return None;
        }
        let idle = (now.wrapping_sub(raw.last_used) as i32).max(0) as u32;
        Some(Binding {
            number,
            state: before,
            inside: (address(raw.be_inside), u16::from_be(raw.be_inside_port)),
            outside: (address(raw.be_outside), u16::from_be(raw.be_outside_port)),
            protocol: raw.proto,
            routing_instance: raw.routing_instance,
            rule: raw.rule,
            permits: match raw.permit {
                NAT_PERSISTENT_ANY_HOST => Permits::AnyHost,
                NAT_PERSISTENT_TARGET_HOST => Permits::TargetHost,
                _ => Permits::TargetPort,
            },
            sessions: raw.sessions,
            most_sessions: raw.most,
            timeout_s: raw.timeout_s,
            idle_s: idle / self.hz().max(1),
        })
    }

    /// Ends those of these bindings that are still what they were, and says how many that were. Their sessions go on;
    /// ports come free for others as sessions end.
    pub fn end_bindings<'a>(&self, list: impl IntoIterator<Item = &'a Binding>) -> Result<u32> {
        let _ending = self.ending_bindings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = 0;
        for binding in list {
            ended += u32::from(self.end_binding(binding)?);
        }
        Ok(ended)
    }

    /// As nat_binding_end() of the data plane does it.
    fn end_binding(&self, binding: &Binding) -> Result<bool> {
        let state = self.bindings.word(binding.number, offset_of!(NatBinding, state));
        let tag = binding.state & NAT_BINDING_TAG;
        let taken = state.compare_exchange(
            binding.state,
            NAT_BINDING_BUSY | tag,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return Ok(false);
        }
        self.empty_binding(binding.number, tag)?;
        Ok(true)
    }

    /// Of a record that is this process's to empty: its keys go, then it is free for the next one.
    fn empty_binding(&self, number: u32, tag: u32) -> Result<()> {
        let index = self.state.map("nat_binding_index");
        let [inside, outside] = keys(&self.bindings.read(number)).map(|key| {
            let found = index.lookup(key.as_bytes(), MapFlags::ANY)?;
            // where the last process had come so far, another binding may have the endpoint
            let own = found.is_some_and(|found| found == number.to_ne_bytes());
            if own { index.delete(key.as_bytes()).map(|()| true) } else { Ok(false) }
        });
        let counted = inside.and(outside).doing(|| "end a binding of persistent-nat".to_owned())?;
        if counted {
            self.bindings.word(0, offset_of!(NatBinding, sessions)).fetch_sub(1, Ordering::Relaxed);
        }
        self.bindings.word(number, offset_of!(NatBinding, state)).store(tag, Ordering::Release);
        Ok(())
    }

    /// Ends what another process did not live to end: a record that stays busy over a grace period is nobody's.
    ///
    /// # Errors
    /// As of [`Dataplane::end_bindings`]. For the one process that ends bindings.
    pub fn finish_bindings(&self) -> Result<u32> {
        let _ending = self.ending_bindings.lock().unwrap_or_else(PoisonError::into_inner);
        let state =
            |number| self.bindings.word(number, offset_of!(NatBinding, state)).load(Ordering::Acquire);
        let highest = self.bindings.read(0).counted.min(self.bindings.len() - 1);
        let busy = (1..=highest).map(|number| (number, state(number)));
        let mut busy: Vec<_> = busy.filter(|(_, state)| state & NAT_BINDING_BUSY != 0).collect();
        if !busy.is_empty() {
            self.grace()?;
            busy.retain(|(number, before)| state(*number) == *before);
        }
        for (number, state) in &busy {
            self.empty_binding(*number, state & NAT_BINDING_TAG)?;
        }
        Ok(busy.len() as u32)
    }
}
