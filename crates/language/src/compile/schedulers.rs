//! `schedulers`: words become times.

use super::view::View;
use crate::error::Report;
use crate::schedule::{Day, Scheduler};
use crate::schema::kind::{date, time};

const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

pub(super) fn compile(top: View, report: &mut Report) -> Vec<Scheduler> {
    top.entries(&["schedulers", "scheduler"]).map(|view| scheduler(view, report)).collect()
}

fn scheduler(view: View, report: &mut Report) -> Scheduler {
    let mut scheduler = Scheduler {
        name: view.word().to_owned(),
        dates: windows(view, "start-date", "stop-date", date, report),
        daily: view.child("daily").and_then(|daily| day(daily, report)),
        ..Scheduler::default()
    };
    for (number, name) in DAYS.iter().enumerate() {
        scheduler.days[number] = view.child(name).and_then(|entry| day(entry, report));
    }
    if view.children().all(|child| child.word() == "description") {
        report.error_help(
            &view.location(),
            format!("scheduler `{}` has no times", view.word()),
            "add `daily`, a day of the week, or `start-date ... stop-date ...`",
        );
    }
    scheduler
}

fn day(view: View, report: &mut Report) -> Option<Day> {
    let mut chosen = view.children();
    let Some(first) = chosen.next() else {
        let message = format!("`{}` says nothing of the day", view.context());
        report.error_help(
            &view.location(),
            message,
            "add `start-time ... stop-time ...`, `all-day` or `exclude`",
        );
        return None;
    };
    if let Some(second) = chosen.next() {
        let message = format!("`{}` has both `{}` and `{}`", view.context(), first.word(), second.word());
        report.error_help(&second.location(), message, "keep one");
    }
    match first.word() {
        "all-day" => Some(Day::AllDay),
        "exclude" => Some(Day::Exclude),
        "start-time" => Some(Day::Times(windows(view, "start-time", "stop-time", time, report))),
        _ => None,
    }
}

/// Every `START from STOP to` below a statement.
fn windows<T: PartialOrd + Copy>(
    view: View,
    start: &str,
    stop: &str,
    read: fn(&str) -> Result<T, String>,
    report: &mut Report,
) -> Vec<(T, T)> {
    let mut windows = Vec::new();
    for from in view.entries(&[start]) {
        for to in from.entries(&[stop]) {
            let (Ok(first), Ok(last)) = (read(from.word()), read(to.word())) else { continue };
            if first >= last {
                let message = format!("`{stop} {}` is not after `{start} {}`", to.word(), from.word());
                let help = match start {
                    "start-time" => "a window ends on its day: write one up to `24:00` and one from `00:00`",
                    _ => "exchange them",
                };
                report.error_help(&to.location(), message, help);
            }
            windows.push((first, last));
        }
    }
    windows
}
