//! What exists: names that completion offers, from the running daemon, and what the configuration has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_control::Client;
use sluice_control::api::CandidateQuery;
use sluice_control::operations::candidate::CANDIDATE;
use sluice_control::operations::configuration::CONFIGURATION;
use sluice_control::operations::gtpu::GTPU_SESSIONS;
use sluice_control::operations::interfaces::INTERFACES;
use sluice_control::operations::nat::NAT;
use sluice_control::operations::policies::POLICIES;
use sluice_control::operations::zones::ZONES;
use sluice_control::operations::{NoArguments, Role};
use sluice_language::Tree;

use super::grammar::{Places, rank};

/// How long an answer stands for those that completion would ask for.
const FRESH: Duration = Duration::from_secs(2);

/// Names, each with what it is.
pub type Names = Vec<(String, String)>;

/// What the grammar asks about the world.
pub trait Known {
    /// How much the one who types may do, as [`rank`] counts it.
    fn class(&self) -> usize;

    /// Names of a kind, each with what it is.
    fn names(&self, what: &str) -> Names;

    /// The configuration that statements are looked up in.
    fn tree(&self, places: Places) -> Option<Arc<Tree>>;

    /// The place that `edit` went to.
    fn place(&self) -> Vec<String>;
}

/// The running daemon as completion sees it.
pub struct Daemon {
    state_dir: PathBuf,
    class: Role,
    names: Mutex<BTreeMap<String, (Instant, Names)>>,
    active: Mutex<Option<(Instant, Arc<Tree>)>>,
    candidate: Mutex<Option<Arc<Tree>>>,
    place: Mutex<Vec<String>>,
    is_configuring: AtomicBool,
}

impl Daemon {
    pub fn new(state_dir: &Path, class: Role) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            class,
            names: Mutex::default(),
            active: Mutex::default(),
            candidate: Mutex::default(),
            place: Mutex::default(),
            is_configuring: AtomicBool::new(false),
        }
    }

    /// From here on statements are meant below this place; None: there is no candidate.
    pub fn edit(&self, place: Option<&[String]>) {
        self.is_configuring.store(place.is_some(), Ordering::Relaxed);
        *held(&self.place) = place.unwrap_or_default().to_vec();
    }

    pub fn is_configuring(&self) -> bool {
        self.is_configuring.load(Ordering::Relaxed)
    }

    /// It has changed, or may have.
    pub fn forget_candidate(&self) {
        *held(&self.candidate) = None;
    }

    fn candidate(&self) -> Option<Arc<Tree>> {
        if let Some(tree) = &*held(&self.candidate) {
            return Some(tree.clone());
        }
        let view = Client::new(&self.state_dir).ask(&CANDIDATE, &CandidateQuery::default()).ok()?;
        let tree = Arc::new(sluice_language::parse(&view.text, "candidate").ok()?);
        *held(&self.candidate) = Some(tree.clone());
        Some(tree)
    }

    fn active(&self) -> Option<Arc<Tree>> {
        if let Some((asked, tree)) = &*held(&self.active)
            && asked.elapsed() < FRESH
        {
            return Some(tree.clone());
        }
        let configuration = Client::new(&self.state_dir).ask(&CONFIGURATION, &NoArguments {}).ok()?;
        let tree = Arc::new(sluice_language::parse(&configuration.text, &configuration.file).ok()?);
        *held(&self.active) = Some((Instant::now(), tree.clone()));
        Some(tree)
    }

    /// Nothing is offered when the daemon does not answer.
    fn ask(&self, what: &str) -> Names {
        let (client, all) = (Client::new(&self.state_dir), &NoArguments {});
        match what {
            "gtp-u-session" => {
                let list = client.ask(&GTPU_SESSIONS, &Default::default()).unwrap_or_default();
                let sessions = list.sessions.into_iter();
                sessions.map(|session| (session.name, format!("peer {}", session.peer))).collect()
            }
            "zone" => {
                let zones = client.ask(&ZONES, all).unwrap_or_default();
                zones.into_iter().map(|zone| (zone.name, zone.interfaces.join(", "))).collect()
            }
            "interface" => {
                let list = client.ask(&INTERFACES, all).unwrap_or_default();
                list.into_iter().map(|i| (i.name, format!("in zone {}", i.zone))).collect()
            }
            "policy" => {
                let list = client.ask(&POLICIES, all).unwrap_or_default();
                list.into_iter().map(|p| (p.name, format!("from {} to {}", p.from_zone, p.to_zone))).collect()
            }
            "source-rule" | "destination-rule" | "static-rule" | "nat64-rule" => {
                let rules = client.ask(&NAT, all).unwrap_or_default().rules;
                let of_kind = rules.into_iter().filter(|rule| what.starts_with(&rule.kind));
                of_kind.map(|rule| (rule.name, format!("of rule-set {}", rule.rule_set))).collect()
            }
            "source-pool" => {
                let pools = client.ask(&NAT, all).unwrap_or_default().pools;
                pools.into_iter().map(|pool| (pool.name, pool.addresses.join(", "))).collect()
            }
            "destination-pool" => {
                let pools = client.ask(&NAT, all).unwrap_or_default().destination_pools;
                pools.into_iter().map(|pool| (pool.name, pool.addresses)).collect()
            }
            "log" | "log-file" => {
                let given =
                    [("messages", "what the daemon has said of itself"), ("session", "the session log")];
                let given = given.map(|(name, help)| (name.to_owned(), help.to_owned()));
                let files = self.active().map(|tree| tree.names("<file>")).unwrap_or_default();
                let files = files.into_iter().map(|name| (name, "a file".to_owned()));
                given.into_iter().filter(|_| what == "log").chain(files).collect()
            }
            "application" => self.applications(),
            "protocol" => {
                ["icmp", "icmp6", "tcp", "udp"].map(|name| (name.to_owned(), String::new())).to_vec()
            }
            "device" => devices(),
            _ => vec![],
        }
    }

    fn applications(&self) -> Names {
        let own = self.active().map(|tree| tree.names("<application>")).unwrap_or_default();
        let own = own.into_iter().map(|name| (name, "of this configuration".to_owned()));
        let given =
            sluice_language::predefined_applications().map(|name| (name.to_owned(), "predefined".to_owned()));
        own.chain(given).collect()
    }
}

impl Known for Daemon {
    fn class(&self) -> usize {
        rank(self.class)
    }

    fn names(&self, what: &str) -> Names {
        if let Some((asked, names)) = held(&self.names).get(what)
            && asked.elapsed() < FRESH
        {
            return names.clone();
        }
        let mut names = self.ask(what);
        names.sort();
        names.dedup_by(|a, b| a.0 == b.0);
        held(&self.names).insert(what.to_owned(), (Instant::now(), names.clone()));
        names
    }

    fn tree(&self, places: Places) -> Option<Arc<Tree>> {
        match places {
            Places::Active => self.active(),
            Places::Possible | Places::Present | Places::Until(_) => self.candidate(),
        }
    }

    fn place(&self) -> Vec<String> {
        held(&self.place).clone()
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Network devices of this namespace.
fn devices() -> Names {
    let names = nix::net::if_::if_nameindex();
    let names =
        names.iter().flat_map(|list| list.iter().map(|device| device.name().to_string_lossy().into_owned()));
    names.map(|name| (name, "device of this machine".to_owned())).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A world without anything.
    pub struct Nothing;

    impl Known for Nothing {
        fn class(&self) -> usize {
            rank(Role::Owner)
        }

        fn names(&self, _: &str) -> Vec<(String, String)> {
            vec![]
        }

        fn tree(&self, _: Places) -> Option<Arc<Tree>> {
            None
        }

        fn place(&self) -> Vec<String> {
            vec![]
        }
    }
}
