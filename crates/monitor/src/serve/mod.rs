//! REST interface and web page over a database of results.
//!
//! `endpoints` lists every path once: the router, the checks of parameters and the OpenAPI document come from it.

mod endpoints;
mod openapi;
mod parameters;
mod pool;
mod seats;

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::results::DatabaseError;
pub use endpoints::ENDPOINTS;
use endpoints::{Answer, Endpoint};
pub use openapi::document;
use parameters::Question;
use pool::Pool;
use seats::Seats;

/// The page's text; NONCE is replaced for every answer.
const PAGE: &str = concat!(
    include_str!("page/head.html"),
    "<style nonce=\"NONCE\">\n",
    include_str!("page/page.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script nonce=\"NONCE\">\n",
    include_str!("page/draw.js"),
    include_str!("page/page.js"),
    "</script>\n</html>\n"
);

/// What to serve.
#[derive(Clone, Debug)]
pub struct Served {
    /// May be written by a run meanwhile.
    pub database: PathBuf,
    /// Names by which clients may call this server, beside addresses and localhost.
    pub names: Vec<String>,
}

struct App {
    pool: Pool,
    names: Vec<String>,
}

/// An error as clients see it.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    what: String,
    place: String,
    advice: String,
}

impl Failure {
    fn new(
        status: StatusCode,
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Failure { status, what: what.into(), place: place.into(), advice: advice.into() }
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        let (status, advice) = match &error {
            DatabaseError::NoRun { .. } => (StatusCode::NOT_FOUND, "ask /api/v1/runs which runs there are"),
            DatabaseError::Missing { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "start `sluice monitor SOURCE --db FILE`")
            }
            DatabaseError::Locked { .. } => (StatusCode::SERVICE_UNAVAILABLE, "try again in a moment"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "look at the database file on the server"),
        };
        Failure::new(status, error.to_string(), "database", advice)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "what": self.what, "where": self.place, "advice": self.advice } });
        (self.status, Json(body)).into_response()
    }
}

/// The whole interface.
pub fn router(served: &Served) -> Router {
    let app = Arc::new(App { pool: Pool::new(&served.database), names: served.names.clone() });
    let mut router =
        Router::new().route("/", get(page)).route("/openapi.json", get(async || Json(document())));
    for endpoint in ENDPOINTS {
        let handler = move |State(app): State<Arc<App>>,
                            path: Result<RawPathParams, RawPathParamsRejection>,
                            uri: Uri| { answer(app, endpoint, path, uri) };
        router = router.route(endpoint.path, get(handler));
    }
    router
        .method_not_allowed_fallback(async |uri: Uri| {
            let advice = "this interface only answers questions: use GET";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed", uri.path(), advice)
        })
        .fallback(async |uri: Uri| {
            let advice = "see /openapi.json for the paths there are";
            Failure::new(StatusCode::NOT_FOUND, "there is nothing here", uri.path(), advice)
        })
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

/// Serves until the process is told to end.
pub fn run(served: &Served, address: SocketAddr) -> anyhow::Result<()> {
    // Says at once what is wrong with the file.
    drop(crate::results::Reader::open(&served.database)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}: give another with --bind or --port"))?;
        eprintln!("serving {} on http://{}/", served.database.display(), listener.local_addr()?);
        serve(listener, served).await
    })
}

/// Serves on a listener that is there already.
pub async fn serve(listener: TcpListener, served: &Served) -> anyhow::Result<()> {
    let end = async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
        let terminated = async {
            match &mut term {
                Some(term) => drop(term.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
    };
    axum::serve(Seats::new(listener), router(served))
        .with_graceful_shutdown(end)
        .await
        .context("the server failed")
}

async fn answer(
    app: Arc<App>,
    endpoint: &'static Endpoint,
    path: Result<RawPathParams, RawPathParamsRejection>,
    uri: Uri,
) -> Response {
    let question = match Question::new(endpoint, path.as_ref().ok(), &uri) {
        Ok(question) => question,
        Err(failure) => return failure.into_response(),
    };
    // Reading a file may take a while; the tasks that serve connections do not wait for it.
    let asked =
        tokio::task::spawn_blocking(move || app.pool.with(|reader| (endpoint.answer)(reader, &question)))
            .await;
    match asked {
        Ok(Ok(Answer::Json(value))) => Json(value).into_response(),
        Ok(Ok(Answer::Text(text))) => {
            ([(header::CONTENT_TYPE, sluice_metrics::CONTENT_TYPE)], text).into_response()
        }
        Ok(Err(failure)) => failure.into_response(),
        Err(error) => {
            eprintln!("sluice monitor: {}: {error}", endpoint.path);
            let advice = "report this with the server's log";
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", endpoint.path, advice)
                .into_response()
        }
    }
}

async fn page() -> Response {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = ([(header::CONTENT_TYPE, kind)], PAGE.replace("NONCE", &nonce)).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// A number nobody can predict: only scripts that carry it run.
fn nonce() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.expect("/dev/urandom can be read");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers only clients that called this server by an address or a known name: another page's script can make a
/// browser ask us under a name of its own (DNS rebinding), and would read the answer.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| is_ours(host, &app.names)) {
        let what = format!("this server is not called {}", host.unwrap_or("nothing (no Host header)"));
        let advice = "use an address, localhost, or a name that was given with --name";
        return Failure::new(StatusCode::MISDIRECTED_REQUEST, what, "Host header", advice).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

impl Served {
    /// Serves a database to clients that use an address or localhost.
    pub fn new(database: &Path) -> Self {
        Served { database: database.to_owned(), names: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_ours() {
        let names = ["tap.example".to_owned()];
        for host in [
            "127.0.0.1:9999",
            "[::1]:9999",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "10.0.0.1",
            "tap.example:80",
        ] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:9999",
            "127.0.0.1.evil.example",
            "",
            ":80",
            "tap.example.x",
        ] {
            assert!(!is_ours(host, &names), "{host}");
        }
    }

    #[test]
    fn the_page_loads_nothing() {
        for loaded in ["http://", "https://", "src=", "@import", "url("] {
            let page = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(loaded), "the page has {loaded}");
        }
    }
}
