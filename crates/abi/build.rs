//! Generates the layouts from `bpf/abi/abi.h`, and the lists of stages, programs, counters, tables and maps from `bpf/*.def`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{DeriveInfo, IntKind, ItemInfo, ParseCallbacks, TypeKind};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bpf = manifest.join("../../bpf");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", bpf.join("abi").display());
    for list in ["stages.def", "reasons", "programs.def", "counters.def", "tables.def", "maps.def"] {
        println!("cargo:rerun-if-changed={}", bpf.join(list).display());
    }

    layouts(&bpf).write_to_file(out.join("layouts.rs")).expect("cannot write layouts.rs");
    let read = |list: &str| entries(&bpf.join(list));
    fs::write(out.join("stages.rs"), stages(&read("stages.def"))).expect("cannot write stages.rs");
    fs::write(out.join("counters.rs"), counters(&read("counters.def"))).expect("cannot write counters.rs");
    fs::write(out.join("tables.rs"), tables(&read("tables.def"))).expect("cannot write tables.rs");
    fs::write(out.join("maps.rs"), maps(&read("maps.def"))).expect("cannot write maps.rs");
    fs::write(out.join("programs.rs"), programs(&read("programs.def"), &read("stages.def")))
        .expect("cannot write programs.rs");
}

/// C macros with arguments, evaluated by the C compiler for the tests that compare them with the Rust functions.
const C_CHECKS: &str = r#"
#include "abi/abi.h"
enum { C_PROGRAM_SLOT_1_2_ADMIT = PROGRAM_SLOT(1, 2, PROGRAM_ADMIT), C_PROGRAM_SLOTS = PROGRAM_SLOTS, C_ACTIVE_SLOT = ACTIVE_SLOT(0xabcd0001),
       C_ACTIVE_STAMP = ACTIVE_STAMP(0xabcd0201u), C_ACTIVE_ROUTES = ACTIVE_ROUTES(0xabcd0201u),
       C_ACTIVE_EPOCH = ACTIVE_EPOCH(0xabcd0201u), C_STAGE_BIT_ROUTE = STAGE_BIT(ROUTE), C_SCREEN_BIT_WINNUKE = SCREEN_BIT(WINNUKE),
       C_GTPU_SLOT_9 = GTPU_SLOT(0x123456789abcdef0ull, 11), C_GTPU_DECISION_1_2_3 = GTPU_DECISION(1, 2, 3) >> 16 & 0xffffffff,
       C_GTPU_BLOCK_FLOW_3_77 = GTPU_BLOCK_FLOW(GTPU_BLOCK(3, 77), 21),
       C_UNIT_SLOT_3_QINQ = UNIT_SLOT(3, VLAN_SERVICE | 100 | VLAN_TWO | 7u << VLAN_INNER_SHIFT, 7u, 20) };
"#;

fn layouts(bpf: &Path) -> bindgen::Bindings {
    bindgen::Builder::default()
        .header_contents("sluice_abi.h", C_CHECKS)
        .clang_arg(format!("-I{}", bpf.display()))
        .allowlist_file(r".*/bpf/abi/[a-z0-9_]+\.h")
        .allowlist_var("C_.*")
        .derive_default(true)
        .derive_eq(true)
        .generate_comments(false)
        .layout_tests(true)
        .prepend_enum_name(false)
        .parse_callbacks(Box::new(Naming))
        .generate()
        .unwrap_or_else(|error| panic!("cannot read bpf/abi/abi.h (libclang 18 or newer is needed): {error}"))
}

#[derive(Debug)]
struct Naming;

impl ParseCallbacks for Naming {
    /// `flow_line4` becomes `FlowLine4`; constants keep their names.
    fn item_name(&self, item: ItemInfo) -> Option<String> {
        let name = item.name;
        let snake = !name.starts_with('_')
            && name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
        match name {
            "reason" | "stage" | "program" | "table" => Some(format!("C{}", camel_case(name))), // modules of lists have the real ones
            _ => snake.then(|| camel_case(name)),
        }
    }

    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        const BYTES: [&str; 12] = [
            "FLOW_",
            "TCP_DIR_",
            "TCP_SCALE_",
            "UNIT_",
            "RULE_",
            "SERVICE_",
            "ACTION_",
            "NAT_",
            "NEXTHOP_V",
            "NEXTHOP_R",
            "NEXTHOP_T",
            "NEXTHOP_LEFT",
        ];
        const COUNTS: [&str; 20] = [
            "FANOUT_LINE_POSITIONS",
            "NAT_CURSORS",
            "LIMIT_SETS",
            "LIMIT_SLOTS",
            "TIMEOUT_",
            "SWEEPS",
            "FLOW_BUCKET_",
            "FLOW_STASH_",
            "REAP_MAX",
            "MAX_",
            "CLASS_LINE",
            "CLASS_TREE_WORDS",
            "CLASS_TREE_KEYS",
            "CLASS_PROTOCOL",
            "CLASS_CHUNK",
            "UNIT_TABLE_SLOTS",
            "UNIT_PROBES",
            "NAT_SOURCE_CELLS",
            "REASON_SLOTS",
            "TABLE_LINE",
        ];
        const SHORTS: [&str; 3] = ["ZONE_", "NEXTHOP_", "ICMP_PORT_"];
        let starts = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
        Some(match name {
            _ if starts(&COUNTS) => IntKind::Custom { name: "usize", is_signed: false },
            "UNIT_LEAST_SHIFT" => IntKind::U32,
            "NAT_FULL_MS" => IntKind::U32,
            "NAT_BINDING_INSIDE" | "NAT_BINDING_OUTSIDE" => IntKind::U8,
            _ if name.starts_with("NAT_BINDING") => IntKind::U32,
            _ if starts(&BYTES) => IntKind::U8,
            _ if starts(&SHORTS) => IntKind::U16,
            _ => IntKind::U32,
        })
    }

    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        if info.kind != TypeKind::Struct {
            return Vec::new();
        }
        ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"]
            .map(|name| format!("zerocopy::{name}"))
            .to_vec()
    }
}

fn camel_case(name: &str) -> String {
    let mut text = String::new();
    for word in name.split('_') {
        let (first, rest) = word.split_at(1.min(word.len()));
        text += &first.to_ascii_uppercase();
        text += rest;
    }
    text
}

/// What a line of a list says: its kind, the plain arguments, and the help.
type Entry = (String, Vec<String>);

/// `NAME(argument, ..., "help")` lines of a list and of the lists it includes, in order.
fn entries(path: &Path) -> Vec<Entry> {
    let name = path.display();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {name}: {error}"));
    let mut code = String::new();
    let mut rest = &text[..];
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").unwrap_or_else(|| panic!("{name}: comment without an end")).1;
    }
    code += rest;
    let mut entries = Vec::new();
    for line in code.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("#include \"").and_then(|line| line.strip_suffix('"')) {
            Some(list) => entries.extend(self::entries(&path.with_file_name(list))),
            None => {
                entries.push(entry(line).unwrap_or_else(|| {
                    panic!("{name}: expected one of {KINDS:?} on one line, found `{line}`")
                }))
            }
        }
    }
    entries
}

/// Kinds of lines, and how many arguments they have.
const KINDS: [(&str, usize); 7] =
    [("STAGE", 5), ("REASON", 4), ("DENIAL", 4), ("PROGRAM", 5), ("COUNTER", 4), ("TABLE", 6), ("MAP", 8)];

fn entry(line: &str) -> Option<Entry> {
    let (kind, arguments) = line.trim().strip_suffix(')')?.split_once('(')?;
    let (plain, help) = arguments.split_once('"')?;
    let mut words = arguments_of(plain);
    words.push(help.strip_suffix('"')?.to_owned());
    KINDS.contains(&(kind, words.len())).then(|| (kind.to_owned(), words))
}

fn programs(entries: &[Entry], stages: &[Entry]) -> String {
    let list: Vec<&[String]> = entries.iter().map(|entry| &entry.1[..]).collect();
    let mut code = String::new();
    enumeration(
        &mut code,
        ("Program", "A program of a generation (`bpf/programs.def`)."),
        &list,
        |program| (&program[0], &program[1], &program[4]),
    );
    all(&mut code, "Program", "ALL", "All, in the order packets meet them.", &list, 0);
    let arms = |place: usize, value: fn(&str) -> String| {
        let arm = move |program: &&[String]| {
            format!("Program::{} => {}", camel(&program[0]), value(&program[place]))
        };
        list.iter().map(arm).collect::<Vec<_>>().into_iter()
    };
    let tc_only = arms(2, |hook| match hook {
        "both" => "false".to_owned(),
        "tc" => "true".to_owned(),
        other => panic!("bpf/programs.def: hook `{other}` is neither both nor tc"),
    });
    method(&mut code, "Program", "is_tc_only", "bool", "Whether the XDP hook has none such.", tc_only);
    let needs = arms(3, |stage| format!("Stage::{}", camel(stage)));
    method(&mut code, "Program", "needs", "Stage", "It exists in variants that have this stage.", needs);
    let phases = of(stages, &["STAGE"]);
    let phases = phases.iter().map(|stage| {
        format!("Stage::{} => Program::{}", camel(&stage[0]), camel(&stage[2].to_ascii_uppercase()))
    });
    method(&mut code, "Stage", "phase", "Program", "The program it runs in.", phases);
    code
}

/// Arguments of the lines of these kinds.
fn of<'a>(entries: &'a [Entry], kinds: &[&str]) -> Vec<&'a [String]> {
    let wanted = entries.iter().filter(|entry| kinds.contains(&entry.0.as_str()));
    wanted.map(|entry| &entry.1[..]).collect()
}

fn stages(entries: &[Entry]) -> String {
    let (stages, reasons) = (of(entries, &["STAGE"]), of(entries, &["REASON", "DENIAL"]));
    let mut code = String::new();

    enumeration(
        &mut code,
        ("Stage", "A stage of the slow path, or of egress (`bpf/stages.def`)."),
        &stages,
        |stage| (&stage[0], &stage[1], &stage[4]),
    );
    all(&mut code, "Stage", "ALL", "All, in the order packets walk them.", &stages, 0);
    let asked = stages.iter().map(|stage| {
        let is = match stage[3].as_str() {
            "asked" => true,
            "always" => false,
            other => panic!("bpf/stages.def: {} is there neither always nor asked, but `{other}`", stage[0]),
        };
        format!("Stage::{} => {is}", camel(&stage[0]))
    });
    method(
        &mut code,
        "Stage",
        "is_asked",
        "bool",
        "Whether it is there only where the plan asks for it.",
        asked,
    );

    enumeration(
        &mut code,
        ("Reason", "Why a packet is dropped (`bpf/reasons`); its name is that of its counter."),
        &reasons,
        |reason| (&reason[1], &reason[2], &reason[3]),
    );
    all(&mut code, "Reason", "BY_NUMBER", "All, by the number that programs give them.", &reasons, 1);
    let place = |reason: &&[String]| {
        let owner = stages.iter().position(|stage| stage[0] == reason[0]);
        owner.unwrap_or_else(|| panic!("bpf/reasons: there is no stage {} for {}", reason[0], reason[1]))
    };
    let mut met = reasons.clone();
    met.sort_by_key(place);
    all(&mut code, "Reason", "ALL", "All, in the order packets meet them.", &met, 1);
    let owners =
        reasons.iter().map(|reason| format!("Reason::{} => Stage::{}", camel(&reason[1]), camel(&reason[0])));
    method(&mut code, "Reason", "stage", "Stage", "The stage that drops for it.", owners);
    code
}

/// A list of every variant; `id` is the argument that names one.
fn all(code: &mut String, owner: &str, name: &str, help: &str, entries: &[&[String]], id: usize) {
    let all: Vec<String> = entries.iter().map(|entry| format!("{owner}::{}", camel(&entry[id]))).collect();
    writeln!(code, "impl {owner} {{\n    /// {help}").unwrap();
    writeln!(code, "    pub const {name}: [{owner}; {}] = [{}];\n}}\n", all.len(), all.join(", ")).unwrap();
}

/// What is counted of a unit, and a macro that hands names and helps to another one.
fn counters(entries: &[Entry]) -> String {
    let mut code = String::new();
    writeln!(code, "impl UnitCounter {{\n    /// All, in the order of counters.def.").unwrap();
    writeln!(code, "    pub const ALL: [UnitCounter; {}] = [", entries.len()).unwrap();
    for (_, entry) in entries {
        let (name, role, metric, help) = (&entry[0], camel(&entry[1]), &entry[2], &entry[3]);
        write!(code, "        UnitCounter {{ name: {name:?}, role: Role::{role}, ").unwrap();
        writeln!(code, "metric: \"sluice_{metric}_total\", help: {help:?} }},").unwrap();
    }
    writeln!(code, "    ];\n}}\n").unwrap();
    let names: String = entries.iter().map(|(_, entry)| format!(" {} {:?},", entry[0], entry[3])).collect();
    writeln!(code, "/// `$then! {{ name \"help\", ... }}` with every counter of a unit.").unwrap();
    writeln!(code, "#[macro_export]\nmacro_rules! unit_counters {{").unwrap();
    writeln!(code, "    ($then:ident) => {{ $then! {{{names} }} }};\n}}").unwrap();
    code
}

/// What stands between commas, but for those inside parentheses.
fn arguments_of(text: &str) -> Vec<String> {
    let mut depth = 0;
    let outer = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    text.split(outer).map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// The maps of the state: names, and what becomes of each.
fn maps(entries: &[Entry]) -> String {
    let maps: Vec<&[String]> = entries.iter().map(|entry| &entry.1[..]).collect();
    let mut code = String::new();
    enumeration(&mut code, ("StateMap", "A map of the state (`bpf/maps.def`)."), &maps, |map| {
        (&map[2], &map[2], &map[7])
    });
    all(&mut code, "StateMap", "ALL", "All, in the order of the list.", &maps, 2);
    let classes = maps.iter().map(|map| {
        let class = match map[0].strip_suffix(')').and_then(|class| class.split_once('(')) {
            Some(("RECORDS", stamps)) => format!("Records {{ stamps: &{:?} }}", arguments_of(stamps)),
            Some(other) => panic!("bpf/maps.def: class {other:?} has no arguments"),
            None => camel(&map[0]),
        };
        format!("StateMap::{} => Class::{class}", camel(&map[2]))
    });
    method(&mut code, "StateMap", "class", "Class", "What becomes of it.", classes);
    let kinds = maps.iter().map(|map| format!("StateMap::{} => Kind::{}", camel(&map[2]), camel(&map[1])));
    method(&mut code, "StateMap", "kind", "Kind", "How it is kept.", kinds);
    code
}

/// The tables of a generation: names, entries, and where user space has them from.
fn tables(entries: &[Entry]) -> String {
    let tables: Vec<&[String]> = entries.iter().map(|entry| &entry.1[..]).collect();
    let mut code = String::new();
    enumeration(&mut code, ("Table", "A table that a commit makes (`bpf/tables.def`)."), &tables, |table| {
        (&table[0], &table[1], &table[5])
    });
    all(&mut code, "Table", "ALL", "All, in the order of the list.", &tables, 0);
    let arm = |table: &[String], value: String| format!("Table::{} => {value}", camel(&table[0]));
    let sizes = tables.iter().map(|table| arm(table, format!("size_of::<{}>()", camel_case(&table[2]))));
    method(&mut code, "Table", "entry_bytes", "usize", "Of one entry.", sizes);
    let most = tables.iter().map(|table| arm(table, table[3].clone()));
    method(&mut code, "Table", "most", "usize", "Entries that it can have.", most);
    let sources: String = tables
        .iter()
        .map(|table| {
            let (kind, field) =
                table[4].strip_suffix(')').and_then(|s| s.split_once('(')).unwrap_or_default();
            let value = match kind {
                "LIST" => format!("list(&self.{field})"),
                "PLACED" => format!("indexed(&self.{field})"),
                _ => panic!("bpf/tables.def: {} is neither LIST(field) nor PLACED(field)", table[4]),
            };
            format!("            {},\n", arm(table, value))
        })
        .collect();
    writeln!(code, "impl Tables {{\n    /// What goes into a table.").unwrap();
    writeln!(code, "    pub fn rows_of(&self, table: Table) -> Rows<'_> {{").unwrap();
    writeln!(code, "        match table {{\n{sources}        }}\n    }}\n}}\n").unwrap();
    code
}

fn enumeration<'a>(
    code: &mut String,
    (name, about): (&str, &str),
    entries: &[&'a [String]],
    fields: impl Fn(&'a [String]) -> (&'a str, &'a str, &'a str),
) {
    let variants: String = entries
        .iter()
        .map(|entry| {
            let (id, _, help) = fields(entry);
            format!("    /// {help}\n    {},\n", camel(id))
        })
        .collect();
    writeln!(code, "/// {about}\n#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]")
        .unwrap();
    writeln!(code, "#[repr(u16)]\npub enum {name} {{\n{variants}}}\n").unwrap();
    let text = |pick: fn((&'a str, &'a str, &'a str)) -> &'a str| {
        entries
            .iter()
            .map(|entry| format!("{name}::{} => {:?}", camel(fields(entry).0), pick(fields(entry))))
            .collect::<Vec<_>>()
            .into_iter()
    };
    method(code, name, "name", "&'static str", "The name in counters and commands.", text(|entry| entry.1));
    method(code, name, "help", "&'static str", "One line for an operator.", text(|entry| entry.2));
}

fn method(
    code: &mut String,
    owner: &str,
    name: &str,
    result: &str,
    help: &str,
    arms: impl Iterator<Item = String>,
) {
    let arms: String = arms.map(|arm| format!("            {arm},\n")).collect();
    writeln!(code, "impl {owner} {{\n    /// {help}\n    pub const fn {name}(self) -> {result} {{").unwrap();
    writeln!(code, "        match self {{\n{arms}        }}\n    }}\n}}\n").unwrap();
}

/// `TCP_NOT_SYN` becomes `TcpNotSyn`.
fn camel(id: &str) -> String {
    camel_case(&id.to_ascii_lowercase())
}
