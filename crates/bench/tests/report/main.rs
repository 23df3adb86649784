//! The report, opened by a browser: it must load nothing, say nothing on its console, and let no text fall out or lie on
//! another.

mod example;

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_bench::method::document::RunDocument;
use sluice_bench::method::result::Check;
use sluice_bench::report::html::render;
use sluice_bench::suites::SUITES;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn chromium(page: &Path, arguments: &[&str]) -> (String, String) {
    let url = format!("file://{}", page.display());
    sluice_lab::browser::chromium(&url, &page.with_extension("profile"), 2000, arguments)
}

/// Appended to a copy of the page: measures what a reader would see and writes it into the page.
const JUDGE: &str = r##"<script>
addEventListener("load", () => {
  const seen = { wide: document.documentElement.scrollWidth - innerWidth, out: [], over: [], unnamed: [], unseen: [] };
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width < 10 || frame.height < 5) seen.unseen.push(svg.getAttribute("aria-label"));
    if (!svg.getAttribute("aria-label")) seen.unnamed.push(svg.outerHTML.slice(0, 80));
    const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent);
    const boxes = texts.map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, box] of boxes) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        seen.out.push(text.textContent);
      for (const [other, its] of boxes) {
        const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (text !== other && across > 2 && down > 4) seen.over.push(text.textContent + " | " + other.textContent);
      }
    }
  }
  document.getElementById("look").open = true;
  setTimeout(() => {
    seen.raw = document.getElementById("shown").textContent.length;
    seen.colour = getComputedStyle(document.body).backgroundColor;
    const out = document.createElement("pre");
    out.id = "judged";
    out.textContent = JSON.stringify(seen);
    document.body.append(out);
  }, 100);
});
</script>"##;

fn judge(document: &RunDocument, name: &str, arguments: &[&str]) -> Value {
    let page = file(name);
    std::fs::write(&page, render(document, SUITES).unwrap() + JUDGE).unwrap();
    let (dom, log) = chromium(&page, &[arguments, &["--dump-dom"]].concat());
    assert!(!log.contains("CONSOLE"), "the page complains: {log}");
    let found = dom.split_once(r#"<pre id="judged">"#).and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) = found.unwrap_or_else(|| panic!("the page's scripts did not run: {log}"));
    serde_json::from_str(&seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap()
}

#[test]
fn a_browser_shows_it_wide_and_narrow_light_and_dark() {
    let document = example::document();
    let dark = "--blink-settings=preferredColorScheme=0";
    let mut colours = vec![];
    for (name, arguments) in [
        ("wide.html", vec!["--window-size=1440,1000"]),
        ("dark.html", vec!["--window-size=1440,1000", dark]),
        ("narrow.html", vec!["--window-size=500,900"]),
    ] {
        let seen = judge(&document, name, &arguments);
        assert!(seen["wide"].as_f64().unwrap() <= 0.0, "{name}: the page is wider than its window: {seen}");
        for fault in ["out", "over", "unnamed", "unseen"] {
            assert_eq!(seen[fault].as_array().unwrap().len(), 0, "{name}: {fault}: {}", seen[fault]);
        }
        assert!(seen["raw"].as_u64().unwrap() > 10_000, "{name}: the raw results cannot be read: {seen}");
        colours.push(seen["colour"].as_str().unwrap().to_owned());
    }
    assert_ne!(colours[0], colours[1], "dark looks like light");
}

#[test]
fn the_judge_finds_a_page_that_is_wrong() {
    let broken = r#"<svg viewBox="0 0 10 10" style="width:100px"><text x="0" y="5">far too long a text</text>
        <text x="1" y="5">another one on top of it</text></svg><div style="width:3000px">wide</div>"#;
    let page = render(&example::document(), SUITES)
        .unwrap()
        .replace("<main class=\"wide\">", &format!("<main class=\"wide\">{broken}"));
    std::fs::write(file("broken.html"), page + JUDGE).unwrap();
    let (dom, _) = chromium(&file("broken.html"), &["--window-size=900,900", "--dump-dom"]);
    let seen = dom.split_once(r#"<pre id="judged">"#).unwrap().1;
    assert!(
        !seen.contains("\"out\":[]") && !seen.contains("\"over\":[]") && !seen.contains("\"unnamed\":[]"),
        "{seen}"
    );
    assert!(!seen.contains("\"wide\":0"), "{seen}");
}

#[test]
fn it_prints_on_a_few_pages() {
    let page = file("print.html");
    std::fs::write(&page, render(&example::document(), SUITES).unwrap()).unwrap();
    let pdf = file("print.pdf");
    let _ = std::fs::remove_file(&pdf);
    chromium(&page, &["--no-pdf-header-footer", &format!("--print-to-pdf={}", pdf.display())]);
    let bytes = std::fs::read(&pdf).unwrap();
    let pages = bytes.windows(12).filter(|window| window == b"/Type /Page\n").count();
    assert!((2..=12).contains(&pages), "{pages} pages");
}

#[test]
fn it_loads_nothing() {
    let page = render(&example::document(), SUITES).unwrap();
    assert!(page.contains("default-src 'none'"));
    for loaded in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(loaded), "the page has {loaded}");
    }
}

#[test]
fn what_others_wrote_stays_text() {
    let mut document = example::document();
    document.command = "sluice bench \"</script><script>alert(1)</script>\"".to_owned();
    document.suites[0].notes.push("<img onerror=alert(1)>".to_owned());
    let page = render(&document, SUITES).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    let results = page.split_once("id=\"results\">").unwrap().1.split_once("</script>").unwrap().0;
    let read: RunDocument = serde_json::from_str(results).unwrap();
    assert_eq!(read.command, document.command);
}

#[test]
fn only_what_stood_its_checks_is_at_the_top() {
    let mut document = example::document();
    let cards = |document: &RunDocument| {
        let page = render(document, SUITES).unwrap();
        page.matches("<a class=\"card\"").count()
    };
    let before = cards(&document);
    assert_eq!(before, 4, "of six headlines one is unsteady and one failed a check");
    document.suites[0].checks.push(Check::new("no tracing", false, "kernel.bpf_stats_enabled is 1"));
    assert_eq!(cards(&document), before - 1);
}
