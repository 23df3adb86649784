//! The search against the published MLRsearch (PyPI, 1.2.1): the same simulated devices, the same answers.

use std::path::Path;
use std::process::{Command, Output};

use serde::Deserialize;
use sluice_bench::method::mlr::{Config, Database, Found, Goal, Trial, search};

/// What `mlr_oracle.py` prints.
#[derive(Debug, Deserialize, PartialEq)]
struct Recording {
    min_pps: u64,
    max_pps: u64,
    devices: Vec<Device>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Device {
    device: String,
    goals: Vec<Oracle>,
    /// load, seconds, sent, received
    trials: Vec<(f64, f64, u64, u64)>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Oracle {
    loss_ratio: f64,
    lower: Option<f64>,
    upper: Option<f64>,
    throughput: Option<f64>,
}

const WIDTH: f64 = 0.005;

fn recording() -> Recording {
    serde_json::from_str(include_str!("mlr_oracle.json")).unwrap()
}

fn goals() -> Vec<Goal> {
    let no_drop = Goal::no_drop(1.0, 11.0, WIDTH);
    vec![no_drop, no_drop.partial_drop(0.005)]
}

/// The devices of `mlr_oracle.py`.
fn loss(device: &str, load: f64, trial: usize) -> f64 {
    let capacity = |limit: f64| (1.0 - limit / load).max(0.0);
    match device {
        "hard" => capacity(1_234_567.0),
        "gradual" => ((load - 700_000.0) / 700_000.0 * 0.02).clamp(0.0, 1.0),
        "hiccups" if load > 3e6 => capacity(3e6),
        "hiccups" => f64::from(u8::from(trial.is_multiple_of(4))) * 1e-5,
        "inversion" if load > 4e5 && load < 6e5 => 0.001,
        "inversion" => capacity(2e6),
        "beyond" => 0.0,
        _ => panic!("{device} has no twin here"),
    }
}

fn own_search(recording: &Recording, device: &str) -> Found {
    let config =
        Config { min_pps: recording.min_pps, max_pps: recording.max_pps, goals: goals(), most_s: 10_000.0 };
    let mut trials = 0;
    search(&config, |load, seconds| {
        let sent = (seconds * load as f64) as u64;
        let lost = (sent as f64 * loss(device, load as f64, trials) + 0.999_999) as u64;
        trials += 1;
        Ok(Trial { load_pps: load, seconds, sent, received: sent - lost })
    })
    .unwrap()
}

fn close(ours: Option<f64>, theirs: Option<f64>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours / theirs - 1.0).abs() <= 2.0 * WIDTH,
        (ours, theirs) => ours.is_none() && theirs.is_none(),
    }
}

#[test]
fn the_search_finds_what_the_oracle_finds() {
    let recording = recording();
    assert_eq!(recording.devices.len(), 5);
    for device in &recording.devices {
        let found = own_search(&recording, &device.device);
        for (ours, theirs) in found.goals.iter().zip(&device.goals) {
            let name = format!("{} at {}", device.device, theirs.loss_ratio);
            assert_eq!(ours.goal.loss_ratio, theirs.loss_ratio);
            let load = |bound: Option<u64>| bound.map(|load| load as f64);
            assert!(close(load(ours.lower), theirs.lower), "{name}: {ours:?}, {theirs:?}");
            assert!(close(load(ours.upper), theirs.upper), "{name}: {ours:?}, {theirs:?}");
            assert!(close(ours.throughput_pps, theirs.throughput), "{name}: {ours:?}, {theirs:?}");
        }
        let (ours, theirs) = (found.trials.len(), device.trials.len());
        assert!(ours <= 2 * theirs, "{}: {ours} trials, the oracle needs {theirs}", device.device);
        println!("{}: {ours} trials, the oracle {theirs}", device.device);
    }
}

#[test]
fn the_oracles_own_trials_prove_the_same_here() {
    for device in recording().devices {
        let mut database = Database::default();
        for (load, seconds, sent, received) in &device.trials {
            let load_pps = load.round() as u64;
            database.add(Trial { load_pps, seconds: *seconds, sent: *sent, received: *received });
        }
        for (goal, theirs) in goals().iter().zip(&device.goals) {
            let target = goal.target(goal.coarse_phases);
            let bounds = database.bounds(&target);
            let whole = |load: Option<f64>| load.map(|load| load.round() as u64);
            assert_eq!(
                (bounds.lower, bounds.upper),
                (whole(theirs.lower), whole(theirs.upper)),
                "{device:?}"
            );
            let ours = bounds.lower.map(|load| database.conditional_throughput(load, &target)).unwrap();
            assert!((ours - theirs.throughput.unwrap()).abs() < 1.0, "{}: {ours}, {theirs:?}", device.device);
        }
    }
}

/// `make setup` for tests installs the package into target/venv.
#[test]
fn the_recording_is_what_the_oracle_says_today() {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("venv");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlr_oracle.py");
    let output = Command::new(venv.join("bin/python3")).arg(&script).output();
    let output = output.ok().filter(|output| !is_missing(output));
    if output.is_none() && std::env::var_os("SLUICE_OFFLINE").is_some() {
        eprintln!("not tried: there is no MLRsearch in {}", venv.display());
        return;
    }
    let output =
        output.expect("no MLRsearch in target/venv: SLUICE_TARGET=test scripts/setup.sh installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let today: Recording = serde_json::from_slice(&output.stdout).unwrap();
    assert!(today == recording(), "record anew: target/venv/bin/python3 mlr_oracle.py > mlr_oracle.json");
}

fn is_missing(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("No module named 'MLRsearch'")
}
