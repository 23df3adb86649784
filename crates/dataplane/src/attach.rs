//! Programs on devices.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;
use sluice_libbpf::{Target, XdpMode, device, program};
use zerocopy::FromBytes;

use crate::carry::fault;
use crate::error::{Doing, Error, Result};
use crate::gate::GateOnly;
use crate::links::{self, AttachPoint, Pinned};
use crate::objects::{self, CONFIG_SECTION, Frozen, ObjectKind, Recipe, program_by_id};
use crate::programs::Program as Kind;
use crate::state::OWN;
use crate::{Dataplane, GateAlone, prog_run, refusal, spread, sys};

/// Where a device's ingress is handled. Every managed device also gets the tcx egress program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// tc ingress (tcx).
    Tc,
    /// XDP in the driver.
    XdpNative,
    /// XDP behind the driver, on an skb: for every device.
    XdpGeneric,
    /// The host side of a tagged unit: its ingress was judged on the physical device.
    EgressOnly,
}

impl Hook {
    /// As reports, metrics and the API spell it.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Tc => "tc",
            Hook::XdpNative => "xdp-native",
            Hook::XdpGeneric => "xdp-generic",
            Hook::EgressOnly => "egress-only",
        }
    }

    fn xdp(self) -> Option<Target> {
        match self {
            Hook::XdpNative => Some(Target::XdpNative),
            Hook::XdpGeneric => Some(Target::XdpGeneric),
            Hook::Tc | Hook::EgressOnly => None,
        }
    }
}

/// What is wanted on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// In the network namespace of the calling thread.
    pub ifindex: u32,
    /// Where its ingress program goes.
    pub hook: Hook,
    /// Number of the variant; without effect on `EgressOnly`.
    pub variant: u32,
}

/// What is in force on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// In the network namespace of the calling thread.
    pub ifindex: u32,
    /// Where its ingress program stands.
    pub hook: Hook,
    /// None when the ingress program is not one of ours or there is none.
    pub variant: Option<u32>,
}

/// Programs that stand on devices, by name and variant. Each is loaded when a device wants it.
pub(crate) type Roots = BTreeMap<(&'static str, u32), Arc<OwnedFd>>;

fn root_name(hook: ObjectKind) -> &'static str {
    match hook {
        ObjectKind::Xdp => "xdp_root",
        ObjectKind::Tc => "tc_root",
        ObjectKind::Cpu => spread::ROOT,
    }
}

impl Dataplane {
    /// Brings a device to the wanted state. What is already there stays, so this can be called at every commit.
    pub fn attach(&self, wanted: &Attachment) -> Result<()> {
        self.remove_lost_links()?;
        self.attach_behind(wanted, None)
    }

    /// Before devices are attached, once for all of them: links of devices that have gone or left, whose numbers others may have.
    pub fn remove_lost_links(&self) -> Result<()> {
        let _changing = self.changing();
        links::remove_lost(&self.state.pin)
    }

    /// One of several, with the gate alone before the gateway's own programs, if there is one.
    pub fn attach_behind(&self, wanted: &Attachment, gate: Option<&GateAlone>) -> Result<()> {
        let _changing = self.changing();
        self.check_loaded(wanted)?;
        self.state.commit()?;
        let kind = if wanted.hook.xdp().is_some() { ObjectKind::Xdp } else { ObjectKind::Tc };
        let ingress = match gate {
            _ if wanted.hook == Hook::EgressOnly => None,
            Some(gate) => Some(Ingress::Gate(self.gate_before(kind, wanted, gate)?)),
            None => Some(Ingress::Root(self.root(kind, wanted.variant)?)),
        };
        let mut made = Vec::new();
        let result = self.attach_all(wanted, ingress.as_ref().map(AsFd::as_fd), &mut made);
        if result.is_err() {
            // nothing half attached stays behind
            for point in made.into_iter().rev() {
                self.remove_link(point, wanted.ifindex)?;
            }
        }
        result
    }

    /// `made` collects the links that did not exist before.
    fn attach_all(
        &self,
        wanted: &Attachment,
        ingress: Option<BorrowedFd<'_>>,
        made: &mut Vec<AttachPoint>,
    ) -> Result<()> {
        let ifindex = wanted.ifindex;
        let mut put = |point, target, program: BorrowedFd<'_>| -> Result<()> {
            if self.put_link(point, ifindex, target, program)? {
                made.push(point);
            }
            Ok(())
        };
        put(AttachPoint::TcxOut, Target::TcxEgress, self.device_program("tc_egress_root")?.as_fd())?;
        match (wanted.hook.xdp(), ingress) {
            (Some(target), Some(ingress)) => {
                self.check_mode(ifindex, target)?;
                let finish = self.device_program("tc_finish")?;
                // A tc root goes only after XDP judges packets; without one the finisher must be there first.
                if self
                    .link_program(AttachPoint::TcxIn, ifindex)?
                    .is_some_and(|name| name == "tc_root" || name == "tc_gate")
                {
                    put(AttachPoint::Xdp, target, ingress)?;
                    put(AttachPoint::TcxIn, Target::TcxIngress, finish.as_fd())
                } else {
                    put(AttachPoint::TcxIn, Target::TcxIngress, finish.as_fd())?;
                    put(AttachPoint::Xdp, target, ingress)
                }
            }
            (None, Some(ingress)) => {
                put(AttachPoint::TcxIn, Target::TcxIngress, ingress)?;
                self.remove_link(AttachPoint::Xdp, ifindex)
            }
            (_, None) => {
                self.remove_link(AttachPoint::Xdp, ifindex)?;
                self.remove_link(AttachPoint::TcxIn, ifindex)
            }
        }
    }

    /// Takes every program off a device.
    pub fn detach(&self, ifindex: u32) -> Result<()> {
        let _changing = self.changing();
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).remove(&ifindex);
        AttachPoint::ALL.into_iter().try_for_each(|point| self.remove_link(point, ifindex))
    }

    /// Devices with programs of this data plane, also those that an earlier daemon attached.
    pub fn attached(&self) -> Result<Vec<Attached>> {
        let mut devices: BTreeMap<u32, Vec<Pinned>> = BTreeMap::new();
        for link in links::all(&self.state.pin)?.into_iter().filter(Pinned::is_here) {
            devices.entry(link.ifindex).or_default().push(link);
        }
        devices.into_iter().map(|(ifindex, links)| self.describe(ifindex, &links)).collect()
    }

    fn describe(&self, ifindex: u32, links: &[Pinned]) -> Result<Attached> {
        let at = |point| links.iter().find(|link| link.point == point).map(|link| link.details.program_id);
        let (hook, program) = match (at(AttachPoint::Xdp), at(AttachPoint::TcxIn)) {
            (Some(program), _) => match device::xdp(ifindex) {
                Ok(state) if state.mode == XdpMode::Generic => {
                    (Hook::XdpGeneric, Some((ObjectKind::Xdp, program)))
                }
                _ => (Hook::XdpNative, Some((ObjectKind::Xdp, program))),
            },
            (None, Some(program)) => (Hook::Tc, Some((ObjectKind::Tc, program))),
            (None, None) => (Hook::EgressOnly, None),
        };
        let variant = match program {
            Some((kind, id)) => self.root_identity(kind, id)?.map(|identity| identity.variant),
            None => None,
        };
        Ok(Attached { ifindex, hook, variant })
    }

    /// The root program that packets of a device meet first, for test runs.
    pub fn root_program(&self, hook: ObjectKind, variant: u32) -> Result<OwnedFd> {
        sys::duplicate(&*self.root(hook, variant)?).doing(|| "duplicate a root program".to_owned())
    }

    /// The tcx egress program of every device, for test runs.
    pub fn egress_program(&self) -> Result<OwnedFd> {
        sys::duplicate(&*self.device_program("tc_egress_root")?)
            .doing(|| "duplicate the egress program".to_owned())
    }

    /// The tcx ingress program of XDP devices, for test runs.
    pub fn finish_program(&self) -> Result<OwnedFd> {
        sys::duplicate(&*self.device_program("tc_finish")?)
            .doing(|| "duplicate the finishing program".to_owned())
    }

    fn check_loaded(&self, wanted: &Attachment) -> Result<()> {
        let variant = wanted.variant;
        let mut needed = vec![(ObjectKind::Tc, 0, Kind::Egress)];
        if let Some(hook) = match wanted.hook {
            Hook::Tc => Some(ObjectKind::Tc),
            Hook::XdpNative | Hook::XdpGeneric => Some(ObjectKind::Xdp),
            Hook::EgressOnly => None,
        } {
            needed.extend([(hook, variant, Kind::Admit), (hook, variant, Kind::Fast)]);
        }
        match needed.into_iter().find(|(hook, variant, kind)| !self.is_loaded(*hook, *variant, *kind)) {
            Some((hook, variant, _)) => Err(Error::NotActive { hook: hook.name(), variant }),
            None => Ok(()),
        }
    }

    pub(crate) fn root(&self, kind: ObjectKind, variant: u32) -> Result<Arc<OwnedFd>> {
        self.standing(kind, variant, root_name(kind))
    }

    /// A tc program that is the same for every device; it knows no variant.
    fn device_program(&self, name: &'static str) -> Result<Arc<OwnedFd>> {
        self.standing(ObjectKind::Tc, 0, name)
    }

    fn standing(&self, kind: ObjectKind, variant: u32, name: &'static str) -> Result<Arc<OwnedFd>> {
        let mut cache = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = cache.get(&(name, variant)) {
            return Ok(program.clone());
        }
        let object = objects::load(&Recipe {
            kind,
            programs: &[name],
            reuse: &|name| self.state.descriptor(kind, name),
            create: &|name| name == CONFIG_SECTION,
            frozen: Frozen { root_variant: variant, ..Default::default() },
            entries: &|name| self.sizes().entries(name),
        })?;
        let program = Arc::new(objects::program(&object, name)?);
        cache.insert((name, variant), program.clone());
        Ok(program)
    }

    /// The gate alone before a device, loaded anew only when it is another.
    fn gate_before(&self, kind: ObjectKind, wanted: &Attachment, gate: &GateAlone) -> Result<Arc<GateOnly>> {
        let mut cache = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, wanted.variant, gate.clone());
        if let Some((known, program)) = cache.get(&wanted.ifindex)
            && *known == key
        {
            return Ok(program.clone());
        }
        let program = Arc::new(self.gate_only(kind, wanted.variant, gate)?);
        cache.insert(wanted.ifindex, (key, program.clone()));
        Ok(program)
    }

    /// Makes or updates a link; true = made.
    fn put_link(
        &self,
        point: AttachPoint,
        ifindex: u32,
        target: Target,
        program: BorrowedFd<'_>,
    ) -> Result<bool> {
        if let Some(link) = Pinned::open(&self.state.pin, point, ifindex)? {
            if !self.is_same_program(link.details.program_id, program)? {
                link.update(program)?;
                fault::point("link");
            }
            return Ok(false);
        }
        match Pinned::create(&self.state.pin, point, ifindex, target, program) {
            Ok(_) => Ok(true),
            Err(error) if point == AttachPoint::Xdp => Err(refusal::explain(program, ifindex, target, error)),
            Err(source) => Err(Error::Os {
                action: format!("attach {} to {}", point.name(), sys::interface_name(ifindex)),
                source,
            }),
        }
    }

    fn remove_link(&self, point: AttachPoint, ifindex: u32) -> Result<()> {
        Pinned::open(&self.state.pin, point, ifindex)?.map_or(Ok(()), Pinned::remove)
    }

    /// Name of the program on a link.
    fn link_program(&self, point: AttachPoint, ifindex: u32) -> Result<Option<String>> {
        let Some(link) = Pinned::open(&self.state.pin, point, ifindex)? else { return Ok(None) };
        Ok(program_by_id(link.details.program_id).map(|(details, _)| details.name))
    }

    /// A link between native and generic XDP cannot be updated, only made anew.
    fn check_mode(&self, ifindex: u32, target: Target) -> Result<()> {
        let Some(link) = Pinned::open(&self.state.pin, AttachPoint::Xdp, ifindex)? else { return Ok(()) };
        let wanted = if target == Target::XdpNative { XdpMode::Native } else { XdpMode::Generic };
        match device::xdp(ifindex) {
            Ok(state) if state.mode != wanted && state.mode != XdpMode::None => link.remove(),
            _ => Ok(()),
        }
    }

    /// Same instructions, same frozen variant, same maps: then the link can stay as it is.
    fn is_same_program(&self, id: u32, program: BorrowedFd<'_>) -> Result<bool> {
        let wanted = program::details(program).doing(|| "examine a program".to_owned())?;
        if wanted.id == id {
            return Ok(true);
        }
        let kind = if wanted.name.starts_with("xdp") { ObjectKind::Xdp } else { ObjectKind::Tc };
        let (found, own) = (self.root_identity(kind, id)?, self.root_identity(kind, wanted.id)?);
        Ok(found.is_some() && found == own)
    }

    /// None when the program is gone or does not use this instance's state.
    fn root_identity(&self, kind: ObjectKind, id: u32) -> Result<Option<Identity>> {
        let Some((details, maps)) = program_by_id(id) else { return Ok(None) };
        let mut frozen = None;
        let mut shared = Vec::new();
        for map in &maps {
            if map.name().to_string_lossy() == CONFIG_SECTION {
                frozen = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap_or(None);
            } else if let Ok(info) = map.info() {
                shared.push(info.info.id);
            }
        }
        shared.sort_unstable();
        let variant = match &frozen {
            Some(bytes) => {
                let offset = objects::root_variant_offset(kind)?;
                bytes
                    .get(offset..)
                    .and_then(|rest| u32::read_from_prefix(rest).ok())
                    .map_or(0, |(value, _)| value)
            }
            None => 0,
        };
        Ok(Some(Identity { tag: details.tag, variant, shared }))
    }

    /// Puts earlier states away, if no device's programs work with them any more.
    pub(crate) fn settle_state(&self) -> Result<()> {
        let Some(mut old) = self.state.old_states() else { return Ok(()) };
        fault::point("attached");
        let own: BTreeSet<u32> = old.states.iter().flat_map(|state| state.own_ids(&OWN)).collect();
        for link in links::all(&self.state.pin)? {
            let Some((details, _)) = program_by_id(link.details.program_id) else { continue };
            if details.map_ids.iter().any(|id| own.contains(id)) {
                let device = sys::interface_name(link.ifindex);
                tracing::warn!(device, "still has programs of an earlier version; what they work with stays");
                return Ok(());
            }
        }
        // the sweep's programs work with the earlier state as well
        self.start_sweeping()?;
        self.grace()?;
        self.state.put_away(&mut old)
    }

    /// Runs the root of a variant once; test runs of other crates need nothing else.
    pub fn run_xdp_root(
        &self,
        variant: u32,
        run: &prog_run::XdpRun<'_>,
    ) -> Result<prog_run::Outcome<prog_run::XdpContext>> {
        prog_run::xdp(self.root(ObjectKind::Xdp, variant)?.as_fd(), run)
    }

    /// As [`Dataplane::run_xdp_root`], at tc ingress.
    pub fn run_tc_root(
        &self,
        variant: u32,
        run: &prog_run::TcRun<'_>,
    ) -> Result<prog_run::Outcome<prog_run::TcContext>> {
        prog_run::tc(self.root(ObjectKind::Tc, variant)?.as_fd(), run)
    }
}

/// By device: what the gate alone before it was made of.
pub(crate) type Gates = BTreeMap<u32, ((ObjectKind, u32, GateAlone), Arc<GateOnly>)>;

/// What packets of a device meet first.
enum Ingress {
    Root(Arc<OwnedFd>),
    Gate(Arc<GateOnly>),
}

impl AsFd for Ingress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Ingress::Root(program) => program.as_fd(),
            Ingress::Gate(gate) => gate.program(),
        }
    }
}

/// What tells two roots apart.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    tag: [u8; 8],
    variant: u32,
    /// Ids of the maps it uses besides its frozen section.
    shared: Vec<u32>,
}
