//! How much goes with a word that is wrong: the least that leaves nothing narrower or wider behind.

use crate::schema::Cursor;
use crate::tree::{NodeId, Tree};

pub(super) enum Scope {
    /// One statement, with all below it.
    Statement(NodeId),
    Policy(NodeId),
    /// Policies from or to the gateway itself.
    Host(NodeId),
    Route(NodeId),
    /// A neighbour, or all on a link, with the key that signs what is said.
    Signed(NodeId),
}

/// Statements that mean what they say only as a whole, and what below them may be left out alone.
const WHOLE: &[(&[&str], &[&str])] = &[
    (&["security", "address-book", "*", "address", "*"], &["description"]),
    (&["security", "address-book", "*", "address-set", "*"], &["description"]),
    (&["security", "zones", "security-zone", "*", "address-book", "address", "*"], &["description"]),
    (&["security", "zones", "security-zone", "*", "address-book", "address-set", "*"], &["description"]),
    (&["security", "zones", "security-zone", "*", "host-inbound-traffic", "system-services"], &[]),
    (&["security", "zones", "security-zone", "*", "host-inbound-traffic", "protocols"], &[]),
    (
        &[
            "security",
            "zones",
            "security-zone",
            "*",
            "interfaces",
            "*",
            "host-inbound-traffic",
            "system-services",
        ],
        &[],
    ),
    (
        &["security", "zones", "security-zone", "*", "interfaces", "*", "host-inbound-traffic", "protocols"],
        &[],
    ),
    (&["applications", "application", "*", "term", "*"], &[]),
    (&["applications", "application", "*"], TREATMENT),
    (&["applications", "application-set", "*"], &["description"]),
    (&["security", "nat", "*", "rule-set", "*", "rule", "*"], &["description"]),
    (&["security", "nat", "*", "rule-set", "*"], &["description"]),
    (&["security", "nat", "*", "pool", "*"], POOL_TREATMENT),
    (&["security", "screen", "ids-option", "*", "tcp", "syn-flood", "white-list", "*"], &[]),
    (&["schedulers", "scheduler", "*"], &["description"]),
    // a term without one of its conditions takes more routes, and a list without a member other ones
    (&["policy-options", "policy-statement", "*"], &[]),
    (&["policy-options", "prefix-list", "*"], &[]),
    (&["policy-options", "community", "*"], &[]),
    (&["policy-options", "as-path", "*"], &[]),
];

/// What an application is treated like; it matches the same without.
const TREATMENT: &[&str] = &[
    "alg",
    "application-protocol",
    "description",
    "do-not-translate-A-query-to-AAAA-query",
    "do-not-translate-AAAA-query-to-A-query",
    "inactivity-timeout",
];

const POOL_TREATMENT: &[&str] =
    &["address-persistent", "description", "ei-mapping-timeout", "mapping-timeout", "pool-utilization-alarm"];

pub(super) fn of(tree: &Tree, id: NodeId) -> Scope {
    let mut steps = tree.steps(id);
    let path = tree.path(id);
    let is_in_group = path.first() == Some(&"groups") && path.len() > 2;
    let path = if is_in_group { &path[2..] } else { &path[..] };
    if is_in_group {
        steps.drain(..2);
    }
    match path {
        ["security", "policies", "from-zone", _, "to-zone", _, "policy", _, rest @ ..] => {
            policy(tree, id, steps[7], rest)
        }
        ["security", "policies", "global", "policy", _, rest @ ..] => policy(tree, id, steps[4], rest),
        ["security", "policies", "from-zone", "junos-host"] => Scope::Host(id),
        ["security", "policies", "from-zone", _, "to-zone", "junos-host"] => Scope::Host(id),
        ["routing-options", "static", "route", _, rest @ ..] => route(tree, id, steps[3], rest),
        ["routing-options", "rib", _, "static", "route", _, rest @ ..] => route(tree, id, steps[5], rest),
        ["routing-instances", _, "routing-options", "static", "route", _, rest @ ..] => {
            route(tree, id, steps[5], rest)
        }
        ["routing-instances", _, "routing-options", "rib", _, "static", "route", _, rest @ ..] => {
            route(tree, id, steps[7], rest)
        }
        // what it kept apart must not meet in the main one
        ["routing-instances", _] | ["routing-instances", _, "instance-type", ..] => {
            Scope::Statement(steps[1])
        }
        ["protocols", "bgp", "authentication-key" | "authentication-key-chain", ..] => {
            Scope::Signed(steps[1])
        }
        ["protocols", "bgp", "group", _, "authentication-key" | "authentication-key-chain", ..] => {
            Scope::Signed(steps[3])
        }
        [
            "protocols",
            "bgp",
            "group",
            _,
            "neighbor",
            _,
            "authentication-key" | "authentication-key-chain",
            ..,
        ] => Scope::Signed(steps[5]),
        ["protocols", "ospf" | "ospf3", "area", _, "interface", _, "authentication", ..] => {
            Scope::Signed(steps[5])
        }
        // without its policies a neighbour would be believed and told everything
        ["protocols", "bgp", "import" | "export", ..] => Scope::Statement(steps[1]),
        ["protocols", "bgp", "group", _, "import" | "export", ..] => Scope::Statement(steps[3]),
        ["protocols", "bgp", "group", _, "neighbor", _, "import" | "export", ..] => {
            Scope::Statement(steps[5])
        }
        // tells nothing from elsewhere then; one policy alone might tell what another one rejects
        ["protocols", "ospf" | "ospf3", "export", ..] => Scope::Statement(steps[2]),
        ["protocols", "ospf" | "ospf3", "import", ..] => Scope::Statement(steps[1]),
        _ => statement(tree, id, &steps, path),
    }
}

fn policy(tree: &Tree, id: NodeId, policy: NodeId, rest: &[&str]) -> Scope {
    match rest {
        ["description", ..] | ["then", "log" | "count", ..] => Scope::Statement(nearest(tree, id)),
        _ => Scope::Policy(policy),
    }
}

fn route(tree: &Tree, id: NodeId, route: NodeId, rest: &[&str]) -> Scope {
    let is_inactive = |id: &NodeId| tree.node(*id).inactive;
    let qualified = tree.find(route, "qualified-next-hop").map(|hops| &tree.node(hops).children);
    let has_lost = tree.node(route).children.iter().chain(qualified.into_iter().flatten()).any(is_inactive);
    let has_way = ["next-hop", "next-table", "discard", "reject"]
        .iter()
        .any(|word| tree.find(route, word).is_some_and(|node| !is_inactive(&node)))
        || qualified.is_some_and(|hops| hops.iter().any(|hop| !is_inactive(hop)));
    match rest {
        ["next-hop", ..] => Scope::Route(route),
        [] if has_lost && !has_way => Scope::Route(route),
        [] => Scope::Statement(route),
        _ => Scope::Statement(nearest(tree, id)),
    }
}

fn statement(tree: &Tree, id: NodeId, steps: &[NodeId], path: &[&str]) -> Scope {
    let matches = |words: &[&str]| {
        words.len() <= path.len() && words.iter().zip(path).all(|(word, step)| *word == "*" || word == step)
    };
    let Some((words, apart)) = WHOLE.iter().find(|(words, _)| matches(words)) else {
        return Scope::Statement(nearest(tree, id));
    };
    let whole = steps[words.len() - 1];
    let is_apart = path.get(words.len()).is_some_and(|next| apart.contains(next));
    // A term is a part of its application, unless only its treatment is wrong.
    let in_term = words.last() == Some(&"*") && words.get(3) == Some(&"term");
    if in_term {
        let apart = path.get(5).is_some_and(|next| TREATMENT.contains(next));
        return Scope::Statement(if apart { nearest(tree, id) } else { steps[2] });
    }
    // A service less is one less; only an exception from `all` must not get lost.
    let is_service = matches!(words.last(), Some(&"system-services" | &"protocols"));
    if is_service && !excepts(tree, whole) {
        return Scope::Statement(nearest(tree, id));
    }
    Scope::Statement(if is_apart { nearest(tree, id) } else { whole })
}

fn excepts(tree: &Tree, services: NodeId) -> bool {
    tree.node(services).children.iter().any(|&service| !tree.node(service).children.is_empty())
}

/// The statement that a word belongs to: a value goes with its keyword.
fn nearest(tree: &Tree, id: NodeId) -> NodeId {
    let parent = tree.node(id).parent;
    match tree.node(parent).cursor {
        Cursor::Value(_) => parent,
        _ => id,
    }
}
