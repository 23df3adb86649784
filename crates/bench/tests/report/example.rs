//! An invented run with every kind of chart, awkward names, failures and gaps: what the report must be able to show.

use sluice_bench::method::chart::*;
use sluice_bench::method::document::{RunDocument, SCHEMA};
use sluice_bench::method::environment::Environment;
use sluice_bench::method::result::*;

fn estimate(value: f64) -> Estimate {
    Estimate { value, low: value * 0.96, high: value * 1.05, n: 9 }
}

/// Nine rounds around a value, unsteady by so much.
fn rounds(value: f64, spread: f64) -> Vec<f64> {
    (0..9).map(|round| value * (1.0 + spread * f64::from((round * 5 % 9) - 4) / 4.0)).collect()
}

pub fn document() -> RunDocument {
    RunDocument {
        schema: SCHEMA,
        began: "2026-01-31T23:59:59Z".to_owned(),
        seconds: 437.0,
        command: "sluice bench all --profile full --html report.html".to_owned(),
        profile: Profile::Full,
        environment: Environment::begin().end(),
        suites: vec![prog(), wire(), ndr(), latency(), hitless(), profile()],
        budgets: vec![],
    }
}

fn suite(name: &str, figures: Vec<Figure>, charts: Vec<Chart>) -> SuiteResult {
    let mut result = SuiteResult::new(name);
    result.checks.push(Check::new("no tracing", true, "bpf_stats off, no tracer, no trace events"));
    result.figures = figures;
    result.charts = charts;
    result.figures.iter_mut().for_each(|figure| figure.confirmed = true);
    result
}

fn figure(name: &str, unit: &str, better: Better, value: f64, spread: f64) -> Figure {
    Figure::new(name, unit, better, rounds(value, spread)).check(Check::new(
        "distinct packets >= sessions",
        true,
        "20000 distinct packets, 20000 sessions",
    ))
}

fn prog() -> SuiteResult {
    let sessions = [1.0, 100.0, 10_000.0, 100_000.0, 1_000_000.0];
    let curve = |name: &str, role, values: [f64; 5]| Series {
        name: name.to_owned(),
        role,
        points: sessions.iter().zip(values).map(|(x, y)| Point::of(*x, &estimate(y))).collect(),
    };
    let line = LineChart {
        title: "Nanoseconds a packet over sessions".to_owned(),
        x: Axis::log("sessions in the tables"),
        y: Axis::log("ns a packet"),
        series: vec![
            curve("xdp v4 udp", Role::Subject, [38.0, 40.0, 66.0, 240.0, 353.0]),
            curve("floor xdp v4 udp", Role::Peer, [30.0, 31.0, 47.0, 280.0, 423.0]),
            curve("tc v4 udp", Role::Subject, [40.0, 42.0, 65.0, 230.0, 330.0]),
            curve("floor tc v4 udp", Role::Peer, [29.0, 30.0, 38.0, 270.0, 406.0]),
        ],
        note: "One session is the hot case.".to_owned(),
    };
    let row =
        |name: &str, value: f64, same| ForestRow { name: name.to_owned(), estimate: estimate(value), same };
    let forest = Forest {
        title: "Sluice beside its floor".to_owned(),
        ratio: "sluice / floor".to_owned(),
        better: Better::Lower,
        rows: vec![
            row("xdp v4 udp established 1", 1.3, false),
            row("A/A xdp v4 udp established 1", 1.0, true),
            row("xdp v4 udp established 1000000", 0.84, false),
            row("A/A xdp v4 udp established 1000000", 0.99, true),
            row("xdp v6 udp new 10000 with a name that is far too long for its column", 2.84, false),
            row("A/A of nothing in particular", 1.01, true),
        ],
        note: String::new(),
    };
    let step =
        |name: &str, value: f64, total| Step { name: name.to_owned(), estimate: estimate(value), total };
    let waterfall = Waterfall {
        title: "Where the nanoseconds of a first packet go".to_owned(),
        unit: "ns a packet".to_owned(),
        steps: vec![
            step("root and fast path", 42.0, false),
            step("entry", 18.0, false),
            step("route", 51.0, false),
            step("policy", 33.0, false),
            step("create", 210.0, false),
            step("overlap of stages", -24.0, false),
            step("measured whole", 330.0, true),
        ],
        note: "A stage is the difference of two programs with and without it.".to_owned(),
    };
    let fast = figure("xdp v4 udp established 1", "ns/packet", Better::Lower, 38.2, 0.01)
        .against("parse + one HASH lookup + drop", &rounds(29.0, 0.01))
        .same(&rounds(29.0, 0.01), &rounds(29.1, 0.01))
        .headline();
    let unsteady = figure("xdp v4 udp new 10000", "ns/packet", Better::Lower, 745.0, 0.3).headline();
    suite(
        "prog",
        vec![fast, unsteady],
        vec![Chart::Line(line), Chart::Forest(forest), Chart::Waterfall(waterfall)],
    )
}

fn wire() -> SuiteResult {
    let sizes = [64.0, 128.0, 256.0, 512.0, 1024.0, 1280.0, 1518.0];
    let curve = |name: &str, role, values: [f64; 7]| Series {
        name: name.to_owned(),
        role,
        points: sizes.iter().zip(values).map(|(x, y)| Point::of(*x, &estimate(y))).collect(),
    };
    let line = LineChart {
        title: "Rate over frame size".to_owned(),
        x: Axis::linear("frame size, bytes"),
        y: Axis::linear("Mpps"),
        series: vec![
            curve("Sluice", Role::Subject, [3.6, 3.6, 3.5, 3.4, 3.3, 3.2, 3.2]),
            curve("nftables", Role::Peer, [0.7, 0.7, 0.7, 0.7, 0.65, 0.65, 0.6]),
            curve("generator ceiling", Role::Limit, [12.4, 12.1, 11.0, 9.8, 8.8, 8.3, 8.0]),
            curve("10 Gb/s line rate", Role::Limit, [14.88, 8.44, 4.53, 2.35, 1.2, 0.96, 0.81]),
        ],
        note: "RFC 2544 9.1 sizes.".to_owned(),
    };
    let bar = |name: &str, role, value| Bar { name: name.to_owned(), role, estimate: estimate(value) };
    let bars = Bars {
        title: "64-byte frames through each forwarder".to_owned(),
        unit: "Mpps".to_owned(),
        bars: vec![
            bar("Sluice", Role::Subject, 3.56),
            bar("nftables stateful", Role::Peer, 0.68),
            bar("nftables masquerade", Role::Peer, 0.61),
            bar("Linux forwarding", Role::Peer, 1.0),
            bar("generator into nothing", Role::Limit, 12.1),
        ],
        note: String::new(),
    };
    let rate = figure("64 bytes", "Mpps", Better::Higher, 12.4, 0.01).headline();
    let lying = figure("IMIX", "Mpps", Better::Higher, 9.9, 0.01).headline().check(Check::new(
        "mix as intended",
        false,
        "64 98.0 % of 58.3 %, 594 1.0 % of 33.3 %, 1518 1.0 % of 8.3 %",
    ));
    let mut wire = suite("wire", vec![rate, lying], vec![Chart::Line(line), Chart::Bars(bars)]);
    wire.notes.push("dpdk-testpmd is not installed: scripts/setup-bench.sh installs it".to_owned());
    wire
}

fn ndr() -> SuiteResult {
    let trial = |x: f64, y: f64, label: &str| Point { x, y, label: label.to_owned(), ..Point::default() };
    let trials = [
        (0.2, 0.0),
        (0.4, 0.0),
        (0.5, 0.0),
        (0.55, 3e-6),
        (0.6, 2e-5),
        (0.7, 4e-3),
        (0.8, 0.09),
        (1.0, 0.31),
    ];
    let points = trials.iter().map(|(x, y)| trial(*x, *y, "1 s trial")).collect();
    let line = LineChart {
        title: "Loss over offered rate, every trial".to_owned(),
        x: Axis::linear("offered, Mpps"),
        y: Axis::log("loss ratio"),
        series: vec![
            Series { name: "AF_PACKET sink".to_owned(), role: Role::Trials, points },
            Series {
                name: "PLRsoak goal 1e-7".to_owned(),
                role: Role::Limit,
                points: vec![Point::new(0.2, 1e-7)],
            },
        ],
        note: "Trials without loss stand on the line of zero.".to_owned(),
    };
    let mut ndr = suite(
        "ndr",
        vec![figure("socket sink", "Mpps", Better::Higher, 0.52, 0.02).headline()],
        vec![Chart::Line(line)],
    );
    ndr.notes.push(
        "no-drop rate not measurable here: inline veth is a closed loop; its capacity is 271 ns a packet"
            .to_owned(),
    );
    ndr.tables.push(Table {
        title: "Confirmation, RFC 2544 26.1".to_owned(),
        header: ["path", "rate", "seconds", "sent", "lost"].map(str::to_owned).to_vec(),
        rows: vec![["socket sink", "0.520 Mpps", "60", "31200000", "0"].map(str::to_owned).to_vec()],
        note: "At the rate the search returned.".to_owned(),
    });
    ndr
}

fn latency() -> SuiteResult {
    let curve = |name: &str, role, scale: f64| PercentileSeries {
        name: name.to_owned(),
        role,
        points: [
            (0.0, 8.0),
            (50.0, 12.0),
            (90.0, 15.0),
            (99.0, 31.0),
            (99.9, 80.0),
            (99.99, 240.0),
            (100.0, 900.0),
        ]
        .map(|(p, v)| (p, v * scale))
        .to_vec(),
        count: 1_000_000,
    };
    let chart = Percentiles {
        title: "Latency at 100,000 packets a second".to_owned(),
        y: Axis::log("one-way, us"),
        series: vec![
            curve("Sluice", Role::Subject, 1.0),
            curve("nftables", Role::Peer, 1.4),
            curve("no gateway", Role::Peer, 0.5),
        ],
        note: "Corrected for coordinated omission.".to_owned(),
    };
    suite(
        "latency",
        vec![figure("p99", "us", Better::Lower, 31.0, 0.04).headline()],
        vec![Chart::Percentiles(chart)],
    )
}

fn hitless() -> SuiteResult {
    let rate: Vec<(f64, f64)> =
        (0..=100).map(|i| (f64::from(i) / 10.0, 100_000.0 - f64::from(i % 7) * 900.0)).collect();
    let lane = |name: &str, events: &[(f64, &str)], gaps: &[(f64, f64)]| TimeLane {
        name: name.to_owned(),
        control: events.is_empty(),
        events: events.iter().map(|(at, what)| (*at, (*what).to_owned())).collect(),
        gaps: gaps.iter().map(|(from, to)| (*from, *to, "no packet arrived".to_owned())).collect(),
        rate: rate.clone(),
    };
    let chart = Timeline {
        title: "What packets saw while the daemon was restarted".to_owned(),
        seconds: 10.0,
        lanes: vec![
            lane("restart", &[(2.0, "SIGTERM"), (2.4, "started"), (6.0, "SIGTERM")], &[]),
            lane("control", &[], &[(7.3, 7.31)]),
            lane("detach and attach", &[(4.0, "attach")], &[(4.0, 4.6)]),
        ],
        note: String::new(),
    };
    let mut hitless = suite(
        "hitless",
        vec![figure("restart, lost", "packets", Better::Lower, 0.0, 0.0)],
        vec![Chart::Timeline(chart)],
    );
    hitless.errors.push("rebuilt binary: no second binary was given".to_owned());
    hitless
}

fn profile() -> SuiteResult {
    let frame = |name: &str, samples, bpf, children| Frame { name: name.to_owned(), samples, bpf, children };
    let root = frame(
        "all",
        1000,
        false,
        vec![
            frame(
                "softirq",
                900,
                false,
                vec![frame(
                    "veth_poll",
                    880,
                    false,
                    vec![
                        frame(
                            "bpf_prog_sluice_fast",
                            500,
                            true,
                            vec![frame("htab_map_lookup", 210, false, vec![])],
                        ),
                        frame("xdp_do_redirect <native>", 300, false, vec![]),
                    ],
                )],
            ),
            frame("idle", 100, false, vec![]),
        ],
    );
    let chart = Flame { title: "CPU time by call".to_owned(), root, note: "Blue: BPF programs.".to_owned() };
    suite(
        "profile",
        vec![figure("sluice_fast", "% of CPU", Better::Lower, 50.0, 0.01)],
        vec![Chart::Flame(chart)],
    )
}
