//! Changes of a tree: what configuration mode does.

use sluice_language::{Load, Tree, parse};

const BASE: &str = "\
system {
    host-name gw;
}
interfaces {
    lan0 {
        unit 0 {
            family inet {
                address 10.0.0.1/24;
            }
        }
    }
}
security {
    zones {
        security-zone trust {
            interfaces {
                lan0.0;
            }
        }
    }
    policies {
        from-zone trust to-zone untrust {
            policy a {
                match {
                    source-address [ one two ];
                    destination-address any;
                    application any;
                }
                then {
                    permit;
                }
            }
            policy b {
                match {
                    source-address any;
                    destination-address any;
                    application any;
                }
                then {
                    deny;
                }
            }
        }
    }
}
";

fn base() -> Tree {
    parse(BASE, "base").unwrap()
}

fn words(path: &str) -> Vec<String> {
    path.split_whitespace().map(str::to_owned).collect()
}

/// Errors and warnings, or what has changed.
fn edited(path: &str, commands: &str) -> String {
    let mut tree = base();
    match tree.edit(&words(path), commands, "c") {
        Ok(warnings) => {
            let warnings: String = warnings.iter().map(|warning| format!("warning {warning}\n")).collect();
            let reread = parse(&tree.to_commented_text(), "again").unwrap();
            assert_eq!(reread.to_commented_text(), tree.to_commented_text(), "{commands}");
            assert!(reread == tree, "{commands}");
            warnings + &base().compare(&tree)
        }
        Err(errors) => {
            assert!(tree == base(), "{commands}: an error changes nothing");
            errors.to_string()
        }
    }
}

/// Where, the commands, and what `compare` says then.
#[rustfmt::skip]
const EDITS: &[(&str, &str, &str)] = &[
    ("", "set system host-name other", "[edit system]\n-  host-name gw;\n+  host-name other;\n"),
    ("system", "set host-name other", "[edit system]\n-  host-name gw;\n+  host-name other;\n"),
    ("security zones", "set security-zone dmz interfaces lan0.1",
     "[edit security zones]\n   security-zone trust { ... }\n+  security-zone dmz {\n+      interfaces {\n+          lan0.1;\n+      }\n+  }\n"),
    ("", "delete system", "[edit]\n-  system {\n-      host-name gw;\n-  }\n"),
    ("system", "delete", "[edit system]\n-  host-name gw;\n"),
    ("", "delete", "c:1:1: `delete` alone would remove the whole configuration; name a statement; `load override` replaces all of them"),
    ("", "delete system domain-name", "warning c:1:15: nothing to delete: there is no `domain-name` here\n"),
    ("security policies from-zone trust to-zone untrust", "delete policy a match source-address [ one three ]",
     "warning c:1:44: nothing to delete: there is no `three` here\n\
      [edit security policies from-zone trust to-zone untrust policy a match]\n-  source-address [ one two ];\n+  source-address two;\n"),
    ("security policies from-zone trust to-zone untrust", "deactivate policy a",
     "[edit security policies from-zone trust to-zone untrust]\n!  inactive: policy a { ... }\n"),
    ("", "deactivate system host-name", "[edit system]\n-  host-name gw;\n+  inactive: host-name gw;\n"),
    ("", "activate system services", "c:1:17: nothing to activate: there is no `services` here; there is: host-name"),
    ("security policies from-zone trust to-zone untrust", "insert policy b before policy a",
     "[edit security policies from-zone trust to-zone untrust]\n!  policy b { ... }\n"),
    ("security policies from-zone trust to-zone untrust", "rename policy a to policy c",
     "[edit security policies from-zone trust to-zone untrust]\n-  policy a {\n-      match {\n-          source-address [ one two ];\n-          destination-address any;\n-          application any;\n-      }\n-      then {\n-          permit;\n-      }\n-  }\n\
      +  policy c {\n+      match {\n+          source-address [ one two ];\n+          destination-address any;\n+          application any;\n+      }\n+      then {\n+          permit;\n+      }\n+  }\n"),
    ("", "rename interfaces lan0 to wan0",
     "[edit interfaces]\n-  lan0 {\n-      unit 0 {\n-          family inet {\n-              address 10.0.0.1/24;\n-          }\n-      }\n-  }\n\
      +  wan0 {\n+      unit 0 {\n+          family inet {\n+              address 10.0.0.1/24;\n+          }\n+      }\n+  }\n"),
    ("security policies", "rename from-zone trust to-zone untrust policy b to a", "c:1:52: `policy a` is there already; delete it before"),
    ("security policies", "rename from-zone trust to-zone untrust to b", "c:1:43: the new name has another form than the old one; `from-zone trust to-zone untrust` has 4 words; so has the new name"),
    ("", "rename system to b", "c:1:18: `system` has no name; below it are: host-name"),
    ("", "rename system host-name gw", "c:1:1: `rename` does not say what and to what; write `rename STATEMENT to STATEMENT`"),
    ("", "copy security zones security-zone trust to security-zone dmz",
     "[edit security zones]\n   security-zone trust { ... }\n+  security-zone dmz {\n+      interfaces {\n+          lan0.0;\n+      }\n+  }\n"),
    ("", "copy security zones security-zone none to dmz", "c:1:35: nothing to copy: there is no `none` here; there is: trust"),
    ("", "replace pattern \"^lan(.)\" with \"wan\\1\"",
     "[edit interfaces]\n-  lan0 {\n-      unit 0 {\n-          family inet {\n-              address 10.0.0.1/24;\n-          }\n-      }\n-  }\n\
      +  wan0 {\n+      unit 0 {\n+          family inet {\n+              address 10.0.0.1/24;\n+          }\n+      }\n+  }\n\
      [edit security zones security-zone trust interfaces]\n-  lan0.0;\n+  wan0.0;\n"),
    ("security policies", "replace pattern any with all upto 1",
     "[edit security policies from-zone trust to-zone untrust policy a match]\n-  destination-address any;\n+  destination-address all;\n"),
    ("security policies", "replace pattern \"^a$\" with b", "c:1:17: `a` would become `b`, which is there already; in `security policies from-zone trust to-zone untrust policy`"),
    ("", "replace pattern ( with b", "c:1:17: `(` is no regular expression: regex parse error:\n    (\n    ^\nerror: unclosed group; write `.`, `*` and the like as `\\.`"),
    ("", "replace pattern nothing-like-it with b", "warning c:1:17: no name or value matches `nothing-like-it`\n"),
    ("", "explode", "c:1:1: `explode` is no command of configuration mode; commands are: set, delete, deactivate, activate, insert, annotate, copy, rename, replace, edit, exit, quit, top, up"),
    ("", "set system host-name b\nset system [\ndelete system", "c:2:12: this list is not closed; add the missing `]`\nc:2:12: `system` takes no list; write one statement for each member"),
    ("", "up", "c:1:1: `up 1` leads above the top; leave it out, or write `top`"),
    ("security", "edit zones\nedit security-zone dmz\nset interfaces lan0.1\nup 2\nset flow max-sessions 7\ntop edit zones\nexit\ntop set screen ids-option s icmp large",
     "[edit security]\n+  flow {\n+      max-sessions 7;\n+  }\n+  screen {\n+      ids-option s {\n+          icmp {\n+              large;\n+          }\n+      }\n+  }\n[edit security zones]\n   security-zone trust { ... }\n+  security-zone dmz {\n+      interfaces {\n+          lan0.1;\n+      }\n+  }\n"),
    ("system", "edit host-name", "c:1:6: `system host-name` holds no statements, so `edit` cannot go there; write `edit` and the words of a statement that holds others, as `edit security zones`"),
    ("system", "edit security", "c:1:6: unknown statement `security` in `system`; expected one of: host-name, services, syslog"),
    ("", "edit security zones\ndelete security-zone trust\nexit\nset system host-name b\nexit\nset system host-name c", "c:5:1: `exit` leaves configuration mode here, and more follows; remove it, or write `top`"),
];

#[test]
fn commands_do_what_they_say() {
    let mut wrong = String::new();
    for (path, commands, expected) in EDITS {
        let seen = edited(path, commands);
        if seen != *expected {
            wrong += &format!("[{path}] {commands}\n{seen}\n--- expected\n{expected}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn comments_stay_with_their_statements() {
    let text = "\
# who we are
system {
    /* by the plan */
    host-name gw; # for now
}
security {
    zones {
        # the inside
        security-zone trust {
            interfaces {
                lan0.0;
            }
        }
        security-zone untrust;
    }
}
";
    let mut tree = parse(text, "t").unwrap();
    let printed = tree.to_commented_text();
    assert_eq!(printed, text.replace("    host-name gw; # for now\n", "    # for now\n    host-name gw;\n"));
    assert_eq!(parse(&printed, "t").unwrap().to_commented_text(), printed);
    assert!(!tree.to_text().contains('#'));
    let zone = words("security zones security-zone");
    tree.edit(&zone, "annotate untrust \"the outside\"\nannotate trust \"\"\nrename untrust to wan", "c")
        .unwrap();
    tree.edit(&[], "set system host-name other", "c").unwrap();
    let printed = tree.to_commented_text();
    assert!(printed.contains("        /* the outside */\n        security-zone wan;\n"), "{printed}");
    assert!(!printed.contains("inside") && printed.contains("by the plan"), "{printed}");
    let wrong = tree.edit(&[], "annotate system \"*/\"", "c").unwrap_err().to_string();
    assert_eq!(wrong, "c:1:17: a comment cannot hold `*/`; write it otherwise");
}

fn loaded(mode: Load, path: &str, text: &str) -> String {
    let mut tree = base();
    match tree.load(&words(path), mode, text, "l") {
        Ok(warnings) => {
            let warnings: String = warnings.iter().map(|warning| format!("warning {warning}\n")).collect();
            warnings + &base().compare(&tree)
        }
        Err(errors) => {
            assert!(tree == base(), "an error changes nothing");
            errors.to_string()
        }
    }
}

#[test]
fn texts_are_loaded_as_their_mode_says() {
    let zone = "security { zones { replace: security-zone trust { screen s; } } }";
    assert_eq!(
        loaded(Load::Merge, "", zone),
        "[edit security zones security-zone trust]\n+  screen s;\n",
        "a merge passes over `replace:`"
    );
    assert_eq!(
        loaded(Load::Replace, "", zone),
        "[edit security zones security-zone trust]\n-  interfaces {\n-      lan0.0;\n-  }\n+  screen s;\n"
    );
    let list =
        "from-zone trust to-zone untrust { policy a { match { replace: source-address [ two three ]; } } }";
    let at = "[edit security policies from-zone trust to-zone untrust policy a match]\n";
    assert_eq!(
        loaded(Load::Replace, "security policies", list),
        format!("{at}-  source-address [ one two ];\n+  source-address [ two three ];\n")
    );
    let all = loaded(Load::Override, "", "system { host-name only; }");
    assert!(all.starts_with("[edit]\n-  interfaces {\n") && all.contains("\n-  security {\n"), "{all}");
    assert!(all.ends_with("[edit system]\n-  host-name gw;\n+  host-name only;\n"), "{all}");
    assert_eq!(
        loaded(Load::Override, "interfaces", "wan0 { mtu 1400; }")
            .lines()
            .filter(|line| line.starts_with("[edit"))
            .count(),
        1,
        "below a path, the rest stays"
    );
    assert_eq!(
        loaded(Load::Set, "system", "delete host-name\nset domain-name x"),
        "[edit system]\n-  host-name gw;\n+  domain-name x;\n"
    );
    assert_eq!(
        loaded(Load::Merge, "", "delete: system { host-name gw; } interfaces { delete: lan9; }"),
        "warning l:1:55: nothing to delete: there is no `lan9` here\n[edit]\n-  system {\n-      host-name gw;\n-  }\n"
    );
    assert_eq!(
        loaded(Load::Merge, "", "system { host-name"),
        "l:1:8: this block is not closed; add the missing `}`\nl:1:10: the statement that ends here has no `;`; add it"
    );
    assert_eq!(loaded(Load::Merge, "", ""), "");
}

#[test]
fn parts_are_printed_by_path() {
    let tree = base();
    let text = |path: &str| tree.text_at(&words(path));
    assert_eq!(text("system").unwrap(), "host-name gw;\n");
    assert_eq!(text("system host-name").unwrap(), "host-name gw;\n");
    assert_eq!(
        text("security policies from-zone trust to-zone untrust policy b match application").unwrap(),
        "application any;\n"
    );
    let zones = text("security zones security-zone").unwrap();
    assert!(zones.starts_with("security-zone trust {\n    interfaces {\n"), "{zones}");
    assert_eq!(text("nothing"), None);
    assert_eq!(text("").unwrap(), BASE);
    assert_eq!(tree.set_at(&words("system")).unwrap(), "set system host-name gw\n");
    assert_eq!(tree.set_at(&words("system host-name")).unwrap(), "set system host-name gw\n");
    assert_eq!(
        tree.words_below(&words("security policies from-zone trust to-zone untrust policy")),
        ["a", "b"]
    );
    assert_eq!(
        tree.compare_at(&Tree::default(), &words("system")),
        "[edit]\n-  system {\n-      host-name gw;\n-  }\n"
    );
}
