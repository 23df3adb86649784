//! Results in a database: nothing lost on the way, nothing doubled, readable whatever happens to the writer.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Link, SECOND, START, run, store};
use rusqlite::Connection;
use sluice_monitor::results::{
    AnomalyQuery, Database, DatabaseError, Detail, FlowOrder, FlowQuery, Outputs, Reader, RunInfo, TextFile,
    Window, export,
};
use sluice_monitor::summary::{Counts, Interval, Sink, Summary, Update};

const ALL: Window = Window { from_ns: 0, to_ns: u64::MAX, points: 5000 };

/// Keeps everything.
#[derive(Default)]
struct Memory(Vec<Update>);

impl Sink for Memory {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.0.push(update);
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Costs nothing.
struct Nothing;

impl Sink for Nothing {
    fn update(&mut self, _: Update) -> anyhow::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

fn link() -> Link {
    Link::new(40, 60_000, 1_000_000).troubled()
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a Counts>) -> Counts {
    let mut sum = Counts::default();
    counts.into_iter().for_each(|counts| sum.add(counts));
    sum
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let summary = store(&mut link(), &path, Detail::Full);
    let mut memory = Memory::default();
    run(&mut link(), &mut memory);
    assert!(
        summary.counts.lost > 100 && summary.counts.late > 100 && summary.rekeys > 3,
        "{:?} {}",
        summary.counts,
        summary.rekeys
    );

    assert_eq!(memory.0.iter().map(|update| update.gap_change).sum::<i64>(), summary.gaps as i64);
    let reader = Reader::open(&path).unwrap();
    let run = reader.run(None).unwrap();
    assert!(run.finished && run.partial.is_none() && run.source == "simulated.pcap");
    let overview = reader.overview(run.clone()).unwrap();
    assert_eq!(
        (overview.counts, overview.channels, overview.rekeys),
        (summary.counts, summary.channels, summary.rekeys)
    );
    assert_eq!(overview.summary.as_ref().unwrap().reorder, summary.reorder);

    let series = reader.series(&run, &ALL).unwrap();
    assert_eq!(series.points.len(), 60);
    assert_eq!((series.points[0].start_ns, series.step_ns), (START, SECOND));
    assert_eq!(sum(series.points.iter().map(|point| &point.counts)), summary.counts);
    let unknown: u64 = series.points.iter().map(|point| point.unknown).sum();
    assert_eq!(unknown, summary.unknown.iter().map(|count| count.frames).sum::<u64>());
    let coarse = reader.series(&run, &Window { points: 7, ..ALL }).unwrap();
    assert_eq!((coarse.points.len(), coarse.step_ns), (7, 9 * SECOND));
    assert_eq!(sum(coarse.points.iter().map(|point| &point.counts)), summary.counts);
    let part = Window { from_ns: START + 10 * SECOND, to_ns: START + 19 * SECOND, points: 100 };
    assert_eq!(reader.series(&run, &part).unwrap().points[..], series.points[10..20]);

    let expected: Vec<_> =
        memory.0.iter().flat_map(|update| &update.channels).map(|state| state.summary()).collect();
    let page = reader.flows(&run, &FlowQuery { limit: 1000, ..FlowQuery::default() }).unwrap();
    assert_eq!((page.items.len(), page.total), (expected.len(), expected.len() as u64));
    for flow in &page.items {
        let id = flow.channel.identity.id;
        let one = expected.iter().find(|channel| channel.identity.id == id).unwrap();
        assert_eq!(&flow.channel, one);
        assert_eq!(reader.flow(&run, id).unwrap().unwrap().channel, *one);
        let course = reader.channel_series(&run, id, &ALL).unwrap().unwrap();
        assert_eq!(
            sum(course.points.iter().map(|point| &point.counts)),
            one.figures.counts,
            "{}",
            one.identity.name
        );
        let gaps = reader.gaps(&run, id, 0, 100_000).unwrap().unwrap();
        let lost: u64 = gaps.items.iter().map(|gap| gap.lost).sum();
        assert!(
            lost as i64 <= one.figures.counts.lost,
            "{}: {lost} {:?}",
            one.identity.name,
            one.figures.counts
        );
    }
    let rekeys: Vec<_> = memory.0.iter().flat_map(|update| update.rekeys.clone()).collect();
    let mut stored = reader.rekeys(&run, 0, 100_000).unwrap().items;
    stored.sort_by_key(|rekey| rekeys.iter().position(|other| other == rekey));
    assert_eq!(stored, rekeys);
    assert!(reader.gaps(&run, 1, 0, 10).unwrap().is_none(), "there is no such channel");
}

#[test]
fn exported_tables_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (path, tables) = (folder.path().join("results.db"), folder.path().join("tables.db"));
    let summary = store(&mut link(), &path, Detail::Full);
    let reader = Reader::open(&path).unwrap();
    let run = reader.run(None).unwrap();
    let written = export(&reader, &run, &tables).unwrap();
    let database = Connection::open(&tables).unwrap();
    let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM channel") as u64, summary.channels);
    assert_eq!(written.channels, summary.channels);
    assert_eq!(one("SELECT count(*) FROM channel_interval") as u64, written.intervals);
    for (column, sum) in [("packets", summary.counts.packets), ("late", summary.counts.late)] {
        for table in ["channel", "channel_interval"] {
            assert_eq!(one(&format!("SELECT sum({column}) FROM {table}")) as u64, sum, "{column} of {table}");
        }
    }
    let again = export(&reader, &run, &tables).unwrap_err().to_string();
    assert!(again.contains("exists") && again.contains("--output"), "{again}");
}

#[test]
fn flows_are_sorted_filtered_and_paged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    store(&mut link(), &path, Detail::Full);
    let reader = Reader::open(&path).unwrap();
    let run = reader.run(None).unwrap();
    let ask = |query: FlowQuery| reader.flows(&run, &query).unwrap();
    let all = ask(FlowQuery { limit: 1000, order: FlowOrder::Lost, ..FlowQuery::default() });
    let lost: Vec<_> = all.items.iter().map(|flow| flow.channel.figures.counts.lost).collect();
    assert!(lost.is_sorted_by(|a, b| a >= b) && lost[0] > *lost.last().unwrap());
    for order in FlowOrder::ALL {
        let mut paged = Vec::new();
        for offset in (0..all.total).step_by(7) {
            let page = ask(FlowQuery { limit: 7, offset, order, ascending: true, ..FlowQuery::default() });
            paged.extend(page.items.into_iter().map(|flow| flow.channel.identity.id));
        }
        let whole = ask(FlowQuery { limit: 1000, order, ascending: true, ..FlowQuery::default() });
        let whole: Vec<_> = whole.items.iter().map(|flow| flow.channel.identity.id).collect();
        assert_eq!(paged, whole, "{order:?}");
    }
    let found = ask(FlowQuery { limit: 1000, search: Some("2001:DB8".to_owned()), ..FlowQuery::default() });
    assert!(
        !found.items.is_empty()
            && found.items.iter().all(|flow| flow.channel.identity.name.contains("2001:db8"))
    );
    let quoted = ask(FlowQuery { limit: 1, search: Some("' OR 1 --".to_owned()), ..FlowQuery::default() });
    assert_eq!(quoted.total, 0);
    let troubled = ask(FlowQuery { limit: 1000, troubled: true, ..FlowQuery::default() });
    let amiss = |counts: &Counts| {
        counts.late + counts.duplicates + counts.replays + counts.reused > 0 || counts.lost > 0
    };
    let expected = all.items.iter().filter(|flow| amiss(&flow.channel.figures.counts)).count();
    assert_eq!(troubled.total, expected as u64);
    let anomalies = reader.anomalies(&run, &AnomalyQuery { limit: 1000, ..AnomalyQuery::default() }).unwrap();
    assert!(anomalies.items.is_sorted_by(|a, b| a.severity >= b.severity) && anomalies.total > 3);
}

#[test]
fn fast_mode_keeps_the_sums_and_leaves_out_quiet_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (full, fast) = (folder.path().join("full.db"), folder.path().join("fast.db"));
    // Long enough for quiet parts to be put together several times.
    let link = || Link::new(40, 300_000, 1_000_000).troubled();
    let summary = store(&mut link(), &full, Detail::Full);
    store(&mut link(), &fast, Detail::Fast);
    let merges: i64 =
        Connection::open(&fast).unwrap().query_row("SELECT merges FROM run", [], |row| row.get(0)).unwrap();
    assert!(merges > 0, "the test must reach it");
    let kept = |path: &Path| {
        let sql = "SELECT sum(channels) FROM part WHERE kind = 2";
        let rows: i64 = Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap();
        let reader = Reader::open(path).unwrap();
        let run = reader.run(None).unwrap();
        let flows = reader.flows(&run, &FlowQuery { limit: 1000, ..FlowQuery::default() }).unwrap().items;
        let courses = flows.iter().map(|flow| reader.channel_series(&run, flow.channel.identity.id, &ALL));
        let courses: Vec<_> = courses.flat_map(|course| course.unwrap().unwrap().points).collect();
        let lost = sum(courses.iter().map(|point| &point.counts)).lost;
        (rows, lost, flows.into_iter().map(|flow| flow.channel).collect::<Vec<_>>())
    };
    let (full, fast) = (kept(&full), kept(&fast));
    assert!(fast.0 * 2 < full.0, "{} {}", fast.0, full.0);
    assert_eq!((fast.1, fast.2), (full.1, full.2.clone()));
    assert_eq!(sum(full.2.iter().map(|flow| &flow.figures.counts)).packets, summary.counts.packets);
}

#[test]
fn two_runs_share_a_database_and_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let first = store(&mut link(), &path, Detail::Full);
    let second = store(&mut Link::new(10, 5000, 1_000_000), &path, Detail::Full);
    let reader = Reader::open(&path).unwrap();
    let runs = reader.runs().unwrap();
    assert_eq!(runs.iter().map(|run| run.number).collect::<Vec<_>>(), [2, 1]);
    for (number, summary) in [(1, &first), (2, &second)] {
        let run = reader.run(Some(number)).unwrap();
        assert_eq!(reader.overview(run.clone()).unwrap().counts, summary.counts);
        let flows = reader.flows(&run, &FlowQuery { limit: 1000, ..FlowQuery::default() }).unwrap();
        assert_eq!(flows.total, summary.channels);
        assert_eq!(sum(flows.items.iter().map(|flow| &flow.channel.figures.counts)), summary.counts);
    }
    assert!(matches!(reader.run(Some(3)), Err(DatabaseError::NoRun { number: Some(3), .. })));
}

#[test]
fn channels_that_come_back_after_eviction_are_one_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let info = of_test();
    let options = sluice_monitor::analysis::Options { max_channels: 16, ..Default::default() };
    let mut link = Link::new(40, 20_000, 1_000_000);
    let mut database = Database::create(&path, &info).unwrap();
    let control = sluice_monitor::analysis::Control::default();
    let summary =
        sluice_monitor::analysis::analyze_with(common::observe, &mut link, &options, &mut database, &control)
            .unwrap();
    assert!(summary.evicted > 100, "{summary:?}");
    let reader = Reader::open(&path).unwrap();
    let run = reader.run(None).unwrap();
    let flows = reader.flows(&run, &FlowQuery { limit: 1000, ..FlowQuery::default() }).unwrap();
    assert_eq!(flows.total, 40);
    assert!(flows.items.iter().all(|flow| flow.lives > 1));
    assert_eq!(
        sum(flows.items.iter().map(|flow| &flow.channel.figures.counts)).packets,
        summary.counts.packets
    );
}

#[test]
fn files_that_are_not_ours_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let info = of_test();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "a file of somebody, long enough to be looked at by a reader of headers").unwrap();
    for path in [&text, &folder.path().join("other.db")] {
        if path != &text {
            Connection::open(path).unwrap().execute_batch("CREATE TABLE somebodys (x)").unwrap();
        }
        let before = std::fs::read(path).unwrap();
        let error = Database::create(path, &info).err().unwrap();
        assert!(error.to_string().contains("is not a database of sluice monitor"), "{error}");
        assert!(Reader::open(path).is_err());
        assert!(std::fs::read(path).unwrap() == before, "{} was changed", path.display());
    }
    let error = Reader::open(&folder.path().join("none.db")).err().unwrap().to_string();
    assert!(error.contains("does not exist") && error.contains("--db"), "{error}");
}

fn of_test() -> RunInfo {
    RunInfo { source: "test".to_owned(), interval_ns: SECOND, detail: Detail::Full }
}

/// Results that go to a database, and who holds it since.
fn locked(path: &Path) -> (Outputs, Connection) {
    let mut outputs = Outputs::default();
    outputs.push(Box::new(Database::create(path, &of_test()).unwrap()));
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    (outputs, other)
}

#[test]
fn a_locked_database_is_named_and_the_analysis_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let (mut outputs, other) = locked(&path);
    let summary = run(&mut link(), &mut outputs);
    assert_eq!(summary.frames, 60_000, "the analysis went on");
    let [error] = &outputs.errors[..] else { panic!("{:?}", outputs.errors) };
    assert!(error.to_string().contains("locked by another program"), "{error}");
    // What cannot be opened is said at once.
    let error = Database::create(&path, &of_test()).err().unwrap();
    assert!(matches!(error, DatabaseError::Locked { .. }), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    let run = Reader::open(&path).unwrap().run(None).unwrap();
    assert!(!run.finished);
}

/// Intervals at a pace that a writer can follow.
fn feed(sink: &mut dyn Sink, from: u64, count: u64) {
    for index in from..from + count {
        let counts = Counts { packets: 10, ..Counts::default() };
        let (start_ns, length_ns) = (START + index * SECOND, SECOND);
        let interval = Interval { index, start_ns, length_ns, counts, active: 1, ..Interval::default() };
        sink.update(Update { interval, ..Update::default() }).unwrap();
    }
}

/// Somebody copies the database for longer than anybody waits.
#[test]
fn results_wait_for_a_database_that_is_locked_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let (mut outputs, other) = locked(&path);
    for round in 0..26 {
        feed(&mut outputs, round, 1);
        std::thread::sleep(Duration::from_millis(500));
    }
    other.execute_batch("ROLLBACK").unwrap();
    feed(&mut outputs, 26, 1);
    let counts = Counts { packets: 270, ..Counts::default() };
    outputs.finish(&Summary { counts, ..Summary::default() }).unwrap();
    assert!(outputs.errors.is_empty(), "{:?}", outputs.errors);
    let reader = Reader::open(&path).unwrap();
    let run = reader.run(None).unwrap();
    assert!(run.finished && run.partial.is_none(), "{run:?}");
    let series = reader.series(&run, &ALL).unwrap();
    assert_eq!(
        (series.points.len(), sum(series.points.iter().map(|point| &point.counts)).packets),
        (27, 270)
    );
}

/// The folder of the metrics is away for a moment.
#[test]
fn a_file_that_could_not_be_written_once_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (place, away) = (folder.path().join("metrics"), folder.path().join("away"));
    std::fs::create_dir(&place).unwrap();
    let path = place.join("link.prom");
    let mut outputs = Outputs::default();
    outputs.push(Box::new(TextFile::create(&path).unwrap()));
    std::fs::rename(&place, &away).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    feed(&mut outputs, 0, 2);
    std::fs::rename(&away, &place).unwrap();
    feed(&mut outputs, 2, 1);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("sluice_monitor_packets_total 30"), "{text}");
    outputs.finish(&Summary::default()).unwrap();
    assert!(outputs.errors.is_empty(), "{:?}", outputs.errors);
}

const READ: &str = "SLUICE_TEST_READ";

/// Not a test of its own: what the next one runs as somebody else.
#[test]
#[ignore = "started by the test that gives it its user"]
fn child_that_reads_as_nobody() {
    let Some(path) = std::env::var_os(READ) else { return };
    let reader = Reader::open(Path::new(&path)).unwrap();
    assert!(reader.run(None).unwrap().finished);
}

/// Whoever gets a finished database to read may not write its folder.
#[test]
fn who_may_not_write_the_folder_can_read_a_finished_database() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("results.db");
    let held = folder.path().join("held.db");
    store(&mut link(), &path, Detail::Full);
    // The log's mode cannot be changed while somebody reads.
    drop(Database::create(
        &held,
        &RunInfo { source: String::new(), interval_ns: SECOND, detail: Detail::Full },
    ));
    let reader = Reader::open(&held).unwrap();
    store(&mut link(), &held, Detail::Full);
    drop(reader);
    let log = |end: &str| folder.path().join(format!("results.db-{end}")).exists();
    assert!(!log("wal") && !log("shm"), "nothing is left beside it");
    for path in [&path, &held] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "results::child_that_reads_as_nobody"])
            .env(READ, path)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert!(child.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&child.stdout));
    }
}

const CHILD: &str = "SLUICE_TEST_DATABASE";

/// Not a test of its own: what the next one kills.
#[test]
#[ignore = "started by the test that kills it"]
fn child_that_writes_for_ever() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    store(&mut Link::new(500, u64::MAX / 2, 20_000), Path::new(&path), Detail::Full);
}

#[test]
fn a_killed_writer_leaves_whole_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    for number in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "results::child_that_writes_for_ever"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let written =
            || Reader::open(&path).and_then(|reader| Ok(reader.run(Some(number))?.version)).unwrap_or(0);
        while written() < 60 * number {
            assert!(started.elapsed() < Duration::from_secs(60), "the child does not write");
            std::thread::sleep(Duration::from_millis(7));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let database = Connection::open(&path).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let reader = Reader::open(&path).unwrap();
    for number in 1..=3 {
        let run = reader.run(Some(number)).unwrap();
        assert!(!run.finished);
        let series = reader.series(&run, &ALL).unwrap();
        assert!(series.points.len() > 20);
        assert!(series.points.iter().all(|point| point.counts.packets == 50_000), "a part of an interval");
        let flows = reader.flows(&run, &FlowQuery { limit: 1000, ..FlowQuery::default() }).unwrap();
        let total = sum(flows.items.iter().map(|flow| &flow.channel.figures.counts));
        assert_eq!(total.packets, 50_000 * series.points.len() as u64);
        assert_eq!(reader.overview(run).unwrap().counts, total);
    }
}

/// `cargo test --release -p sluice-monitor --test all results:: -- --ignored --nocapture what_the_database_costs`
///
/// The budget is a tenth of a run at 12 million packets a second. This link needs no reading and no parsing and so runs
/// faster than that, which is why the seconds that the database adds are judged, not their share of this run.
#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
fn what_the_database_costs() {
    const PACKETS: u64 = 24_000_000;
    const BUDGET_S: f64 = 0.10 * PACKETS as f64 / 12e6;
    let folder = tempfile::tempdir().unwrap();
    let mut costs = Vec::new();
    for spacing_ns in [80, 1000] {
        let link = || Link::new(10_000, PACKETS, spacing_ns);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..5 {
            let start = Instant::now();
            run(&mut link(), &mut Nothing);
            without.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            store(&mut link(), &folder.path().join(format!("{spacing_ns}-{round}.db")), Detail::Full);
            with.push(start.elapsed().as_secs_f64());
        }
        without.sort_by(f64::total_cmp);
        with.sort_by(f64::total_cmp);
        let cost = with[2] - without[2];
        println!(
            "captured at {:.1} Mpps: without {without:.2?} s, with {with:.2?} s: {cost:.3} s more, {:+.1} % of this run, \
             {:+.1} % of one at 12 Mpps",
            1e3 / spacing_ns as f64,
            cost / without[2] * 100.0,
            cost / BUDGET_S * 10.0
        );
        costs.push(cost);
    }
    assert!(costs[0] <= BUDGET_S, "the database adds {:.3} s, the budget is {BUDGET_S:.3} s", costs[0]);
}
