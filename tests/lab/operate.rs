//! `sluice lab run operate` as a user runs it: the first section of docs/OPERATE.md, command by command.

use std::process::Command;

#[test]
fn the_page_is_walked_on_both_hooks() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["lab", "run", "operate", "--hook", "both"])
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.matches("every packet is accounted for").count(), 2, "{text}");
}
