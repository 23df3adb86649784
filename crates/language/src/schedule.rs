//! When schedulers are active. Times are local time: seconds since 1970-01-01 00:00 without regard to the time zone.

use serde::Serialize;

pub(crate) const DAY_S: i64 = 86_400;

/// `schedulers scheduler`: when policies that name it count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Scheduler {
    /// What policies name it by.
    pub name: String,
    /// Inside one of these, from the first second to before the last; none = always.
    pub dates: Vec<(i64, i64)>,
    /// Days without an entry of their own.
    pub daily: Option<Day>,
    /// Sunday first.
    pub days: [Option<Day>; 7],
}

/// What a day of the week is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Day {
    /// Active from midnight to midnight.
    AllDay,
    /// Not active.
    Exclude,
    /// Seconds of the day, from the first to before the last.
    Times(Vec<(u32, u32)>),
}

impl Scheduler {
    /// Whether its policies count at a local time.
    pub fn is_active(&self, local_s: i64) -> bool {
        let dated =
            self.dates.is_empty() || self.dates.iter().any(|(from, to)| (*from..*to).contains(&local_s));
        dated && self.is_active_on_its_day(local_s)
    }

    fn is_active_on_its_day(&self, local_s: i64) -> bool {
        let second = local_s.rem_euclid(DAY_S) as u32;
        // 1970-01-01 was a Thursday.
        let weekday = (local_s.div_euclid(DAY_S) + 4).rem_euclid(7) as usize;
        match self.days[weekday].as_ref().or(self.daily.as_ref()) {
            Some(Day::AllDay) => true,
            Some(Day::Exclude) => false,
            Some(Day::Times(times)) => times.iter().any(|(from, to)| (*from..*to).contains(&second)),
            // Days are listed: on the others nothing is active. Only exclusions are listed: on the others all is.
            None => self.days.iter().flatten().all(|day| *day == Day::Exclude),
        }
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

pub(crate) fn days_of_month(year: i64, month: i64) -> u64 {
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    (days_since_1970(next.0, next.1, 1) - days_since_1970(year, month, 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60
    }

    fn times(from: u32, to: u32) -> Day {
        Day::Times(vec![(from * 3600, to * 3600)])
    }

    #[test]
    fn the_calendar_knows_leap_years() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!((days_of_month(2000, 2), days_of_month(2100, 2), days_of_month(2024, 2)), (29, 28, 29));
        assert_eq!((days_of_month(2026, 4), days_of_month(2026, 12)), (30, 31));
    }

    #[test]
    fn a_day_of_its_own_replaces_daily() {
        let mut scheduler = Scheduler { daily: Some(times(8, 17)), ..Default::default() };
        // 2026-11-21 is a Saturday.
        scheduler.days[6] = Some(times(10, 12));
        scheduler.days[0] = Some(Day::Exclude);
        assert!(scheduler.is_active(at(2026, 11, 20, 8, 0)) && !scheduler.is_active(at(2026, 11, 20, 17, 0)));
        assert!(
            !scheduler.is_active(at(2026, 11, 21, 9, 59)) && scheduler.is_active(at(2026, 11, 21, 11, 59))
        );
        assert!(!scheduler.is_active(at(2026, 11, 22, 11, 0)));
    }

    #[test]
    fn dates_bound_everything_else() {
        let dates = vec![(at(2026, 12, 24, 18, 0), at(2026, 12, 27, 0, 0))];
        let open = Scheduler { dates: dates.clone(), ..Default::default() };
        assert!(!open.is_active(at(2026, 12, 24, 17, 59)) && open.is_active(at(2026, 12, 24, 18, 0)));
        assert!(open.is_active(at(2026, 12, 26, 23, 59)) && !open.is_active(at(2026, 12, 27, 0, 0)));
        let days = Scheduler { dates, daily: Some(times(0, 24)), ..Default::default() };
        assert!(days.is_active(at(2026, 12, 25, 23, 59)) && !days.is_active(at(2026, 12, 28, 0, 0)));
    }

    #[test]
    fn days_that_are_not_listed_are_off_unless_the_others_are_exceptions() {
        let mut listed = Scheduler::default();
        listed.days[1] = Some(Day::AllDay);
        assert!(listed.is_active(at(2026, 11, 23, 0, 0)) && !listed.is_active(at(2026, 11, 24, 0, 0)));
        let mut excepted = Scheduler::default();
        excepted.days[1] = Some(Day::Exclude);
        assert!(!excepted.is_active(at(2026, 11, 23, 0, 0)) && excepted.is_active(at(2026, 11, 24, 0, 0)));
    }
}
