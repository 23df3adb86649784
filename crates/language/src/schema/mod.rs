//! The one definition of the language: what may stand where, what it means, what its values look like.
//!
//! The parser shapes the tree by it, `check` refuses what it does not list, completion, help and the reference in
//! `docs/CONFIGURATION.md` are printed from it. One file a subject; a new statement is one entry there.

mod address_book;
mod applications;
pub(crate) mod dhcp;
mod dhcp_server;
mod fan_out;
mod flow;
mod gate;
mod gtpu;
mod instances;
mod interfaces;
pub mod kind;
mod log;
mod nat;
pub(crate) mod numbers;
mod policies;
mod policy_options;
mod protocols;
mod reference;
mod router_advertisement;
mod routing;
mod schedulers;
mod screen;
mod syslog;
mod system;
mod zones;

pub use kind::Kind;
pub use reference::{complete, markdown};

/// One statement: a keyword, the words that name an entry of it, and what it holds.
#[derive(Debug)]
pub struct Statement {
    /// The keyword; empty when the statement starts with its own key (`interfaces { trust0 { ... } }`).
    pub name: &'static str,
    /// One sentence: what `?` and docs/CONFIGURATION.md say of it.
    pub help: &'static str,
    /// Words between the keyword and the body, in order.
    pub keys: &'static [Key],
    /// What follows.
    pub body: Body,
    /// Junos statements that are refused here by name.
    pub unsupported: &'static [&'static str],
    /// Printed on the header's line when it holds a single leaf.
    pub one_line: bool,
    /// Children of which one stands for all: what is there keeps the others from being inherited. The empty name is the
    /// child that begins with its key.
    pub exclusive: &'static [&'static str],
}

/// A word between the keyword and the body.
#[derive(Debug)]
pub enum Key {
    /// A value that the operator chooses.
    Value(Kind),
    /// A fixed word, like `to-zone`.
    Word(&'static str),
}

/// What a statement holds behind its words.
#[derive(Debug)]
pub enum Body {
    /// Statements in braces.
    Block(&'static [Statement]),
    /// Nothing: standing there is the meaning.
    Flag,
    /// One value.
    Value(Kind),
    /// Any number of values.
    List(Kind),
}

/// A statement with a value; a second one replaces the first.
const fn leaf(name: &'static str, help: &'static str, kind: Kind) -> Statement {
    Statement {
        name,
        help,
        keys: &[],
        body: Body::Value(kind),
        unsupported: &[],
        one_line: false,
        exclusive: &[],
    }
}

/// A statement with any number of values: `name a;` or `name [ a b ];`.
const fn list(name: &'static str, help: &'static str, kind: Kind) -> Statement {
    Statement {
        name,
        help,
        keys: &[],
        body: Body::List(kind),
        unsupported: &[],
        one_line: false,
        exclusive: &[],
    }
}

const fn flag(name: &'static str, help: &'static str) -> Statement {
    Statement { name, help, keys: &[], body: Body::Flag, unsupported: &[], one_line: false, exclusive: &[] }
}

const fn block(name: &'static str, help: &'static str, children: &'static [Statement]) -> Statement {
    keyed(name, help, &[], children)
}

/// A block that may stand several times under different keys.
const fn keyed(
    name: &'static str,
    help: &'static str,
    keys: &'static [Key],
    children: &'static [Statement],
) -> Statement {
    Statement {
        name,
        help,
        keys,
        body: Body::Block(children),
        unsupported: &[],
        one_line: false,
        exclusive: &[],
    }
}

/// Words that say it all, such as an entry of a set.
const fn entry(name: &'static str, help: &'static str, keys: &'static [Key]) -> Statement {
    Statement { name, help, keys, body: Body::Flag, unsupported: &[], one_line: false, exclusive: &[] }
}

impl Statement {
    const fn refuses(mut self, names: &'static [&'static str]) -> Self {
        self.unsupported = names;
        self
    }

    const fn exclusive(mut self, names: &'static [&'static str]) -> Self {
        self.exclusive = names;
        self
    }

    const fn on_one_line(mut self) -> Self {
        self.one_line = true;
        self
    }

    /// Empty unless it is a block.
    pub fn children(&self) -> &'static [Statement] {
        match self.body {
            Body::Block(children) => children,
            _ => &[],
        }
    }

    /// What an operator would type to begin it.
    pub fn placeholder(&self) -> String {
        match (self.name, self.keys.first()) {
            ("", Some(Key::Value(kind))) => kind.placeholder(),
            (name, _) => name.to_owned(),
        }
    }
}

/// Statements of the top level, which are those of a group, too.
static TOP_LEVEL: &[Statement] = &[
    leaf("version", "Release of Junos that the text was written for. It has no effect.", Kind::Text),
    system::SYSTEM,
    interfaces::INTERFACES,
    block(
        "security",
        "Zones, policies and what protects the gateway itself.",
        &[
            address_book::ADDRESS_BOOK,
            flow::FLOW,
            log::LOG,
            nat::NAT,
            screen::SCREEN,
            policies::POLICIES,
            zones::ZONES,
        ],
    )
    .refuses(&[
        "advance-policy-based-routing",
        "alarms",
        "alg",
        "analysis",
        "application-firewall",
        "application-tracking",
        "certificates",
        "datapath-debug",
        "dynamic-address",
        "dynamic-vpn",
        "firewall-authentication",
        "forwarding-options",
        "forwarding-process",
        "gprs",
        "group-vpn",
        "idp",
        "ike",
        "ipsec",
        "key-chain",
        "macsec",
        "pki",
        "resource-manager",
        "ssh-known-hosts",
        "traceoptions",
        "tunnel-inspection",
        "user-identification",
        "utm",
    ]),
    applications::APPLICATIONS,
    policy_options::POLICY_OPTIONS,
    protocols::PROTOCOLS,
    instances::ROUTING_INSTANCES,
    routing::ROUTING_OPTIONS,
    schedulers::SCHEDULERS,
    block(
        "services",
        "Functions of the gateway beside the firewall.",
        &[fan_out::FAN_OUT, gate::GATE, gtpu::GTP_U],
    ),
    dhcp_server::ACCESS,
];

const TOP_LEVEL_REFUSED: &[&str] = &[
    "access-profile",
    "accounting-options",
    "apply-macro",
    "bridge-domains",
    "chassis",
    "class-of-service",
    "diameter",
    "event-options",
    "fabric",
    "firewall",
    "forwarding-options",
    "jsrc",
    "logical-systems",
    "multi-chassis",
    "poe",
    "smtp",
    "snmp",
    "switch-options",
    "tenants",
    "unified-edge",
    "virtual-chassis",
    "vlans",
    "wlan",
];

/// The top level of a configuration.
pub static ROOT: Statement = block("", "A Sluice configuration.", TOP_LEVEL).refuses(TOP_LEVEL_REFUSED);

/// `groups`: stands at the top level only, and outside of `TOP_LEVEL`, because it holds all of that again.
pub static GROUPS: Statement = block(
    "groups",
    "Statements to be inherited where `apply-groups` names their group.",
    &[keyed("", "A group.", &[Key::Value(Kind::Name("group"))], TOP_LEVEL).refuses(TOP_LEVEL_REFUSED)],
);

/// May stand in every block.
pub static APPLY_GROUPS: Statement = list(
    "apply-groups",
    "Groups whose statements at this place are inherited, the first of them first.",
    Kind::Name("group"),
);
/// May stand in every block below one that has `apply-groups`.
pub static APPLY_GROUPS_EXCEPT: Statement = list(
    "apply-groups-except",
    "Groups applied further up that are not inherited from here on.",
    Kind::Name("group"),
);

/// Why a statement is refused, and what to write instead, where that can be said in a line.
const REASONS: &[(&str, &str)] = &[
    (
        "address-mapping",
        "ports are bound too: applications that ask a server for their address ask for their port",
    ),
    ("alg", NO_ALG),
    ("application-protocol", NO_ALG),
    ("dns-name", "a name may change behind a committed policy; write the addresses it stands for"),
    ("rpc-program-number", NO_ALG),
    ("uuid", NO_ALG),
    ("wildcard-address", "masks with holes fit no prefix or range; write prefixes or `range-address`"),
];

const NO_ALG: &str = "there are no application layer gateways; describe it by protocol and ports";

pub(crate) fn reason(refused: &str) -> Option<&'static str> {
    REASONS.iter().find(|(name, _)| *name == refused).map(|(_, reason)| *reason)
}

/// Where a word of the tree stands in the schema, which decides what may follow it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cursor {
    /// The header is complete; statements of the block follow.
    Block(&'static Statement),
    /// Key number `usize` follows.
    Key(&'static Statement, usize),
    /// The value, or values, follow.
    Value(&'static Statement),
    /// Nothing may follow.
    Done,
    /// Not in the schema: anything may follow, and `check` refuses all of it.
    Unknown,
}

impl Cursor {
    /// Where `word` leads from here.
    pub fn step(self, word: &str) -> Cursor {
        match self {
            Cursor::Block(statement) => match lookup(statement, word) {
                Some(child) if child.name.is_empty() => header(child, 1),
                Some(child) => header(child, 0),
                None => Cursor::Unknown,
            },
            Cursor::Key(statement, index) => match &statement.keys[index] {
                Key::Word(expected) if *expected != word => Cursor::Unknown,
                _ => header(statement, index + 1),
            },
            Cursor::Value(_) => Cursor::Done,
            Cursor::Done | Cursor::Unknown => Cursor::Unknown,
        }
    }

    /// What this word begins excludes others of the block.
    pub fn excludes(self, word: &str) -> bool {
        let Cursor::Block(block) = self else { return false };
        !block.exclusive.is_empty()
            && lookup(block, word).is_some_and(|child| block.exclusive.contains(&child.name))
    }

    /// The block refuses the statement that begins with this word by its name.
    pub fn refuses(self, word: &str) -> bool {
        matches!(self, Cursor::Block(statement) if statement.unsupported.contains(&word))
    }

    /// Statements of the block may follow each other on its line.
    pub fn is_one_line(self) -> bool {
        matches!(self, Cursor::Block(statement) if statement.one_line)
    }

    /// The block has a statement that begins with this keyword.
    pub fn has_keyword(self, word: &str) -> bool {
        matches!(self, Cursor::Block(statement) if lookup(statement, word).is_some_and(|child| !child.name.is_empty()))
    }
}

/// The statement of a block that `word` begins: a keyword, else the one that begins with its key.
pub(crate) fn lookup(block: &'static Statement, word: &str) -> Option<&'static Statement> {
    match word {
        "apply-groups" => return Some(&APPLY_GROUPS),
        "apply-groups-except" => return Some(&APPLY_GROUPS_EXCEPT),
        "groups" if std::ptr::eq(block, &ROOT) => return Some(&GROUPS),
        _ => {}
    }
    let children = block.children();
    if let Some(child) = children.iter().find(|child| !child.name.is_empty() && child.name == word) {
        return Some(child);
    }
    if block.unsupported.contains(&word) {
        return None;
    }
    children.iter().find(|child| child.name.is_empty())
}

fn header(statement: &'static Statement, keys_read: usize) -> Cursor {
    if keys_read < statement.keys.len() {
        return Cursor::Key(statement, keys_read);
    }
    match statement.body {
        Body::Block(_) => Cursor::Block(statement),
        Body::Flag => Cursor::Done,
        Body::Value(_) | Body::List(_) => Cursor::Value(statement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(statement: &'static Statement, visit: &mut dyn FnMut(&'static Statement)) {
        visit(statement);
        for child in statement.children() {
            every(child, visit);
        }
    }

    #[test]
    fn statements_are_explained_and_distinct() {
        every(&ROOT, &mut |statement| {
            let name = statement.placeholder();
            assert!(statement.help.ends_with('.'), "help of `{name}` is no sentence");
            let mut names: Vec<&str> = statement.children().iter().map(|child| child.name).collect();
            names.extend(statement.unsupported);
            names.sort_unstable();
            let before = names.len();
            names.dedup();
            assert_eq!(names.len(), before, "a name stands twice in `{name}`");
            assert!(statement.unsupported.is_sorted(), "refused names of `{name}` are not sorted");
        });
    }

    #[test]
    fn only_statements_that_begin_with_a_key_have_no_name() {
        every(&ROOT, &mut |statement| {
            for child in statement.children().iter().filter(|child| child.name.is_empty()) {
                assert!(matches!(child.keys.first(), Some(Key::Value(_))));
            }
        });
    }

    #[test]
    fn completion_follows_the_schema() {
        let names = |path: &[&str]| complete(path).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            names(&[]),
            [
                "version",
                "system",
                "interfaces",
                "security",
                "applications",
                "policy-options",
                "protocols",
                "routing-instances",
                "routing-options",
                "schedulers",
                "services",
                "access"
            ]
        );
        assert_eq!(names(&["interfaces"]), ["<interface>"]);
        assert_eq!(names(&["interfaces", "lan0", "mode"]), ["auto", "tc", "xdp", "generic"]);
        assert_eq!(names(&["security", "policies", "from-zone", "a"]), ["to-zone"]);
        assert_eq!(names(&["security", "policies", "from-zone", "a", "to-zone", "b"]), ["policy"]);
        assert_eq!(names(&["system", "host-name"]), ["<host-name>"]);
        assert!(names(&["system", "host-name", "gw"]).is_empty());
        assert!(names(&["bananas"]).is_empty());
    }
}
