//! The report: one HTML file with inline SVG that needs no network.

mod line;
mod page;
mod rows;
mod scale;
mod svg;
mod time;

use anyhow::Result;
use askama::Template;

use crate::method::chart::Chart;
use crate::method::document::RunDocument;
use crate::method::suite::Suite;

/// The whole page. Its policy forbids the browser to load anything.
pub fn render(document: &RunDocument, suites: &[Suite]) -> Result<String> {
    Ok(page::Page::new(document, suites)?.render()?)
}

/// A chart as inline SVG, with its title and note, and whether it takes the page's whole width.
struct Drawn {
    title: String,
    note: String,
    svg: String,
    wide: bool,
}

fn draw(chart: &Chart) -> Drawn {
    let (title, note, svg) = match chart {
        Chart::Line(chart) => (&chart.title, &chart.note, line::line(chart)),
        Chart::Percentiles(chart) => (&chart.title, &chart.note, line::percentiles(chart)),
        Chart::Waterfall(chart) => (&chart.title, &chart.note, rows::waterfall(chart)),
        Chart::Timeline(chart) => (&chart.title, &chart.note, time::timeline(chart)),
        Chart::Forest(chart) => (&chart.title, &chart.note, rows::forest(chart)),
        Chart::Bars(chart) => (&chart.title, &chart.note, rows::bars(chart)),
        Chart::Flame(chart) => (&chart.title, &chart.note, time::flame(chart)),
    };
    Drawn { title: title.clone(), note: note.clone(), svg, wide: matches!(chart, Chart::Flame(_)) }
}
