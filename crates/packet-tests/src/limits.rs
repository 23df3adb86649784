//! Real configurations as the kernel's verifier sees them: each function alone, the examples, and everything at once.
//! Devices are made up; only what the programs become of counts here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use sluice_dataplane::{Dataplane, Examined, Hooks, Variant};
use sluice_language::config::Config;
use sluice_plan::{Environment, Ids, IngressHook, NetDev, Plan};

/// The verifier gives a program up after looking at so many instructions.
pub const KERNEL_INSTRUCTIONS: u32 = 1_000_000;
/// And one with more maps than this.
pub const KERNEL_MAPS: usize = 64;

/// What programs may take: half of the kernel's spaces, so that the next function finds room.
pub const MOST_INSTRUCTIONS: u32 = KERNEL_INSTRUCTIONS / 2;
/// Maps of one program.
pub const MOST_MAPS: usize = 44;
/// Bytes of stack, of the deepest chain of calls.
pub const MOST_STACK: u32 = 384;
/// The established path should stay in the first-level cache.
pub const MOST_FAST_BYTES: u32 = 12 << 10;

/// Name and text of every configuration.
pub fn configurations() -> Result<Vec<(String, PathBuf)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![("two zones".to_owned(), root.join("tests/golden-plan/two-zones.conf"))];
    let alone = [
        "screens",
        "rates",
        "limits",
        "nat",
        "nat-persistent",
        "nat64",
        "gate",
        "gate-alone",
        "gate-nat",
        "fanout",
        "gtpu",
        "tags",
    ];
    found.extend(alone.map(|name| (name.to_owned(), root.join(format!("tests/packet/{name}.conf")))));
    let examples = std::fs::read_dir(root.join("examples")).context("reading examples")?;
    let mut examples: Vec<PathBuf> = examples.flatten().map(|entry| entry.path()).collect();
    examples.sort();
    for path in examples.into_iter().filter(|path| path.extension().is_some_and(|end| end == "conf")) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        found.push((format!("example {name}"), path));
    }
    found.push(("everything".to_owned(), everything()));
    Ok(found)
}

/// The configuration with every function on.
pub fn everything() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet/everything.conf")
}

/// What a configuration becomes on made-up devices.
pub fn plan_of(path: &Path, generation: u32) -> Result<Plan> {
    let at = || format!("{}", path.display());
    let text = std::fs::read_to_string(path).with_context(at)?;
    let tree = sluice_language::parse(&text, &at()).map_err(|errors| anyhow!("{errors}"))?;
    let config = sluice_language::compile(&tree).map_err(|errors| anyhow!("{errors}"))?;
    sluice_plan::compile(&config, &devices_of(&config), &mut Ids::default(), generation).with_context(at)
}

/// As a daemon loads them: on the hooks that its devices have.
pub fn variants_of(plan: &Plan) -> Vec<Variant> {
    let hooks = |variant: u32| {
        let hooks = plan.attachments.iter().filter(|at| at.variant == variant).filter_map(|at| at.ingress);
        hooks.fold(Hooks::default(), |hooks, hook| match hook {
            IngressHook::Tc => Hooks { tc: true, ..hooks },
            IngressHook::XdpNative | IngressHook::XdpGeneric => Hooks { xdp: true, ..hooks },
        })
    };
    let variants = (0u32..).zip(&plan.variants);
    variants
        .map(|(number, variant)| Variant { stage_mask: variant.stage_mask, hooks: hooks(number) })
        .collect()
}

/// Programs that were looked at: other configurations that ask for the same ones need not load them again.
#[derive(Debug, Default)]
pub struct Seen(BTreeSet<(u32, bool)>);

impl Seen {
    /// What of a plan was not asked for before. The mask and whether bindings persist are all that differs between
    /// programs of one state.
    pub fn new_in(&mut self, plan: &Plan) -> Vec<Variant> {
        let persistent = plan.tables.nat.is_persistent();
        let masks = plan.variants.iter().map(|variant| variant.stage_mask);
        masks.filter(|mask| self.0.insert((*mask, persistent))).map(Variant::new).collect()
    }
}

/// What the verifier says of the programs that a configuration is the first to ask for, on both hooks: of so many variants,
/// those with the most stages.
pub fn examine(dataplane: &Dataplane, path: &Path, seen: &mut Seen, most: usize) -> Result<Vec<Examined>> {
    let plan = plan_of(path, 1)?;
    let mut variants = seen.new_in(&plan);
    variants.sort_by_key(|variant| std::cmp::Reverse(variant.stage_mask.count_ones()));
    variants.truncate(most);
    if variants.is_empty() {
        return Ok(Vec::new());
    }
    dataplane.examine(&plan.tables, &variants).with_context(|| path.display().to_string())
}

/// A veth for each interface, and one for each end of the pairs that tagged units get.
fn devices_of(config: &Config) -> Environment {
    let mut environment = Environment::default();
    let mut add = |name: String| {
        let ifindex = environment.netdevs.len() as u32 + 2;
        let mac = [2, 0, 0, 0, 0, ifindex as u8];
        let driver = "veth".to_owned();
        let netdev =
            NetDev { ifindex, mac, mtu: 1500, driver, mtu_range: Some((68, 65535)), ..Default::default() };
        environment.netdevs.insert(name, netdev);
    };
    for interface in &config.interfaces {
        add(interface.name.clone());
        for unit in &interface.units {
            let device = sluice_plan::device_of(interface, unit);
            if device != interface.name {
                add(sluice_plan::far_end(interface, &device));
                add(device);
            }
        }
    }
    environment
}
