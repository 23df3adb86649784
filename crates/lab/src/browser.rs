//! A headless browser, for tests of pages.

use std::path::Path;
use std::process::Command;

const KNOWN: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Opens a page and lets it run for so many milliseconds of its own time; the browser's standard output and its log.
/// `profile` is a folder of this call alone, since a browser locks its profile.
///
/// # Panics
///
/// When there is no browser, or when it fails.
pub fn chromium(url: &str, profile: &Path, milliseconds: u32, arguments: &[&str]) -> (String, String) {
    let found = KNOWN.iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let browser = found.expect(
        "no browser: scripts/setup.sh installs chromium where apt has it, else install google-chrome",
    );
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg(format!("--virtual-time-budget={milliseconds}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(url)
        .output()
        .expect("the browser does not start");
    let _ = std::fs::remove_dir_all(profile);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "chromium failed: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}
