//! Numbers and times in words.

/// 1,234,567
pub fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Losses of an interval may be negative: late packets gave back more.
pub fn signed(value: i64) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, whole(value.unsigned_abs()))
}

/// 12.3 M
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e12 => (value / 1e12, " T"),
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => return format!("{value:.0}"),
    };
    format!("{value:.*}{unit}", if value.abs() >= 100.0 { 0 } else { 1 })
}

pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        0.0 => "0 %".to_owned(),
        value if value < 0.001 => "< 0.001 %".to_owned(),
        value if value < 0.1 => format!("{value:.3} %"),
        value => format!("{value:.2} %"),
    }
}

/// A stretch of time.
pub fn span(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        1_000_000_000..120_000_000_000 => format!("{:.1} s", value / 1e9),
        120_000_000_000..7_200_000_000_000 => format!("{:.1} min", value / 6e10),
        7_200_000_000_000..172_800_000_000_000 => format!("{:.1} h", value / 3.6e12),
        _ => format!("{:.1} days", value / 8.64e13),
    }
}

/// A time of capture, UTC.
pub fn time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}", ns / 1_000_000 % 1000)
}

/// Year, month, day of a day since 1970: years start in March, so that the leap day ends them.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + late, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(signed(-12_345), "-12,345");
        assert_eq!(
            [0.0, 9999.0, 12_345.0, 14_880_000.0, 2.5e11].map(short),
            ["0", "9999", "12.3 k", "14.9 M", "250 G"]
        );
        assert_eq!(
            [0.0, 0.000_001, 0.000_5, 0.123_4].map(percent),
            ["0 %", "< 0.001 %", "0.050 %", "12.34 %"]
        );
        assert_eq!([5, 1_500, 2_500_000, 3_000_000_000].map(span), ["5 ns", "1.5 us", "2.5 ms", "3.0 s"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000");
        assert_eq!(time(951_782_399_999_000_000), "2000-02-28 23:59:59.999");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29 00:00:00.000");
        assert_eq!(time(1_709_251_200_000_000_000), "2024-03-01 00:00:00.000");
        assert_eq!(time(4_102_444_799_000_000_000), "2099-12-31 23:59:59.000");
    }
}
