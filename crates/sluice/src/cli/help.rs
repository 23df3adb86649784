//! What groups of commands are about, how choices are listed, and how wrong words are told of.

use super::grammar::{Choice, Wrong, class_name};

/// Of keywords with others behind them.
const GROUPS: &[(&str, &str)] = &[
    ("clear", "Clear information in the system"),
    ("clear bgp", "Clear BGP information"),
    ("clear dhcp", "Clear DHCP information"),
    ("clear dhcp server", "Clear information of the DHCP server"),
    ("clear dhcpv6", "Clear DHCPv6 information"),
    ("clear dhcpv6 server", "Clear information of the DHCPv6 server"),
    ("clear security", "Clear security information"),
    ("clear security flow", "Clear the table of sessions"),
    ("clear security nat", "Clear translation information"),
    ("clear security nat source", "Clear source NAT information"),
    ("clear services", "Clear information of services"),
    ("clear services gtp-u", "Clear information of the user plane"),
    ("display", "How the answer is written"),
    ("load", "Load a configuration"),
    ("monitor", "Show information as it changes"),
    ("monitor interface", "Show traffic of interfaces"),
    ("monitor security", "Show packets as they pass the gateway"),
    ("replace", "Replace character strings"),
    ("request", "Make system-level requests"),
    ("request dhcp", "Make requests of DHCP"),
    ("request dhcp client", "Make requests of DHCP clients"),
    ("request dhcpv6", "Make requests of DHCPv6"),
    ("request dhcpv6 client", "Make requests of DHCPv6 clients"),
    ("request system", "Make requests of the system"),
    ("request system configuration", "Handle configurations"),
    ("request system configuration rescue", "Handle the rescue configuration"),
    ("set", "Set properties of this shell"),
    ("set cli", "Set properties of this shell"),
    ("show", "Show system information"),
    ("show bfd", "Show BFD information"),
    ("show bgp", "Show BGP information"),
    ("show dhcp", "Show DHCP information"),
    ("show dhcp client", "Show DHCP clients"),
    ("show dhcp server", "Show the DHCP server"),
    ("show dhcpv6", "Show DHCPv6 information"),
    ("show dhcpv6 client", "Show DHCPv6 clients"),
    ("show dhcpv6 server", "Show the DHCPv6 server"),
    ("show ipv6", "Show IPv6 information"),
    ("show log", "Show logs"),
    ("show ospf", "Show OSPF information"),
    ("show ospf3", "Show OSPFv3 information"),
    ("show routing", "Show routing information"),
    ("show security", "Show security information"),
    ("show security flow", "Show flow-based session information"),
    ("show security nat", "Show network address translation"),
    ("show security nat destination", "Show destination NAT"),
    ("show security nat nat64", "Show NAT64"),
    ("show security nat source", "Show source NAT"),
    ("show security nat source persistent-nat-table", "Show bindings of persistent-nat"),
    ("show security nat static", "Show static NAT"),
    ("show security screen", "Show screens"),
    ("show services", "Show information about services"),
    ("show services gtp-u", "Show the user plane of mobile networks"),
    ("show system", "Show information about the system"),
    ("test", "Ask what the configuration would do"),
];

pub fn of_words(words: &str) -> Option<&'static str> {
    GROUPS.iter().find(|(group, _)| *group == words).map(|(_, help)| *help)
}

/// As `?` lists them, for a terminal of some columns.
pub fn listing(choices: &[Choice], width: usize) -> String {
    const NARROW: usize = 20;
    const WIDE: usize = 30;
    let longest = choices.iter().map(|choice| choice.word.chars().count()).max().unwrap_or(0);
    let column = longest.clamp(NARROW, WIDE);
    let mut text = String::from("Possible completions:\n");
    for Choice { word, help, .. } in choices {
        let line = format!("  {word:<column$} {help}");
        text.extend(line.trim_end().chars().take(width.max(NARROW)));
        text.push('\n');
    }
    text
}

/// What is wrong with a word, below the line it stands in: `indent` columns stand before that line.
pub fn complaint(wrong: &Wrong, at: usize, indent: usize) -> String {
    let caret = format!("{}^\n", " ".repeat(indent + at));
    match wrong {
        Wrong::Unknown(choices) | Wrong::Short(choices) => {
            caret + &wrapped(&format!("syntax error, expecting {}.", expected(choices)))
        }
        Wrong::Value(wanted) => format!("{caret}syntax error, expecting {wanted}.\n"),
        Wrong::Ambiguous(choices) => format!("{caret}'ambiguous'. {}", listing(choices, usize::MAX)),
        Wrong::Class { command, class } => {
            format!("{caret}permission denied: `{command}` is for class {}.\n", class_name(*class))
        }
    }
}

/// No line is longer than a narrow terminal.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 79;
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column + 1 + length > WIDTH {
            (wrapped, column) = (wrapped + "\n  ", 2);
        } else if column > 0 {
            (wrapped, column) = (wrapped + " ", column + 1);
        }
        wrapped += word;
        column += length;
    }
    wrapped + "\n"
}

fn expected(choices: &[Choice]) -> String {
    const MOST: usize = 8;
    let words: Vec<&str> = choices.iter().map(|choice| choice.word.as_str()).collect();
    match words[..] {
        [] => "nothing more".to_owned(),
        [one] => one.to_owned(),
        _ if words.len() > MOST => format!("one of {}, ... (`?` lists all)", words[..MOST].join(", ")),
        _ => format!("one of {}", words.join(", ")),
    }
}
