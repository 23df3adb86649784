//! The HTTP interface: everything on the unix socket, the questions only on TCP, and of these not what is owners' only.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::net::{TcpListener, UnixListener};

use crate::api::nat::NatBindingFilter;
use crate::api::{
    Cleared, ErrorBody, GrantFilter, GrantRequest, LogQuery, MatchQuery, RevokeRequest, SessionFilter,
};
use crate::connections::{Peer, Pools, Seated, Who};
use crate::engine::{CommitError, Engine, Source};
use crate::fan_out::FanOutService;
use crate::gate::GateError;
use crate::sessions::{self, Matcher};
use crate::shared::Shared;
use crate::{api, bindings, gate, hosts, matching, metrics, nat, views};

/// A configuration of this size has tens of thousands of policies.
pub const LARGEST_BODY: usize = 16 << 20;

#[derive(Clone)]
pub struct App {
    pub shared: Arc<Shared>,
    /// One commit at a time; the others wait.
    pub engine: Arc<Mutex<Engine>>,
    pub fan_out: FanOutService,
    pub pools: Pools,
    /// Besides its address: what this host is called over TCP.
    pub names: Arc<[String]>,
}

/// Questions: they change nothing.
fn questions() -> Router<App> {
    Router::new()
        .route("/health", get(|State(app): State<App>| async move { Json(views::health(&app.shared)) }))
        .route("/metrics", get(metrics_text))
        .route("/api/stats", get(|State(app): State<App>| answer(app, views::stats)))
        .route("/api/interfaces", get(|State(app): State<App>| answer(app, views::interfaces)))
        .route("/api/screens", get(|State(app): State<App>| answer(app, views::screens)))
        .route("/api/nat", get(|State(app): State<App>| answer(app, nat::view)))
        .route("/api/zones", get(|State(app): State<App>| answer(app, views::zones)))
        .route("/api/policies", get(|State(app): State<App>| answer(app, views::policies)))
        .route("/api/match-policies", get(match_policies))
        .route("/api/pipeline", get(|| async { Json(api::pipeline()) }))
        .route("/api/gate", get(|State(app): State<App>| answer(app, gate::overview)))
}

/// Questions whose answers are owners' and their group's: how the network is protected, who its users are, and who talks to
/// whom.
fn confidential() -> Router<App> {
    Router::new()
        .route("/api/sessions", get(list_sessions))
        .route("/api/log", get(session_log))
        .route("/api/nat/bindings", get(|State(app): State<App>| answer(app, bindings::view)))
        .route("/api/gate/grants", get(list_grants))
        .route(
            "/api/configuration",
            get(|State(app): State<App>| async move { Json(views::configuration(&app.shared)) }),
        )
        .route_layer(from_fn(require_group))
}

pub fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    // The lock is ours, so a socket that is there belongs to a daemon that ended.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Everyone on this machine may ask; only root and the daemon's own user may change something.
pub async fn serve_unix(listener: UnixListener, app: App) -> std::io::Result<()> {
    let changes = Router::new()
        .route("/api/commit", post(commit))
        .route("/api/sessions/clear", post(clear_sessions))
        .route("/api/nat/bindings/clear", post(clear_bindings))
        .route("/api/gate/grant", post(grant))
        .route("/api/gate/revoke", post(revoke))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .route_layer(from_fn(require_owner));
    let listener = Seated { listener, pools: app.pools.clone() };
    let router = questions().merge(confidential()).merge(changes);
    let router = router.layer(from_fn_with_state(app.clone(), in_turn)).with_state(app);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).await
}

pub async fn bind_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

pub async fn serve_tcp(listener: TcpListener, app: App) -> std::io::Result<()> {
    let listener = Seated { listener, pools: app.pools.clone() };
    let router = questions().merge(confidential());
    let router = router.layer(from_fn_with_state(app.clone(), in_turn));
    let router = router.layer(from_fn_with_state(app.clone(), require_own_name)).with_state(app);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).await
}

/// Whatever others ask at one time, threads and processors remain for owners.
async fn in_turn(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let _work = peer.at_work();
    let _turn = app.pools.turn(peer.who).await;
    next.run(request).await
}

async fn require_own_name(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let Who::Tcp { local, .. } = peer.who else {
        return failure(StatusCode::BAD_REQUEST, "the connection has no address");
    };
    let active = app.shared.active();
    let names = app.names.iter().chain(&active.config.system.host_name).map(String::as_str);
    let (parts, body) = request.into_parts();
    match hosts::check(&parts, local, names) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err((status, why)) => failure(status, why),
    }
}

async fn require_owner(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    match peer.who.is_owner() {
        true => next.run(request).await,
        false => failure(StatusCode::FORBIDDEN, "only root and the daemon's own user may change something"),
    }
}

async fn require_group(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    const WHO: &str = "only root, the daemon's own user and its group may read this";
    match peer.who {
        who if who.may_read_all() => next.run(request).await,
        Who::Tcp { .. } => failure(
            StatusCode::FORBIDDEN,
            format!("{WHO}, and over TCP nobody knows who asks: use the unix socket (`sluice show`)"),
        ),
        _ => failure(StatusCode::FORBIDDEN, WHO),
    }
}

fn failure(status: StatusCode, error: impl ToString) -> Response {
    (status, Json(ErrorBody { error: error.to_string() })).into_response()
}

/// Runs work that asks the kernel or takes long away from the tasks that serve connections.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| failure(StatusCode::INTERNAL_SERVER_ERROR, format!("internal error: {e}")))
}

fn respond<T: serde::Serialize>(result: Result<Result<T, CommitError>, Response>) -> Response {
    match result {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) if error.is_bad_input() => failure(StatusCode::UNPROCESSABLE_ENTITY, error),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(response) => response,
    }
}

async fn answer<T: serde::Serialize + Send + 'static>(
    app: App,
    view: fn(&Shared) -> Result<T, CommitError>,
) -> Response {
    respond(blocking(move || view(&app.shared)).await)
}

async fn metrics_text(State(app): State<App>) -> Response {
    match blocking(move || Ok((views::stats(&app.shared)?, nat::view(&app.shared)?))).await {
        Ok(Ok((stats, nat))) => {
            let text = metrics::text(&stats, &nat);
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
        }
        Ok(Err::<_, CommitError>(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(response) => response,
    }
}

async fn list_sessions(State(app): State<App>, Query(filter): Query<SessionFilter>) -> Response {
    match Matcher::new(&filter, &app.shared.active()) {
        Err(error) => failure(StatusCode::BAD_REQUEST, error),
        Ok(matcher) => respond(blocking(move || sessions::list(&app.shared, &filter, &matcher)).await),
    }
}

async fn match_policies(State(app): State<App>, Query(query): Query<MatchQuery>) -> Response {
    let active = app.shared.active();
    let matched = match &active.rules {
        Some(rules) => matching::in_force(&query, &active.plan, rules),
        None => matching::planned(&query, &active.plan),
    };
    match matched {
        Ok(view) => Json(view).into_response(),
        Err(error) => failure(StatusCode::BAD_REQUEST, error),
    }
}

async fn session_log(State(app): State<App>, Query(query): Query<LogQuery>) -> Response {
    Json(app.shared.log.last(query.last)).into_response()
}

async fn clear_sessions(State(app): State<App>, body: String) -> Response {
    let body = if body.trim().is_empty() { "{}" } else { &body };
    let filter: SessionFilter = match serde_json::from_str(body) {
        Ok(filter) => filter,
        Err(error) => return failure(StatusCode::BAD_REQUEST, format!("the filter cannot be read: {error}")),
    };
    match Matcher::new(&filter, &app.shared.active()) {
        Err(error) => failure(StatusCode::BAD_REQUEST, error),
        Ok(matcher) => respond(
            blocking(move || sessions::clear(&app.shared, &matcher).map(|cleared| Cleared { cleared })).await,
        ),
    }
}

async fn clear_bindings(State(app): State<App>, body: String) -> Response {
    let body = if body.trim().is_empty() { "{}" } else { &body };
    let filter: NatBindingFilter = match serde_json::from_str(body) {
        Ok(filter) => filter,
        Err(error) => return failure(StatusCode::BAD_REQUEST, format!("the filter cannot be read: {error}")),
    };
    respond(blocking(move || bindings::clear(&app.shared, &filter).map(|cleared| Cleared { cleared })).await)
}

async fn list_grants(State(app): State<App>, Query(filter): Query<GrantFilter>) -> Response {
    respond(blocking(move || gate::list(&app.shared, &filter)).await)
}

/// One grant, or a list of them.
async fn grant(State(app): State<App>, ConnectInfo(peer): ConnectInfo<Peer>, body: String) -> Response {
    let done = blocking(move || {
        // read as what it is: an error then names the field
        let requests: Result<Vec<GrantRequest>, _> = match body.trim_start().starts_with('[') {
            true => serde_json::from_str(&body),
            false => serde_json::from_str(&body).map(|one| vec![one]),
        };
        let requests = requests.map_err(|e| GateError::Bad(format!("the grants cannot be read: {e}")))?;
        gate::grant(&app.shared, &requests, &who(&peer))
    });
    gate_answer(done.await)
}

async fn revoke(State(app): State<App>, ConnectInfo(peer): ConnectInfo<Peer>, body: String) -> Response {
    let done = blocking(move || {
        let request: RevokeRequest = serde_json::from_str(&body)
            .map_err(|error| GateError::Bad(format!("the request cannot be read: {error}")))?;
        gate::revoke(&app.shared, &request, &who(&peer))
    });
    gate_answer(done.await)
}

/// As the audit names it.
fn who(peer: &Peer) -> String {
    match peer.who {
        Who::User { uid, .. } => format!("uid {uid}"),
        _ => "unknown".to_owned(),
    }
}

fn gate_answer<T: serde::Serialize>(result: Result<Result<T, GateError>, Response>) -> Response {
    match result {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) if error.is_bad_input() => failure(StatusCode::UNPROCESSABLE_ENTITY, error),
        Ok(Err(error)) if error.is_full() => failure(StatusCode::INSUFFICIENT_STORAGE, error),
        Ok(Err(error @ GateError::Refused(_))) => failure(StatusCode::CONFLICT, error),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(response) => response,
    }
}

#[derive(Deserialize)]
struct CommitQuery {
    /// Name of the text in error messages.
    file: Option<String>,
}

async fn commit(State(app): State<App>, Query(query): Query<CommitQuery>, text: String) -> Response {
    let file = query.file.unwrap_or_else(|| "(commit)".to_owned());
    respond(
        blocking(move || {
            app.fan_out.learn(&text, &file);
            let mut engine = app.engine.lock().unwrap_or_else(PoisonError::into_inner);
            engine.commit(Source { text, file }, &app.shared)
        })
        .await,
    )
}
