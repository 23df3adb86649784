//! Answers without the daemon: what its maps and its last commit say, when it does not answer.

use std::path::Path;
use std::sync::Arc;

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_dataplane::Dataplane;
use sluice_fanout::Names;
use sluice_plan::Plan;

use crate::api::{GrantFilter, MatchQuery, SessionFilter};
use crate::audit::Audit;
use crate::bpffs::{self, BpffsError};
use crate::devices::Latest;
use crate::error::AskError;
use crate::fan_out::FanOutService;
use crate::functions::CommitError;
use crate::kernel::Kernel;
use crate::sessions::Matcher;
use crate::shared::{Active, Shared};
use crate::store::{self, StoreError, Stored};
use crate::{bindings, config, environment, gate, matching, nat, sessions, views};

#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("only the daemon knows that")]
    Daemon,
    #[error("{0}")]
    Query(String),
    #[error("nothing was committed there")]
    Nothing,
    #[error("the data plane is another version's, or is being made")]
    Other,
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{0}")]
    Os(#[from] std::io::Error),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// What `GET path` would answer. Nothing is changed by it.
pub fn answer(state_dir: &Path, path: &str) -> Result<Value, OfflineError> {
    let uri: Uri = path.parse().map_err(|_| OfflineError::Query(format!("{path} is no question")))?;
    if !QUESTIONS.iter().any(|(known, _)| *known == uri.path()) {
        return Err(OfflineError::Daemon);
    }
    let runtime = crate::runtime()?;
    let kernel = Kernel::connect(runtime.handle()).map_err(AskError::from)?;
    let shared = shared(state_dir, kernel)?;
    let ask = QUESTIONS.iter().find(|(known, _)| *known == uri.path()).map(|(_, ask)| ask);
    ask.map_or(Err(OfflineError::Daemon), |ask| ask(&shared, &uri))
}

type Ask = fn(&Shared, &Uri) -> Result<Value, OfflineError>;

const QUESTIONS: [(&str, Ask); 12] = [
    ("/api/stats", |shared, _| value(views::stats(shared)?)),
    ("/api/interfaces", |shared, _| value(views::interfaces(shared)?)),
    ("/api/zones", |shared, _| value(views::zones(shared)?)),
    ("/api/policies", |shared, _| value(views::policies(shared)?)),
    ("/api/screens", |shared, _| value(views::screens(shared)?)),
    ("/api/nat", |shared, _| value(nat::view(shared)?)),
    ("/api/nat/bindings", |shared, _| value(bindings::view(shared)?)),
    ("/api/gate", |shared, _| value(gate::overview(shared)?)),
    ("/api/gate/grants", |shared, uri| value(gate::list(shared, &query::<GrantFilter>(uri)?)?)),
    ("/api/configuration", |shared, _| value(views::configuration(shared))),
    ("/api/sessions", |shared, uri| {
        let filter: SessionFilter = query(uri)?;
        let matcher = Matcher::new(&filter, &shared.active()).map_err(OfflineError::Query)?;
        value(sessions::list(shared, &filter, &matcher)?)
    }),
    ("/api/match-policies", |shared, uri| {
        let query: MatchQuery = query(uri)?;
        value(matching::planned(&query, &shared.active().plan).map_err(OfflineError::Query)?)
    }),
];

fn value(answer: impl serde::Serialize) -> Result<Value, OfflineError> {
    Ok(serde_json::to_value(answer)?)
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, OfflineError> {
    Query::try_from_uri(uri).map(|Query(query)| query).map_err(|error| OfflineError::Query(error.to_string()))
}

/// The commit in force, planned once more, and the maps that are there.
fn shared(state_dir: &Path, kernel: Kernel) -> Result<Shared, OfflineError> {
    let stored = store::load(state_dir)?.stored.ok_or(OfflineError::Nothing)?;
    let pin = store::pin_dir(state_dir, &bpffs::find(None)?)?;
    let active = active(stored, &kernel)?;
    let dataplane = Dataplane::read(&pin, config::sizes(&active.config)).map_err(AskError::from)?;
    let dataplane = dataplane.ok_or(OfflineError::Other)?;
    // nothing is done here that would be written down
    let audit = Audit::open(Path::new("/dev/null"))?;
    Ok(Shared::new(Arc::new(dataplane), kernel, active, Arc::new(audit)))
}

fn active(stored: Stored, kernel: &Kernel) -> Result<Active, CommitError> {
    let Stored {
        generation,
        text,
        file,
        mut ids,
        devices_before,
        devices_gone,
        transmits_traced,
        mtus_before,
        ..
    } = stored;
    let mut config = config::parse(&text, &file)?;
    let named = config.fan_out.clone();
    FanOutService::new(Names::default()).resolve(&mut config);
    let environment = environment::read(kernel, &kernel.links()?, &config, &mtus_before)?;
    let plan: Plan = config::plan(&config, &file, &environment, &mut ids, generation)?;
    Ok(Active {
        generation,
        text,
        file,
        config,
        named,
        plan,
        rules: None,
        devices_before,
        devices_latest: Latest::default(),
        devices_gone,
        transmits_traced,
    })
}
