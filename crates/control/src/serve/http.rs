//! The HTTP interface: everything on the unix socket, the questions only on TCP, and of these not what is owners' only.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::rejection::StringRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{self, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::ErrorBody;
use crate::kernel::process::Process;
use crate::serve::connections::{AtWork, Peer, Pools, Seated, Who};
use crate::serve::hosts;
use crate::serve::operations::{
    Failure, Fault, Gateway, LARGEST_BODY, Listed, Method, OPERATIONS, Order, Reply, Role,
};

#[derive(Clone)]
pub struct App {
    pub gateway: Gateway,
    pub pools: Pools,
    /// Besides its address: what this host is called over TCP.
    pub names: Arc<[String]>,
}

/// The operations of a role, and the only place where routes come from.
fn routes(role: Role) -> Router<App> {
    let listed = OPERATIONS.iter().filter(|operation| operation.about().role == role);
    let router = listed
        .fold(Router::new(), |router, operation| router.route(operation.about().path, handler(*operation)));
    match role {
        Role::Anyone => router,
        Role::Group => router.route_layer(from_fn(require_group)),
        Role::Owner => router.layer(DefaultBodyLimit::max(LARGEST_BODY)).route_layer(from_fn(require_owner)),
    }
}

fn handler(operation: &'static dyn Listed) -> MethodRouter<App> {
    match operation.about().method {
        Method::Get => get(move |State(app): State<App>, Extension(turn): Extension<Turn>, uri: Uri| {
            answer(app, turn, operation, uri, Order::default())
        }),
        Method::Post => post(
            async move |State(app): State<App>,
                        Extension(turn): Extension<Turn>,
                        peer: ConnectInfo<Peer>,
                        uri: Uri,
                        body: Sent| match body {
                Ok(body) => answer(app, turn, operation, uri, order(body, &peer.0)).await,
                Err(rejection) => unread(rejection).into_response(),
            },
        ),
    }
}

/// What a request has in its body, which may be too large, or no text.
type Sent = Result<String, StringRejection>;

fn unread(rejection: StringRejection) -> Failure {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Failure::new(
            Fault::Large,
            format!("the body has more than the {LARGEST_BODY} bytes that are read; send less at a time"),
        ),
        _ => Failure::arguments(format!(
            "the body cannot be read, it must be UTF-8: {}",
            rejection.body_text()
        )),
    }
}

/// Work that asks the kernel or takes long is done away from the tasks that serve connections. It goes on when its client has
/// hung up, and has its turn until it is done.
async fn answer(app: App, turn: Turn, operation: &'static dyn Listed, uri: Uri, order: Order) -> Response {
    let run = move || {
        let _turn = turn;
        operation.run(&app.gateway, &uri, order)
    };
    if !operation.takes_time() {
        return run().into_response();
    }
    match tokio::task::spawn_blocking(run).await {
        Ok(done) => done.into_response(),
        Err(error) => Failure::new(Fault::Internal, format!("internal error: {error}")).into_response(),
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.form)], self.body).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Query(rejection) => failure(rejection.status(), rejection.body_text()),
            Self::Said { fault, message } => failure(fault.status(), message),
        }
    }
}

fn order(body: String, peer: &Peer) -> Order {
    let uid = match peer.who {
        Who::User { uid, .. } => Some(uid),
        _ => None,
    };
    // as the audit names it
    let by = uid.map_or_else(|| "unknown".to_owned(), |uid| format!("uid {uid}"));
    Order { body, by, uid, process: peer.pid.and_then(Process::of) }
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
    let listener = Seated { listener, pools: app.pools.clone() };
    let router = Role::ALL.map(routes).into_iter().fold(Router::new(), Router::merge);
    let router = or_nothing(router).layer(from_fn_with_state(app.clone(), with_permit)).with_state(app);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).await
}

/// What is said where there is no operation.
fn or_nothing(router: Router<App>) -> Router<App> {
    let nothing = |uri: Uri| async move {
        let path = uri.path();
        failure(
            StatusCode::NOT_FOUND,
            format!("{path}: there is nothing here; /api/openapi.json lists what there is"),
        )
    };
    let otherwise = |method: http::Method, uri: Uri| async move {
        let path = uri.path();
        failure(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{path}: {method} is not for this; see /api/openapi.json"),
        )
    };
    router.fallback(nothing).method_not_allowed_fallback(otherwise)
}

pub async fn bind_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

pub async fn serve_tcp(listener: TcpListener, app: App) -> std::io::Result<()> {
    let listener = Seated { listener, pools: app.pools.clone() };
    let router = routes(Role::Anyone).merge(routes(Role::Group));
    let router = or_nothing(router).layer(from_fn_with_state(app.clone(), with_permit));
    let router = router.layer(from_fn_with_state(app.clone(), require_own_name)).with_state(app);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).await
}

/// Whatever others ask at one time, threads and processors remain for owners.
async fn with_permit(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let work = peer.at_work();
    let permit = app.pools.permit(peer.who).await;
    request.extensions_mut().insert(Turn(Arc::new((work, permit))));
    next.run(request).await
}

/// A request is being worked on as long as one of these lives.
#[derive(Clone)]
struct Turn(#[expect(dead_code, reason = "held")] Arc<(AtWork, Option<OwnedSemaphorePermit>)>);

async fn require_own_name(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let Who::Tcp { local, .. } = peer.who else {
        return failure(StatusCode::BAD_REQUEST, "the connection has no address");
    };
    let active = app.gateway.shared.active();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two operations of one path and method end the program when routes are made.
    #[test]
    fn all_roles_have_routes_that_stand_beside_each_other() {
        let _all = Role::ALL.map(routes).into_iter().fold(Router::new(), Router::merge);
    }
}
