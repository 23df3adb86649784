//! Numbers as people read them.

use crate::method::stats::Estimate;

/// Three significant digits and more, thousands apart: 0.0123, 4.56, 78.9, 1,234,567.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = match magnitude {
        m if m >= 999.5 => return thousands(value.round()),
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.001 => (2.0 - m.log10().floor()) as usize,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.digits$}")
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// The bounds of an estimate, with so many digits behind the point.
pub fn interval(estimate: &Estimate, digits: usize) -> String {
    format!("[{:.digits$}, {:.digits$}]", estimate.low, estimate.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let told =
            [0.0, 0.012_34, 1.0, 4.567, 45.67, 456.7, 4567.0, 1_234_567.8, -12_345.0, 1e-7].map(number);
        let wanted =
            ["0", "0.0123", "1.00", "4.57", "45.7", "457", "4,567", "1,234,568", "-12,345", "1.00e-7"];
        assert_eq!(told, wanted);
    }
}
