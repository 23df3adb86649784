//! What the daemon answers is what its OpenAPI document says, judged by a validator that knows neither.

use crate::common;

use std::fs;
use std::process::Command;

use common::{Site, accepted, stdout};
use serde_json::Value;
use sluice_control::operations::system::METRICS;
use sluice_control::operations::{Method, OPERATIONS};

/// Something of everything that answers tell of.
const MUCH: &str = "\
set security policies from-zone left to-zone right policy out then log session-init
set security policies from-zone left to-zone right policy out then count
set security screen ids-option edge icmp large
set security zones security-zone left screen edge
set security nat proxy-arp interface right0.0 address 10.71.2.10/32
set security nat source pool p address 10.71.2.10/32
set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule r match source-address 10.71.1.0/24
set security nat source rule-set out rule r then source-nat pool p
set security nat source rule-set out rule r then source-nat pool persistent-nat permit any-remote-host
set services gate zone left
set services gate service ping destination-address 10.71.2.2
set services gate service ping protocol icmp
";

const PACKET: &str =
    "?from_zone=left&to_zone=right&source_ip=10.71.1.2&destination_ip=10.71.2.2&protocol=icmp";

/// Python's jsonschema, from the distribution: told the document and a directory of answers by operation, it prints how many
/// it has judged.
const JUDGE: &str = "
import json, os, sys, jsonschema
document = json.load(open(sys.argv[1]))
judged = 0
for methods in document['paths'].values():
    for operation in methods.values():
        answer = os.path.join(sys.argv[2], operation['operationId'])
        if os.path.exists(answer):
            schema = operation['responses']['200']['content']['application/json']['schema']
            schema = {'components': document['components'], 'allOf': [schema]}
            jsonschema.Draft202012Validator.check_schema(schema)
            jsonschema.Draft202012Validator(schema).validate(json.load(open(answer)))
            judged += 1
print(judged)
";

#[test]
fn answers_are_what_the_document_says() {
    let site = Site::new("api");
    let gateway = site.start(&site.write("a.conf", MUCH));
    let grant = ["gate", "grant", "--user", "u", "--source", "10.71.1.2", "--service", "ping"];
    accepted(&site.sluice(&grant));
    accepted(&site.sluice(&["rescue", "save"]));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let answers = site.dir().join("answers");
    fs::create_dir(&answers).unwrap();
    let mut asked = 0;
    for about in OPERATIONS.iter().map(|operation| operation.about()) {
        if about.method != Method::Get || about.name == METRICS.about.name {
            continue;
        }
        let query = match about.name {
            "match-policies" => PACKET,
            "earlier" => "?number=0",
            _ => "",
        };
        let answer = gateway.get(&format!("{}{query}", about.path)).unwrap();
        fs::write(answers.join(about.name), answer).unwrap();
        asked += 1;
    }
    let judge = |document: &str| {
        Command::new("/usr/bin/python3").args(["-c", JUDGE, document]).arg(&answers).output().unwrap()
    };
    let served = answers.join("openapi").display().to_string();
    assert_eq!(accepted(&judge(&served)).trim(), asked.to_string());

    // a judge that lets everything pass would be none
    let mut wrong: Value = serde_json::from_str(&gateway.get("/api/openapi.json").unwrap()).unwrap();
    wrong["components"]["schemas"]["Health"]["required"] = serde_json::json!(["mood"]);
    let changed = site.dir().join("wrong.json");
    fs::write(&changed, wrong.to_string()).unwrap();
    let output = judge(&changed.display().to_string());
    assert!(!output.status.success(), "{}", stdout(&output));
}

/// What is wrong is told as an object with `error`, whoever finds it.
#[test]
fn failures_have_one_form() {
    let site = Site::new("apifail");
    let gateway = site.start(&site.write("a.conf", MUCH));
    let grant = ["gate", "grant", "--user", "u", "--source", "10.71.1.2", "--service", "ping"];
    accepted(&site.sluice(&grant));
    let ask = |arguments: &[&str], path: &str| {
        let mut command = Command::new("curl");
        command.args(["-s", "-w", "\n%{http_code} %{content_type}", "--unix-socket"]);
        command.arg(site.state().join("sluice.sock")).args(arguments).arg(format!("http://sluice{path}"));
        accepted(&command.output().unwrap())
    };
    for (status, arguments, path, word) in [
        (404, &[][..], "/api/nothing", "openapi.json"),
        (405, &["-X", "DELETE"], "/health", "DELETE"),
        (400, &[], "/api/log?last=many", "last"),
        (400, &["-d", ""], "/api/candidate/edit", "empty"),
        (400, &["--data-binary", "\u{fffd}"], "/api/candidate/edit?path=%22", "quote"),
        (400, &["-d", "[null, null]"], "/api/nat/bindings/clear", "object"),
        (400, &["-d", "[]"], "/api/sessions/clear", "object"),
        (400, &["-d", r#"{"internal_ip":"10.71.1.2"}"#], "/api/nat/bindings/clear", "internal_ip"),
        (400, &["-d", r#"{"limit":1}"#], "/api/sessions/clear", "limit"),
        (400, &["-d", ""], "/api/sessions/clear?zone=left", "body"),
        (400, &["-d", "system { host-name x; }"], "/api/commit?chek=true", "chek"),
        (400, &["-d", r#"{"check":true}"#], "/api/candidate/commit", "query"),
        (400, &[], "/api/zones?zone=left", "zone"),
        (400, &[], "/api/gate/grants?source=nowhere", "nowhere"),
        (400, &[], "/api/gate/grants?service=pong", "known: ping"),
        (400, &[], "/api/compare?path=nonsense", "nonsense"),
        (422, &["-d", "[true, null, null, null, null]"], "/api/gate/revoke", "object"),
        (422, &["-d", r#"[["u", "10.71.1.3", "ping", null, null, false]]"#], "/api/gate/grant", "object"),
    ] {
        let answer = ask(arguments, path);
        let (body, end) = answer.rsplit_once('\n').unwrap();
        assert_eq!(end, format!("{status} application/json"), "{path}: {body}");
        let body: Value = serde_json::from_str(body).unwrap();
        let said = body["error"].as_str().unwrap();
        assert!(said.contains(word), "{path}: {said}");
    }
    let latin = site.dir().join("latin");
    fs::write(&latin, b"set system host-name \xe9\n").unwrap();
    let answer = ask(&["--data-binary", &format!("@{}", latin.display())], "/api/candidate/edit");
    assert!(answer.contains("UTF-8") && answer.ends_with("400 application/json"), "{answer}");
    // nothing was revoked, granted or committed
    assert_eq!(gateway.json("/health").unwrap()["host_name"], Value::Null);
    assert_eq!(gateway.json("/api/gate/grants").unwrap()["total"], 1);
}
