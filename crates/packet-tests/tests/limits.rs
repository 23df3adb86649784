//! The kernel's limits, held against real configurations on both hooks: a table written by this test says how full they
//! are. `SLUICE_LIMITS_JSON=FILE` also writes the figures there, as guests with other kernels do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use sluice_dataplane::abi::{TraceFilter, TracePrefix};
use sluice_dataplane::{Dataplane, Examined, Sizes, TraceRequest, cleanup};
use sluice_packet_tests::limits::{
    MOST_FAST_BYTES, MOST_INSTRUCTIONS, MOST_MAPS, MOST_STACK, Seen, configurations, examine, plan_of,
};

const BEGIN: &str =
    "<!-- limits:begin, written by UPDATE=1 cargo test -p sluice-packet-tests --test all limits:: -->\n";
const END: &str = "<!-- limits:end -->";

/// What a program takes in one configuration.
type Figures = BTreeMap<(String, String), Examined>;

/// Of the configurations that are wanted by their names, and so many variants of each.
fn measure(is_wanted: impl Fn(&str) -> bool, most: usize) -> Figures {
    let pin = Path::new("/sys/fs/bpf").join(format!("sluice-limits-{}", std::process::id()));
    let dataplane = Dataplane::open(&pin, Sizes { sessions4: 4096, sessions6: 4096, ..Sizes::default() });
    let dataplane = dataplane.unwrap_or_else(|error| panic!("{error}"));
    let mut figures = Figures::new();
    let (mut refused, mut seen) = (Vec::new(), Seen::default());
    let mut note = |place: &str, examined: Vec<Examined>| {
        for program in examined {
            let worst = figures.entry((place.to_owned(), program.name.clone())).or_insert(program.clone());
            if program.verified_instructions > worst.verified_instructions {
                *worst = program;
            }
        }
    };
    note("always", dataplane.examine_fixed().unwrap_or_else(|error| panic!("{error}")));
    for (name, path) in configurations().unwrap().into_iter().filter(|(name, _)| is_wanted(name)) {
        match examine(&dataplane, &path, &mut seen, most) {
            Ok(examined) => note(&name, examined),
            Err(error) => refused.push(format!("{name}: {error:#}")),
        }
    }
    drop(dataplane);
    cleanup(&pin).unwrap();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    figures
}

fn over_the_limit(program: &Examined) -> bool {
    // other machines' instructions are longer, and so are their caches
    let fast = cfg!(target_arch = "x86_64") && program.name.ends_with("_fast");
    program.verified_instructions > MOST_INSTRUCTIONS
        || program.maps > MOST_MAPS
        || program.stack > MOST_STACK
        || program.stack == 0
        || (fast && program.jited_bytes > MOST_FAST_BYTES)
}

/// A row a program: the smallest gateway, and the configuration that asks most of it.
fn table(figures: &Figures) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut table = format!(
        "Kernel {}. Limits: {MOST_INSTRUCTIONS} verified instructions, {MOST_STACK} bytes of stack, {MOST_MAPS} maps, \
         {MOST_FAST_BYTES} bytes of machine code for the established path.\n\n\
         | program | asks most of it | verified instructions | machine code, bytes | maps | stack, bytes | with two zones only: instructions | bytes |\n\
         |---|---|---|---|---|---|---|---|\n",
        release.trim()
    );
    let mut names: Vec<&str> = figures.keys().map(|(_, program)| program.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let rows = figures.iter().filter(|((_, program), _)| program == name);
        let Some(((place, _), most)) = rows.max_by_key(|(_, p)| (p.verified_instructions, p.jited_bytes))
        else {
            continue;
        };
        let least = figures.get(&("two zones".to_owned(), name.to_owned()));
        let (few, bytes) = least.map_or((String::new(), String::new()), |p| {
            (p.verified_instructions.to_string(), p.jited_bytes.to_string())
        });
        writeln!(
            table,
            "| `{name}` | {place} | {} | {} | {} | {} | {few} | {bytes} |",
            most.verified_instructions, most.jited_bytes, most.maps, most.stack
        )
        .unwrap();
    }
    table
}

fn json(figures: &Figures) -> String {
    let rows: Vec<String> = figures
        .iter()
        .map(|((place, name), p)| {
            format!(
                "{{\"configuration\":\"{place}\",\"program\":\"{name}\",\"verified\":{},\"bytes\":{},\"maps\":{},\"stack\":{}}}",
                p.verified_instructions, p.jited_bytes, p.maps, p.stack
            )
        })
        .collect();
    format!("[{}]\n", rows.join(",\n"))
}

/// Figures of the documented kernel are those of the page; of others, the page must at least name the same programs.
fn check_page(table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the begin mark");
    let (written, after) = rest.split_once(END).expect("the page has the end mark");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    let programs = |table: &str| {
        let rows =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned));
        rows.collect::<Vec<_>>()
    };
    assert_eq!(
        programs(written),
        programs(table),
        "run UPDATE=1 cargo test -p sluice-packet-tests --test all limits::"
    );
}

/// The programs of every function, and those that know of none. Screens leave little of a fan-out.
#[test]
#[ignore = "a part of what follows, for the emulated guest of `make test`"]
fn the_least_and_the_fullest_gateway_leave_half_of_the_kernels_room() {
    let figures = measure(|name| ["two zones", "fanout", "everything"].contains(&name), 1);
    let table = table(&figures);
    println!("{table}");
    assert!(!figures.values().any(over_the_limit), "{table}");
    check_page(&table);
}

#[test]
fn real_configurations_leave_half_of_the_kernels_room() {
    let figures = measure(|_| true, usize::MAX);
    if let Some(path) = std::env::var_os("SLUICE_LIMITS_JSON") {
        std::fs::write(path, json(&figures)).unwrap();
    }
    let over: Vec<_> = figures.iter().filter(|(_, program)| over_the_limit(program)).collect();
    let table = table(&figures);
    println!("{table}");
    assert!(over.is_empty(), "{over:#?}");
    check_page(&table);
}

/// What tells of packets in the places of the others is larger, and has the same room.
#[test]
fn every_configuration_can_be_traced() {
    let configurations = configurations().unwrap();
    let pin = Path::new("/sys/fs/bpf").join(format!("sluice-traced-{}", std::process::id()));
    let dataplane = Dataplane::open(&pin, Sizes { sessions4: 4096, sessions6: 4096, ..Sizes::default() });
    let dataplane = dataplane.unwrap_or_else(|error| panic!("{error}"));
    let prefix = TracePrefix { be_mask: [u32::MAX; 4], family: 6, ..Default::default() };
    let filter = TraceFilter {
        source: prefix,
        destination: prefix,
        either: prefix,
        sport: 1,
        dport: 2,
        port: 3,
        protocol: 6,
        by_unit: 1,
        by_packet: 1,
    };
    let (mut worst, mut seen) = (BTreeMap::<String, u32>::new(), Seen::default());
    for (number, (name, path)) in (1..).zip(&configurations) {
        let plan = plan_of(path, number).unwrap();
        let variants = seen.new_in(&plan);
        if variants.is_empty() {
            continue;
        }
        let generation = dataplane.load(&plan.tables, &variants, number);
        dataplane.switch(&generation.unwrap_or_else(|error| panic!("{name}: {error}")));
        dataplane.grace().unwrap();
        dataplane.retire_idle().unwrap();
        let request = TraceRequest { filter, snaplen: 192, rate: 1, ..Default::default() };
        let trace = dataplane.trace(request).unwrap_or_else(|error| panic!("{name}: {error}"));
        let programs = trace.programs().unwrap();
        assert!(programs.len() >= 5 * variants.len().min(1), "{name}: {programs:#?}");
        for program in programs {
            let most = worst.entry(program.name).or_default();
            *most = program.verified_instructions.max(*most);
        }
    }
    drop(dataplane);
    cleanup(&pin).unwrap();
    println!("traced, verified instructions: {worst:#?}");
    assert!(worst.len() >= 11 && worst.values().all(|most| *most <= MOST_INSTRUCTIONS), "{worst:#?}");
}
