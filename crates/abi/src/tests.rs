use std::mem::size_of;

use zerocopy::{FromBytes, IntoBytes};

use crate::counters::UnitCounter;
use crate::maps::{Class, Kind, StateMap};
use crate::programs::Program;
use crate::stages::{Hook, Reason, Stage};
use crate::tables::{Table, Tables};
use crate::*;

#[test]
fn sizes_are_those_of_the_headers() {
    assert_eq!(size_of::<FlowKey4>(), 16);
    assert_eq!(size_of::<FlowKey6>(), 40);
    assert_eq!(size_of::<FlowState>(), 32);
    assert_eq!(size_of::<FlowLine4>(), 64);
    assert_eq!(size_of::<FlowLine6>(), 128);
    assert_eq!(size_of::<FlowShared>(), 64);
    assert_eq!(size_of::<Unit>(), 64);
    assert_eq!(size_of::<UnitCounters>(), 8 * UnitCounter::ALL.len());
    assert_eq!(size_of::<DropCounters>(), 2048);
    assert_eq!(size_of::<Nexthop>(), 32);
    assert_eq!(size_of::<NexthopKey>(), 24);
    assert_eq!(size_of::<Rule>(), 16);
    assert_eq!(size_of::<ZonePair>(), 8);
    assert_eq!(size_of::<ClassLine>(), 64);
    assert_eq!(size_of::<Context>(), 64);
    assert_eq!(size_of::<ServiceTerm>(), 16);
    assert_eq!(size_of::<LocalKey>(), 20);
    assert_eq!((size_of::<ProgramConfig>(), size_of::<TableLine>()), (80, TABLE_LINE_BYTES));
    assert_eq!((size_of::<Grant>(), size_of::<GatePort>()), (64, 32));
    assert_eq!(size_of::<Sweep>(), 128);
    assert_eq!(size_of::<LimitSet>(), 128);
}

#[test]
fn bytes_round_trip() {
    let key = FlowKey4 { be_saddr: 0x0100_000a, be_sport: 0x5000, proto: 6, ..Default::default() };
    assert_eq!(key.as_bytes()[..4], [10, 0, 0, 1]);
    assert_eq!(FlowKey4::read_from_bytes(key.as_bytes()), Ok(key));
    assert!(UnitCounters::default().as_bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn reasons_follow_the_c_enum() {
    assert_eq!(Reason::ALL.len(), REASON_COUNT as usize);
    assert_eq!(Stage::ALL.len(), STAGE_COUNT as usize);
    assert_eq!(Reason::NoGeneration as u32, REASON_NO_GENERATION);
    assert_eq!(Reason::Land as u32, REASON_LAND);
    assert_eq!(Reason::TcpNotSyn as u32, REASON_TCP_NOT_SYN);
    assert_eq!(Reason::PolicyDefault as u32, REASON_POLICY_DEFAULT);
    assert_eq!(Reason::EgressRewrite as u32, REASON_EGRESS_REWRITE);
    assert_eq!(Stage::Route as u32, STAGE_ROUTE);
    assert_eq!(Stage::Egress as u32, STAGE_EGRESS);
    for (index, reason) in Reason::BY_NUMBER.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
}

/// Packets meet reasons stage by stage, whichever list they stand in; each has a number of its own.
#[test]
fn reasons_are_met_stage_by_stage() {
    assert!(Reason::ALL.is_sorted_by_key(|reason| reason.stage()));
    let mut numbers = Reason::ALL;
    numbers.sort();
    assert_eq!(numbers, Reason::BY_NUMBER);
}

/// State that gives out numbers cannot be carried into another layout: a version in which one of these differs refuses
/// the state of every version before it, and so ends all sessions at an upgrade.
#[test]
fn what_gives_out_numbers_keeps_its_layout() {
    let sizes = [
        ("spares", size_of::<SpareSessions>(), 8),
        ("buckets", size_of::<FlowBucket>(), 64),
        ("stash4", size_of::<FlowKey4>(), 16),
        ("stash6", size_of::<FlowKey6>(), 40),
        ("nexthop_index", size_of::<NexthopKey>(), 24),
        ("watermarks", size_of::<Watermarks>(), 24),
        ("unanswered_sessions", size_of::<Unanswered>(), 128),
        ("session_limits", size_of::<LimitSet>(), 128),
        ("nat_binding_index", size_of::<NatBindingKey>(), 24),
    ];
    let others: Vec<_> = sizes.iter().filter(|(_, size, kept)| size != kept).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// What outlives a build carries names: no two may be alike.
#[test]
fn names_are_distinct() {
    let counters = UnitCounter::ALL.map(|counter| counter.name);
    let mut names: Vec<_> = Reason::ALL.into_iter().map(Reason::name).chain(counters).collect();
    names.sort_unstable();
    assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
}

#[test]
fn counters_are_the_fields_in_order() {
    let counters = UnitCounters { received: 1, sent: 2, events_lost: 3, ..Default::default() };
    let named = UnitCounter::ALL.into_iter().zip(counters.values());
    let set: Vec<_> = named.filter(|(_, value)| *value > 0).map(|(c, value)| (c.name, value)).collect();
    assert_eq!(set, [("received", 1), ("sent", 2), ("events_lost", 3)]);
    assert_eq!(UnitCounter::ALL[0].metric, "sluice_received_packets_total");
}

#[test]
fn stages_have_names_and_owners() {
    assert_eq!(Reason::TcpNotSyn.name(), "tcp_not_syn");
    assert_eq!(Reason::TcpNotSyn.stage(), Stage::Session);
    assert_eq!(
        Reason::FragmentNoFirst.help(),
        "fragment whose first was not seen, or is over 30 seconds old"
    );
    assert_eq!(Stage::Session.hook(), Hook::Ingress);
    assert_eq!(Stage::Egress.hook(), Hook::Egress);
    assert_eq!(Stage::Exit.reasons().collect::<Vec<_>>(), [Reason::RewriteFailed]);
    assert_eq!(Stage::Screen.reasons().map(screen_bit).fold(0, |all, bit| all ^ bit).count_ones(), 21);
    assert_eq!(Stage::ALL.into_iter().flat_map(Stage::reasons).count(), Reason::ALL.len());
}

#[test]
fn functions_equal_the_c_macros() {
    assert_eq!(program_slot(1, 2, Program::Admit), C_PROGRAM_SLOT_1_2_ADMIT);
    assert_eq!(PROGRAM_SLOTS as u32, C_PROGRAM_SLOTS);
    assert_eq!(active_slot(0xabcd_0001), C_ACTIVE_SLOT);
    assert_eq!(u32::from(active_stamp(0xabcd_0201)), C_ACTIVE_STAMP);
    assert_eq!(u32::from(active_routes(0xabcd_0201)), C_ACTIVE_ROUTES);
    assert_eq!(u32::from(active_epoch(0xabcd_0201)), C_ACTIVE_EPOCH);
    assert_eq!(Stage::Route.bit(), C_STAGE_BIT_ROUTE);
    assert_eq!(screen_bit(Reason::Winnuke), C_SCREEN_BIT_WINNUKE);
    let qinq = (VLAN_SERVICE | 100) | VLAN_TWO | 7 << VLAN_INNER_SHIFT;
    assert_eq!(unit_slot(3, qinq, 7, 20), C_UNIT_SLOT_3_QINQ as usize);
    assert_eq!(program_slot(1, 3, Program::Egress) as usize, PROGRAM_SLOTS - 1);
}

#[test]
fn commits_raise_the_epoch_and_routes_their_generation() {
    for word in [0, 1, 0x0001_0000, 0xffff_fffe, 0x8000_ffff, 0x7fff_fffe, 0x0000_fffe] {
        let (committed, moved) = (active_after_commit(word, 1), active_after_routes(word));
        assert_eq!((active_slot(committed), active_routes(committed)), (1, active_routes(word)));
        assert_eq!(active_epoch(committed), (active_epoch(word) + 1) & 0x7fff);
        assert_eq!((active_slot(moved), active_epoch(moved)), (active_slot(word), active_epoch(word)));
        assert_eq!(active_routes(moved), (active_routes(word) + 1) & 0x7fff);
        for next in [committed, moved] {
            assert_eq!(
                active_stamp(next),
                active_stamp(word).wrapping_add(1),
                "either is seen by every line"
            );
        }
    }
}

/// Values computed from the formula in unit.h by other means (Python, 32-bit masks).
#[test]
fn unit_slots_are_the_documented_hash() {
    assert_eq!(unit_slot(0, 0, 1, 20), 0);
    assert_eq!(unit_slot(1, 0, 1, 20), 0x9e3);
    assert_eq!(unit_slot(0, 1, 1, 20), 0x85e);
    assert_eq!(unit_slot(3, 100, 7, 20), 692);
    assert_eq!(unit_slot(u32::MAX, u32::from(u16::MAX), 0xdead_beef, 20), 695);
}

#[test]
fn tables_over_a_bound_are_refused() {
    assert_eq!(Tables::default().check(), Ok(()));
    let tables = Tables { units: vec![(UNIT_TABLE_SLOTS, Unit::default())], ..Tables::default() };
    assert_eq!(tables.check().unwrap_err().table, "units");
    let tables = Tables { rules: vec![Rule::default(); MAX_RULES + 1], ..Tables::default() };
    assert_eq!(
        tables.check().unwrap_err().to_string(),
        "table rules needs 65537 entries, the data plane has 65536"
    );
}

#[test]
fn tables_follow_the_c_enum() {
    assert_eq!(Table::ALL.len(), TABLE_COUNT as usize);
    assert_eq!(Table::ZonePairs as u32, TABLE_ZONE_PAIRS);
    assert_eq!(Table::NatRanges as u32, TABLE_NAT_RANGES);
    assert_eq!((Table::Units.name(), Table::Units.most()), ("units", UNIT_TABLE_SLOTS));
}

#[test]
fn maps_have_classes() {
    assert_eq!(StateMap::Counters.class(), Class::Counted);
    let Class::Records { stamps } = StateMap::Lines6.class() else { panic!("lines are records") };
    assert_eq!(stamps, ["state.tag", "state.last_seen", "state.packets"]);
    assert_eq!(StateMap::SweepLimits.class(), Class::Records { stamps: &[] });
    assert!(StateMap::pinned().all(|map| ![StateMap::Programs, StateMap::Scratch].contains(&map)));
    assert_eq!((StateMap::Scratch.kind(), StateMap::Stash4.kind()), (Kind::Percpu, Kind::Hash));
}

#[test]
fn entries_lie_in_whole_lines() {
    assert_eq!((Table::Rules.lines(0), Table::Rules.lines(4), Table::Rules.lines(5)), (0, 1, 2));
    assert_eq!((Table::WhiteTerms.lines(3), Table::WhiteTerms.offset(1)), (6, 2 * TABLE_LINE_BYTES));
    assert_eq!((Table::NatSources.lines(2), Table::NatSources.offset(1)), (2, size_of::<NatSource>()));
    for table in Table::ALL {
        let end = table.offset(table.most() - 1) + table.entry_bytes();
        assert!(end <= table.lines(table.most()) * TABLE_LINE_BYTES, "{}", table.name());
    }
}

/// The parts of docs/ARCHITECTURE.md that show a list come from the list itself.
#[test]
fn the_documented_lists_are_the_lists() {
    let lists = [("stages", stage_table()), ("tables", generation_tables()), ("maps", state_maps())];
    for (name, wanted) in lists {
        check_page(name, &wanted);
    }
}

fn check_page(name: &str, wanted: &str) {
    let begin = format!("<!-- {name}:begin, written by UPDATE=1 cargo test -p sluice-abi -->\n");
    let end = format!("<!-- {name}:end -->");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(&begin).expect("the page has the begin mark");
    let (table, after) = rest.split_once(&end).expect("the page has the end mark");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
    } else {
        assert_eq!(table, wanted, "run UPDATE=1 cargo test -p sluice-abi");
    }
}

fn state_maps() -> String {
    let mut text = String::from("| map | kind | class | what it holds |\n|---|---|---|---|\n");
    for map in StateMap::ALL {
        let class = match map.class() {
            Class::Records { .. } => "records".to_owned(),
            Class::ReasonCache => "cache, by reason".to_owned(),
            class => format!("{class:?}").to_ascii_lowercase(),
        };
        let kind = match map.kind() {
            Kind::Percpu => "array a CPU".to_owned(),
            kind => format!("{kind:?}").to_ascii_lowercase(),
        };
        text += &format!("| `{}` | {kind} | {class} | {} |\n", map.name(), map.help());
    }
    text
}

fn generation_tables() -> String {
    let mut text = String::from(
        "| table | what it holds | bytes an entry | most entries | most KiB |\n|---|---|---|---|---|\n",
    );
    for table in Table::ALL {
        let (name, help, most) = (table.name(), table.help(), table.most());
        let kib = (table.lines(most) * TABLE_LINE_BYTES).div_ceil(1024);
        text += &format!("| `{name}` | {help} | {} | {most} | {kib} |\n", table.entry_bytes());
    }
    text
}

fn stage_table() -> String {
    let mut table =
        String::from("| phase | stage | what it does | drop reason | meaning |\n|---|---|---|---|---|\n");
    let mut last = None;
    for stage in Stage::ALL {
        let mut phase = if last == Some(stage.phase()) { "" } else { stage.phase().name() };
        let (mut name, mut help) = (format!("`{}`", stage.name()), stage.help());
        last = Some(stage.phase());
        for reason in stage.reasons() {
            table += &format!("| {phase} | {name} | {help} | `{}` | {} |\n", reason.name(), reason.help());
            (phase, name, help) = ("", String::new(), "");
        }
    }
    table
}

#[test]
fn what_a_grant_is_for_is_the_word_in_its_record() {
    let grant = Grant { service: 0x1234, family: 6, length: 128, ..Default::default() };
    let at = std::mem::offset_of!(Grant, service);
    let word = u32::from_le_bytes(grant.as_bytes()[at..at + 4].try_into().unwrap());
    assert_eq!(word, grant_what(0x1234, 6, 128));
}
