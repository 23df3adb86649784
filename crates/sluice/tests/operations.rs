//! An operation of the list has a command with help, completion and a manual page, a route, and its rows in the documents. All of
//! it is walked from the list: one more operation is one more step here.

use crate::common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BINARY, Site, accepted, refused, stdout};
use serde_json::Value;
use sluice_control::operations::{Argument, Body, Listed, Method, OPERATIONS, arguments, members, object};

/// Has bash complete the last of the words after the first, by the script that this names.
const COMPLETE: &str = r#"
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_sluice sluice "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// What an operation is told: in its query, and in its body.
fn told(operation: &dyn Listed) -> Vec<Argument> {
    let body = object(operation.about().body);
    arguments(operation).into_iter().chain(body.iter().flat_map(members)).collect()
}

fn options(operation: &dyn Listed) -> Vec<String> {
    let option = |argument: Argument| {
        let name = argument.name.trim_end_matches("_s");
        format!("--{}", name.replace('_', "-"))
    };
    let body = (!matches!(operation.about().body, Body::Nothing)).then(|| "--body".to_owned());
    told(operation).into_iter().map(option).chain(body).collect()
}

fn sluice(words: &[&str]) -> String {
    accepted(&Command::new(BINARY).args(words).output().unwrap())
}

/// A fresh directory of this test.
fn directory() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sluice-operations-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn completed(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let words = [&["sluice", "api"], words].concat();
    let output =
        Command::new("bash").args(["-c", COMPLETE, "bash"]).arg(script).args(words).output().unwrap();
    accepted(&output).lines().map(str::to_owned).collect()
}

#[test]
fn every_operation_has_a_command_help_completion_and_documents() {
    let dir = directory();
    let script = dir.join("sluice.bash");
    fs::write(&script, sluice(&["completion", "bash"])).unwrap();
    let pages = dir.join("man");
    sluice(&["man", pages.to_str().unwrap()]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("API.md")).unwrap();
    let document: Value =
        serde_json::from_str(&fs::read_to_string(docs.join("openapi.json")).unwrap()).unwrap();

    let names: BTreeSet<String> =
        OPERATIONS.iter().map(|operation| operation.about().name.to_owned()).collect();
    let offered: BTreeSet<String> = completed(&script, &[""])
        .into_iter()
        .filter(|word| !word.starts_with('-') && word != "help")
        .collect();
    assert_eq!(offered, names, "completion of `sluice api`");
    for operation in OPERATIONS {
        let about = operation.about();
        let help = sluice(&["api", about.name, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.starts_with(about.help), "{help}");
        assert!(help.contains(&format!("{} {}", about.method.name(), about.path)), "{help}");
        let manual = fs::read_to_string(pages.join(format!("sluice-api-{}.1", about.name))).unwrap();
        let offered = completed(&script, &[about.name, "--"]);
        for option in options(*operation) {
            assert!(help.contains(&format!("{option} ")), "{option}: {help}");
            assert!(manual.contains(&option.replace('-', "\\-")), "{option}: {manual}");
            assert!(offered.contains(&option), "{} {option}: {offered:?}", about.name);
        }
        assert!(page.contains(&format!("| `{}` | `{} {}` |", about.name, about.method.name(), about.path)));
        for argument in told(*operation) {
            assert!(
                page.contains(&format!("| `{}` | `{}` |", about.name, argument.name)),
                "{}",
                argument.name
            );
        }
        let described = &document["paths"][about.path][about.method.name().to_lowercase()];
        assert_eq!(described["operationId"], about.name);
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// Other shells are asked whether they can read theirs, where they are there.
#[test]
fn shells_read_what_completes_for_them() {
    for shell in ["bash", "zsh", "fish"] {
        let script = sluice(&["completion", shell]);
        for operation in OPERATIONS {
            assert!(script.contains(operation.about().name), "{shell}: {}", operation.about().name);
        }
        let file = std::env::temp_dir().join(format!("sluice-completion-{}.{shell}", std::process::id()));
        fs::write(&file, script).unwrap();
        match Command::new(shell).arg("-n").arg(&file).output() {
            Ok(output) => drop(accepted(&output)),
            Err(_) => eprintln!("{shell} is not installed: nobody has read its script"),
        }
        fs::remove_file(&file).unwrap();
    }
    let unknown = Command::new(BINARY).args(["completion", "tcsh"]).output().unwrap();
    assert!(refused(&unknown, 2).contains("bash, zsh, fish"));
}

#[test]
fn every_operation_is_reached_by_its_name() {
    let site = Site::new("operations");
    let _gateway = site.start(&site.write("a.conf", ""));
    accepted(&site.sluice(&["rescue", "save"]));
    let socket = site.state().join("sluice.sock").display().to_string();
    for operation in OPERATIONS {
        let about = operation.about();
        // whoever asks in the wrong way learns which is right, and changes nothing
        let (wrong, right) = match about.method {
            Method::Get => ("POST", "GET"),
            Method::Post => ("GET", "POST"),
        };
        let url = format!("http://sluice{}", about.path);
        let curl = ["-sS", "-i", "-X", wrong, "--unix-socket", &socket, &url];
        let answer = stdout(&site.gateway.command("curl").args(curl).output().unwrap());
        assert!(answer.starts_with("HTTP/1.1 405"), "{}: {answer}", about.path);
        let allowed = answer.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default();
        assert!(allowed.split(',').any(|method| method.trim() == right), "{}: {answer}", about.path);

        let required = arguments(*operation).into_iter().find(|argument| argument.is_required);
        match (about.method, required) {
            (Method::Get, None) => {
                let answer = accepted(&site.sluice(&["api", about.name]));
                let is_json = operation.answer(&mut Default::default()).is_some();
                assert!(
                    !answer.is_empty() && serde_json::from_str::<Value>(&answer).is_ok() == is_json,
                    "{answer}"
                );
            }
            (Method::Get, Some(argument)) => {
                let option = format!("--{}", argument.name.replace('_', "-"));
                assert!(refused(&site.sluice(&["api", about.name]), 2).contains(&option));
            }
            (Method::Post, _) => {}
        }
    }
}

#[test]
fn changes_are_told_by_options_or_a_file() {
    let site = Site::new("changes");
    let gate = "set services gate zone left\n\
                set services gate service ping destination-address 10.71.2.2\n\
                set services gate service ping protocol icmp\n";
    let conf = site.write("a.conf", gate);
    let _gateway = site.start(&conf);
    let api = |words: &[&str]| site.sluice(&[&["api"], words].concat());
    let grant =
        ["grant", "--user", "u", "--source", "10.71.1.2", "--service", "ping", "--idle-timeout", "90"];
    let granted: Value = serde_json::from_str(&accepted(&api(&grant))).unwrap();
    assert_eq!(granted["granted"], 1, "{granted}");
    let listed: Value = serde_json::from_str(&accepted(&api(&["grants", "--user", "u"]))).unwrap();
    assert_eq!(
        (&listed["total"], &listed["grants"][0]["idle_timeout_s"]),
        (&1.into(), &90.into()),
        "{listed}"
    );
    let wrong = refused(&api(&["revoke"]), 2);
    assert!(wrong.contains("exactly one of"), "the daemon says what is missing: {wrong}");
    let list = site.dir().join("revoke.json");
    fs::write(&list, r#"{"user": "u"}"#).unwrap();
    assert!(accepted(&api(&["revoke", "--body", list.to_str().unwrap()])).contains("\"revoked\": 1"));
    let committed = accepted(&api(&["commit", "--body", conf.to_str().unwrap(), "--file", "again"]));
    assert!(committed.contains("\"generation\": 2"), "{committed}");
    assert!(refused(&api(&["commit"]), 2).contains("--body <FILE>"));
    assert!(
        refused(&api(&["clear-sessions", "--zone", "nowhere"]), 2).contains("zone nowhere is not configured")
    );
}
