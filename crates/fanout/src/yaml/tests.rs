use super::*;
use sluice_language::fan_out::{Balance, Method, Mode, Target};

/// As systems of before were configured.
const PLAIN: &str = r#"
listeners:
  - name: "vector-af-xdp"
    interface: "ens5"
    mode: af_xdp
    bind: "172.31.25.200:514"
    downstream:
      - name: "vector-1"
        address: "10.42.0.21:5514"
      - name: "vector-2"
        address: "10.42.0.22:5514"
    settings:
      max_packet_size: 1500
log_level: "info"
"#;

fn refused(text: &str) -> String {
    load(text, "config.yaml").expect_err("must be refused").to_string()
}

#[test]
fn the_plain_form_is_taken_as_it_stands() {
    let loaded = load(PLAIN, "config.yaml").unwrap();
    let listener = &loaded.fan_out.listeners[0];
    assert_eq!((listener.mode, listener.max_packet_size), (Mode::AfXdp, 1500));
    assert_eq!(listener.interface.as_deref(), Some("ens5.0"));
    assert_eq!(listener.bind, "172.31.25.200:514".parse().unwrap());
    let targets: Vec<_> = listener.receivers.iter().map(|r| r.target.clone()).collect();
    let at = |text: &str| Target::Address(text.parse().unwrap());
    assert_eq!(targets, [at("10.42.0.21:5514"), at("10.42.0.22:5514")]);
    assert_eq!(loaded.log_level.as_deref(), Some("info"));
    assert_eq!(loaded.fan_out.metrics, Some("0.0.0.0:9090".parse().unwrap()));
}

#[test]
fn everything_that_can_be_said_is_understood() {
    let loaded = load(
        r#"
listeners:
  - name: all
    mode: tcp_forward
    bind: "[::]:514"
    downstream:
      - {name: a, address: "[2001:db8::1]:514", weight: 3}
      - {name: b, address: "logs.example.net:601"}
      - {name: c, service: _syslog._tcp.example.net}
    settings: {balance: source, framing: octet_counting, none_left: all, queue_bytes: 65536, workers: 2}
    health: {check: tcp, interval_ms: 100, timeout_ms: 50, rise: 1, fall: 3, slow_start_ms: 10, drain_ms: 20}
metrics: {bind: "127.0.0.1:9191"}
"#,
        "config.yaml",
    )
    .unwrap();
    let listener = &loaded.fan_out.listeners[0];
    assert_eq!((listener.balance, listener.workers), (Balance::Source, Some(2)));
    assert_eq!(listener.receivers[1].target, Target::Host("logs.example.net".into(), 601));
    assert_eq!(listener.receivers[2].target, Target::Service("_syslog._tcp.example.net".into()));
    assert_eq!(listener.health.as_ref().map(|health| (health.fall, health.drain_ms)), Some((3, 20)));
    assert_eq!(loaded.fan_out.metrics, Some("127.0.0.1:9191".parse().unwrap()));
}

#[test]
fn unknown_keys_and_wrong_types_are_refused_with_their_line() {
    let unknown = refused(&PLAIN.replace("max_packet_size", "max_paket_size"));
    assert!(unknown.starts_with("config.yaml:13:") && unknown.contains("max_paket_size"), "{unknown}");
    let kind = refused(&PLAIN.replace("1500", "large"));
    assert!(kind.starts_with("config.yaml:13:"), "{kind}");
    let missing = refused(&PLAIN.replace("    bind: \"172.31.25.200:514\"\n", ""));
    assert!(missing.starts_with("config.yaml:") && missing.contains("bind"), "{missing}");
    let level = refused(&PLAIN.replace("\"info\"", "loud"));
    assert!(level.starts_with("config.yaml:14:") && level.contains("loud"), "{level}");
}

#[test]
fn what_the_language_refuses_is_said_with_the_line_of_the_yaml() {
    let twice = refused(&PLAIN.replace("vector-2", "vector-1"));
    assert!(twice.starts_with("config.yaml:10:") && twice.contains("twice"), "{twice}");
    let itself = refused(&PLAIN.replace("10.42.0.22:5514", "172.31.25.200:514"));
    assert!(itself.starts_with("config.yaml:11:") && itself.contains("listener itself"), "{itself}");
    let twin = refused(&PLAIN.replace("10.42.0.22:5514", "10.42.0.21:5514"));
    assert!(twin.starts_with("config.yaml:11:") && twin.contains("vector-1"), "{twin}");
    let by_name = PLAIN.replace("10.42.0.21:5514", "a.example:1").replace("10.42.0.22:5514", "a.example:1");
    assert!(refused(&by_name).starts_with("config.yaml:11:"), "{}", refused(&by_name));
    let mode = refused(&PLAIN.replace("af_xdp\n", "fastest\n"));
    assert!(mode.starts_with("config.yaml:5:") && mode.contains("fastest"), "{mode}");
    let bind = refused(&PLAIN.replace("172.31.25.200:514", "172.31.25.200"));
    assert!(bind.starts_with("config.yaml:6:"), "{bind}");
    let number = refused(&PLAIN.replace("1500", "7"));
    assert!(number.starts_with("config.yaml:13:") && number.contains("64 to 65507"), "{number}");
    let address = refused(&PLAIN.replace("10.42.0.22:5514", "10.42.0.222.9:5514"));
    assert!(address.starts_with("config.yaml:11:"), "{address}");
}

#[test]
fn two_listeners_of_one_address_are_refused() {
    let second = r#"  - name: other
    interface: ens5
    mode: xdp
    bind: "172.31.25.200:514"
    downstream: [{name: a, address: "10.0.0.1:1"}]
"#;
    let text = PLAIN.replace("log_level", &format!("{second}log_level"));
    let error = refused(&text);
    assert!(error.starts_with("config.yaml:17:") && error.contains("vector-af-xdp"), "{error}");
    let again = refused(&text.replace("name: other", "name: vector-af-xdp"));
    assert!(again.starts_with("config.yaml:14:") && again.contains("twice"), "{again}");
}

#[test]
fn statements_compile_as_a_tree() {
    let loaded = load(PLAIN, "config.yaml").unwrap();
    assert!(loaded.statements.lines().all(|line| line.starts_with("set services fan-out ")));
}

#[test]
fn a_receiver_may_drain_and_be_asked_over_http() {
    let health = "health: {check: http, path: /ready, port: 8080}\n";
    let text = PLAIN.replace("\"10.42.0.22:5514\"\n", "\"10.42.0.22:5514\"\n        drain: true\n") + health;
    let listener = load(&text, "config.yaml").unwrap().fan_out.listeners.remove(0);
    assert_eq!(listener.receivers.iter().map(|r| r.drain).collect::<Vec<_>>(), [false, true]);
    let check = listener.health.unwrap();
    assert_eq!((check.method, check.path.as_str(), check.port), (Method::Http, "/ready", Some(8080)));
    assert!(refused(&text.replace("/ready", "ready")).contains("no path"));
}

/// What the manifest puts into the ConfigMap is a configuration.
#[test]
fn the_kubernetes_manifest_holds_a_configuration() {
    let manifest = include_str!("../../../../contrib/k8s/fanout.yaml");
    let (_, rest) = manifest.split_once("config.yaml: |\n").unwrap();
    let (block, _) = rest.split_once("\n---\n").unwrap();
    let text: String =
        block.lines().map(|line| line.strip_prefix("    ").unwrap().to_owned() + "\n").collect();
    let loaded = load(&text, "config.yaml").unwrap();
    assert!(matches!(loaded.fan_out.listeners[0].receivers[0].target, Target::Service(_)));
    assert_eq!(loaded.fan_out.metrics.unwrap().port(), 9090);
}

/// Lines of a panel are told apart by all that its samples differ by: receivers and queues of two listeners may have one
/// name, and two instances serve one dashboard.
#[test]
fn panels_of_the_dashboard_keep_listeners_apart() {
    let text = include_str!("../../../../contrib/grafana/fanout.json");
    let of = |key: &str| -> Vec<String> {
        let key = format!("\"{key}\": \"");
        let found = text.lines().filter_map(|line| line.trim().strip_prefix(&key));
        found.map(|rest| rest.trim_end_matches(',').trim_end_matches('"').to_owned()).collect()
    };
    let (queries, legends) = (of("expr"), of("legendFormat"));
    assert_eq!(queries.len(), legends.len());
    for (query, legend) in queries.iter().zip(legends) {
        for label in ["instance", "listener"] {
            assert!(legend.contains(&format!("{{{{{label}}}}}")), "{legend}");
            let by = query.split("by (").nth(1).and_then(|rest| rest.split(')').next());
            assert!(by.is_none_or(|by| by.split(", ").any(|own| own == label)), "{query}");
        }
    }
}

/// The example of the lab.
#[test]
fn the_example_is_a_configuration() {
    let loaded = load(include_str!("../../../../examples/fanout.yaml"), "fanout.yaml").unwrap();
    let weights = loaded.fan_out.listeners[1].receivers.iter().map(|receiver| receiver.weight);
    assert_eq!(weights.collect::<Vec<_>>(), [1, 2, 3]);
}
