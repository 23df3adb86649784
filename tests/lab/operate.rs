//! `sluice lab run operate` as a user runs it: the first section of docs/OPERATE.md, command by command.

use crate::common::lab;

#[test]
fn the_page_is_walked_on_both_hooks() {
    let text = lab("operate");
    assert_eq!(text.matches("every packet is accounted for").count(), 2, "{text}");
}
