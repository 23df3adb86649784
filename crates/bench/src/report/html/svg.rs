//! Scalable graphics as text. Colours are classes: the page's style sheet decides, in light, dark and print.

use std::fmt::{Display, Write};

pub struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// `label` says what it shows to those who cannot see it.
    pub fn new(width: f64, height: f64, label: &str) -> Svg {
        Svg { width, height, label: label.to_owned(), body: String::new() }
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let shape =
            format!(r#"rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#);
        self.titled(&shape, "rect", title);
    }

    pub fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64, title: &str) {
        self.titled(
            &format!(r#"circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}""#),
            "circle",
            title,
        );
    }

    /// A line through points.
    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let text = coordinates(points);
        let _ = write!(self.body, r#"<polyline class="{class}" points="{text}"/>"#);
    }

    pub fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let text = coordinates(points);
        let _ = write!(self.body, r#"<polygon class="{class}" points="{text}"/>"#);
    }

    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(&text.to_string());
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// Along the left edge, read from below.
    pub fn upright(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{text}</text>"#
        );
    }

    fn titled(&mut self, shape: &str, element: &str, title: &str) {
        let _ = match title {
            "" => write!(self.body, "<{shape}/>"),
            _ => write!(self.body, "<{shape}><title>{}</title></{element}>", escape(title)),
        };
    }

    pub fn finish(self) -> String {
        let Svg { width, height, label, body } = self;
        format!(
            r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}" style="--w:{width:.0}px">{body}</svg>"#,
            escape(&label)
        )
    }
}

fn coordinates(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

/// Shortens to about `width` units of the chart's text size.
pub fn fit(text: &str, width: f64) -> String {
    let most = (width / CHARACTER) as usize;
    if text.chars().count() <= most.max(4) {
        return text.to_owned();
    }
    text.chars().take(most.max(4) - 1).collect::<String>() + "…"
}

/// What a character of the chart's text takes, rather more than less.
pub const CHARACTER: f64 = 7.0;

pub fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Moves labels apart: positions, in any order, at least `distance` from each other and within the limits.
pub fn spread(positions: &[f64], distance: f64, least: f64, most: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by(|a, b| positions[*a].total_cmp(&positions[*b]));
    let mut placed = positions.to_vec();
    let mut next = least;
    for index in &order {
        placed[*index] = placed[*index].max(next);
        next = placed[*index] + distance;
    }
    let mut next = most;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(next);
        next = placed[*index] - distance;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_become_markup() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("t", (1.0, 2.0), Anchor::Start, "<script>&");
        svg.circle("c", (1.0, 1.0), 2.0, "</title>");
        let text = svg.finish();
        assert!(
            text.contains("&lt;script&gt;&amp;")
                && text.contains("&lt;/title&gt;")
                && text.contains("a &quot;b&quot;")
        );
    }

    #[test]
    fn labels_are_moved_apart_and_stay_inside() {
        let placed = spread(&[50.0, 52.0, 51.0, 99.0], 10.0, 0.0, 100.0);
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 9.999), "{placed:?}");
        assert!(sorted[0] >= 0.0 && sorted[3] <= 100.0 && placed[0] < placed[2] && placed[2] < placed[1]);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(fit("short", 100.0), "short");
        assert_eq!(fit("a name that is too long", 10.0 * CHARACTER).chars().count(), 10);
    }
}
