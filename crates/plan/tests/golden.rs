//! Walks `tests/golden-plan`: every NAME.conf is compiled against the devices its comments describe, and the printed plan,
//! or the error of a `fail-*`, compared with NAME.plan. `UPDATE=1` writes the files anew: read the difference.
//!
//! `# device NAME [driver=D] [mtu=M] [min=M] [max=M]` describes a device; ifindexes and MACs follow the order. Devices
//! of tagged units exist already, as they do when the daemon makes its final plan.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_plan::{Environment, Ids, NetDev, compile};

/// Fewer files than this means that the walk did not find them.
const FEWEST: usize = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn environment(text: &str) -> Environment {
    let mut environment = Environment::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("# device ")) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a device has a name");
        let mut netdev = device(environment.netdevs.len() as u32 + 2);
        for word in words {
            let (key, value) = word.split_once('=').expect("key=value");
            let number = || value.parse().expect("a number");
            match key {
                "driver" => netdev.driver = value.to_owned(),
                "mtu" => netdev.mtu = number(),
                "min" => netdev.mtu_range.get_or_insert((68, 65535)).0 = number(),
                "max" => netdev.mtu_range.get_or_insert((68, 65535)).1 = number(),
                other => panic!("unknown property {other} of device {name}"),
            }
        }
        environment.netdevs.insert(name.to_owned(), netdev);
    }
    environment
}

fn device(ifindex: u32) -> NetDev {
    NetDev {
        ifindex,
        mac: [2, 0, 0, 0, 0, ifindex as u8],
        mtu: 1500,
        driver: "veth".to_owned(),
        mtu_range: None,
        ..Default::default()
    }
}

fn add_tagged(environment: &mut Environment, config: &sluice_language::Config) {
    for interface in &config.interfaces {
        for unit in interface.units.iter().filter(|unit| sluice_plan::is_pair(interface, unit)) {
            let name = sluice_plan::device_of(interface, unit);
            let far = sluice_plan::far_end(interface, &name);
            for name in [far, name] {
                let netdev = device(100 + environment.netdevs.len() as u32);
                environment.netdevs.insert(name, netdev);
            }
        }
    }
}

fn plan(path: &Path, devices: Option<&str>) -> Result<String, String> {
    let text = fs::read_to_string(path).unwrap();
    let file = path.file_name().unwrap().to_string_lossy();
    let tree = sluice_language::parse(&text, &file).map_err(|e| e.to_string())?;
    let config = sluice_language::compile(&tree).map_err(|e| e.to_string())?;
    let mut environment = environment(devices.unwrap_or(&text));
    add_tagged(&mut environment, &config);
    compile(&config, &environment, &mut Ids::default(), 1).map(|p| p.to_string()).map_err(|e| e.to_string())
}

fn compare(name: &str, path: &Path, devices: Option<&str>) -> Result<(), String> {
    let result = plan(path, devices);
    if result.is_err() != name.starts_with("fail-") {
        return Err(format!("{name}: {result:?}"));
    }
    let text = result.unwrap_or_else(|error| format!("error: {error}\n"));
    let golden = root().join("tests/golden-plan").join(format!("{name}.plan"));
    if fs::read_to_string(&golden).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        fs::write(&golden, &text).unwrap();
        return Ok(());
    }
    Err(format!("{} differs from:\n{text}", golden.display()))
}

#[test]
fn plans_are_as_they_were() {
    let mut problems = vec![];
    let mut count = 0;
    for entry in fs::read_dir(root().join("tests/golden-plan")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "conf") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            problems.extend(compare(&name, &path, None).err());
            count += 1;
        }
    }
    let devices = "# device trust0\n# device untrust0\n# device dmz0\n# device tunnel0\n# device wan0\n";
    let example = root().join("examples/branch.conf");
    problems.extend(compare("example-branch", &example, Some(devices)).err());
    assert!(count >= FEWEST, "only {count} configurations found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
