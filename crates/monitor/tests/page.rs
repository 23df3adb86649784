//! The web page in a browser: it draws what the REST interface says, complains of nothing, and nothing falls out of its
//! place, wide and narrow, light and dark, on screen and on paper.

use crate::common;

use std::path::{Path, PathBuf};

use common::{Link, store};
use serde_json::{Value, json};
use sluice_monitor::results::Detail;
use sluice_monitor::serve::{Served, router};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn chromium(url: &str, profile: &str, arguments: &[&str]) -> (String, String) {
    sluice_lab::browser::chromium(url, &file(profile).with_extension("profile"), 4000, arguments)
}

/// Measures what a reader would see and writes it into the page.
const JUDGE: &str = r##"
addEventListener("load", () => {
  const judge = () => {
    if (!document.body.dataset.drawn) return setTimeout(judge, 50);
    if (!shown.open && document.querySelector(".flow button")) { document.querySelector(".flow button").click(); return setTimeout(judge, 400); }
    const seen = { wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, out: [], over: [], unnamed: [], charts: 0 };
    for (const svg of document.querySelectorAll("svg")) {
      const frame = svg.getBoundingClientRect();
      if (frame.width > 100 && frame.height > 30) seen.charts += 1;
      if (!svg.getAttribute("aria-label")) seen.unnamed.push(svg.outerHTML.slice(0, 80));
      const boxes = [...svg.querySelectorAll("text")].filter((text) => text.textContent).map((text) => [text, text.getBoundingClientRect()]);
      for (const [text, box] of boxes) {
        if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) seen.out.push(text.textContent);
        for (const [other, its] of boxes) {
          const across = Math.min(box.right, its.right) - Math.max(box.left, its.left), down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
          if (text !== other && across > 2 && down > 4) seen.over.push(text.textContent + " | " + other.textContent);
        }
      }
    }
    const axis = document.querySelector("#course svg"), top = (kind) => Math.min(...[...axis.querySelectorAll(kind)].map((part) => part.getBBox().y));
    const ticks = [...axis.querySelectorAll("text.tick")].filter((text) => text.getAttribute("text-anchor") === "end").map((text) => +text.getAttribute("y") - 4).sort((a, b) => a - b);
    seen.above = { rate: ticks[0] - top("path.line"), loss: Math.min(...ticks.filter((y) => y > 200)) - top("rect.loss") };
    seen.sorted = [...document.querySelectorAll("#columns th[aria-sort]")].map((th) => th.textContent + " " + th.getAttribute("aria-sort"));
    seen.heading = document.getElementById("h-flows").textContent;
    seen.red = document.querySelectorAll("#flows > tr > td.bad").length;
    seen.redBars = document.querySelectorAll("#course rect.much").length;
    const table = document.getElementById("flows").closest(".scroll");
    seen.sideways = { wants: table.scrollWidth, has: table.clientWidth, is: table.scrollWidth > table.clientWidth + 1, said: !document.getElementById("sideways").hidden && document.getElementById("sideways").getBoundingClientRect().height > 0, faded: getComputedStyle(table).maskImage !== "none" };
    seen.rows = document.querySelectorAll("#flows > tr").length;
    seen.tiles = [...document.querySelectorAll(".tile b")].map((tile) => tile.textContent);
    seen.kinds = document.querySelectorAll("#anomalies > li").length;
    seen.colour = getComputedStyle(document.body).backgroundColor;
    const out = document.createElement("pre");
    out.id = "judged";
    out.textContent = JSON.stringify(seen);
    document.body.append(out);
  };
  judge();
});
"##;

/// A server whose page carries the judge, when that is asked for.
struct Server {
    url: String,
    _runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Server {
    fn new(judged: bool) -> Self {
        Server::of(Link::new(40, 300_000, 200_000).troubled(), judged)
    }

    fn of(mut link: Link, judged: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.db");
        store(&mut link, &path, Detail::Full);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut router = router(&Served::new(&path));
        if judged {
            router = router.layer(axum::middleware::map_response(add_judge));
        }
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Server { url, _runtime: runtime, _folder: folder }
    }
}

/// Into the page's own script, because its policy lets no other run.
async fn add_judge(response: axum::response::Response) -> axum::response::Response {
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 26).await.unwrap();
    let is_page = parts.headers["content-type"].to_str().unwrap().starts_with("text/html");
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let text = if is_page { text.replace("\n</script>", &format!("\n{JUDGE}</script>")) } else { text };
    parts.headers.remove("content-length");
    axum::response::Response::from_parts(parts, axum::body::Body::from(text))
}

fn judge(server: &Server, name: &str, arguments: &[&str]) -> Value {
    let (dom, log) = chromium(&server.url, name, &[arguments, &["--dump-dom"]].concat());
    assert!(!log.contains("CONSOLE"), "{name}: the page complains: {log}");
    let found = dom.split_once(r#"<pre id="judged">"#).and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) = found.unwrap_or_else(|| panic!("{name}: the page was not drawn: {log} {dom}"));
    serde_json::from_str(&seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap()
}

#[test]
fn a_browser_shows_it_wide_and_narrow_light_and_dark() {
    let server = Server::new(true);
    let dark = "--blink-settings=preferredColorScheme=0";
    let mut colours = vec![];
    for (name, arguments) in [
        ("wide", vec!["--window-size=1440,1000"]),
        ("dark", vec!["--window-size=1440,1000", dark]),
        ("narrow", vec!["--window-size=500,900"]),
    ] {
        let seen = judge(&server, name, &arguments);
        assert!(seen["wide"].as_f64().unwrap() <= 0.0, "{name}: the page is wider than its window: {seen}");
        for fault in ["out", "over", "unnamed"] {
            assert_eq!(seen[fault].as_array().unwrap().len(), 0, "{name}: {fault}: {}", seen[fault]);
        }
        assert_eq!(seen["charts"], 4, "{name}: course, channel, rekeys, depths: {seen}");
        assert_eq!(seen["rows"], 21, "{name}: a page of channels and one opened: {seen}");
        assert!(seen["kinds"].as_u64().unwrap() >= 4, "{name}: {seen}");
        assert_eq!(seen["tiles"].as_array().unwrap().len(), 8, "{name}: {seen}");
        assert_eq!(
            seen["sorted"],
            json!(["Trouble descending"]),
            "{name}: the order is marked where it comes from"
        );
        assert_eq!(seen["heading"], "Channels, worst first", "{name}");
        for axis in ["rate", "loss"] {
            let above = seen["above"][axis].as_f64().unwrap();
            assert!(above <= 0.1, "{name}: the {axis} goes {above} above its top tick");
        }
        let sideways = &seen["sideways"];
        assert_eq!(sideways["is"], name == "narrow", "{name}: {sideways}");
        assert_eq!(
            (&sideways["said"], &sideways["faded"]),
            (&sideways["is"], &sideways["is"]),
            "{name}: a word of it"
        );
        assert!(seen["red"].as_u64().unwrap() > 0 && seen["redBars"].as_u64().unwrap() > 0, "{name}: {seen}");
        colours.push(seen["colour"].as_str().unwrap().to_owned());
    }
    assert_ne!(colours[0], colours[1], "dark looks like light");
}

/// Colour is for what stands out: where every channel loses alike, none does.
#[test]
fn where_all_suffer_alike_nothing_is_marked() {
    let server = Server::of(Link::new(40, 300_000, 200_000).suffering(), true);
    let seen = judge(&server, "suffering", &["--window-size=1440,1000"]);
    assert_eq!((&seen["red"], &seen["redBars"]), (&json!(0), &json!(0)), "{seen}");
    assert_eq!(seen["rows"], 21, "{seen}");
    assert!(seen["tiles"][1].as_str().unwrap().starts_with("10"), "a tenth is lost: {seen}");
}

#[test]
fn it_prints_on_a_few_pages() {
    let server = Server::new(false);
    let pdf = file("monitor.pdf");
    let _ = std::fs::remove_file(&pdf);
    chromium(&server.url, "print", &["--no-pdf-header-footer", &format!("--print-to-pdf={}", pdf.display())]);
    let bytes = std::fs::read(&pdf).unwrap();
    let pages = bytes.windows(12).filter(|window| window == b"/Type /Page\n").count();
    assert!((1..=8).contains(&pages), "{pages} pages");
}

/// `cargo test -p sluice-monitor --test all page:: -- --ignored`: pictures for people, in target/tmp.
#[test]
#[ignore = "pictures for people"]
fn pictures() {
    let server = Server::new(true);
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, arguments) in [
        ("light", vec!["--window-size=1440,3000"]),
        ("dark", vec!["--window-size=1440,3000", dark]),
        ("narrow", vec!["--window-size=500,4600"]),
    ] {
        let picture = format!("--screenshot={}", file(&format!("monitor-{name}.png")).display());
        chromium(&server.url, name, &[&arguments[..], &[&picture]].concat());
    }
}
