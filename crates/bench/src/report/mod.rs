//! The report: one HTML file with inline SVG that needs no network.

use anyhow::Result;

use crate::result::RunDocument;

pub fn html(document: &RunDocument) -> Result<String> {
    Ok(format!("<!doctype html><pre>{}</pre>", crate::text::document(document).replace('<', "&lt;")))
}
