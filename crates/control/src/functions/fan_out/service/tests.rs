//! Every order in which the steps of a commit, of a change of health and of the thread that writes positions can interleave.

use std::collections::{BTreeMap, BTreeSet};

use sluice_plan::Ids;

use super::*;
use crate::kernel::environment;
use crate::state::config;

/// One more receiver than the first, or one less, or the same; and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    next: [&'static str; 3],
    fails: bool,
    /// The receiver whose health changes, and to what.
    changes: &'static str,
    comes_back: bool,
}

const FIRST: [&str; 3] = ["a", "b", ""];
const NEXT: [[&str; 3]; 4] = [["a", "b", ""], ["a", "b", "c"], ["a", "", ""], ["b", "c", ""]];

fn configuration(receivers: &[&str]) -> Config {
    let mut text = String::from(
        "set interfaces up0 unit 0 family inet address 192.0.2.1/24\n\
         set security zones security-zone all interfaces up0.0\n\
         set services fan-out listener l interface up0.0\nset services fan-out listener l address 192.0.2.50\n\
         set services fan-out listener l port 514\n",
    );
    for name in receivers.iter().filter(|name| !name.is_empty()) {
        let last = name.as_bytes()[0];
        text += &format!("set services fan-out listener l receiver {name} address 192.0.2.{last}\n");
        text += &format!("set services fan-out listener l receiver {name} port 514\n");
    }
    config::parse(&text, "test").unwrap()
}

/// Commits, health and tables as the daemon has them, without a kernel.
struct Machine {
    service: FanOutService,
    ids: Ids,
    /// What commits have put in force, for readers of `Shared`.
    active: (Plan, Config),
    /// A commit under way.
    coming: Option<(Plan, Config)>,
    /// The generation that packets meet, and positions by generation.
    in_force: u32,
    tables: BTreeMap<u32, Vec<u16>>,
    news: (u32, Vec<News>),
    down: BTreeSet<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Overlay,
    Switch,
    Finish,
    Publish,
    Health,
    News,
    Write,
    Mark,
}

fn turns_in(plan: &Plan) -> Vec<u16> {
    let (tables, listener) = (&plan.tables.fan_out, &plan.tables.fan_out.listeners[0]);
    let count = listener.entry.table as u32 as usize;
    let lines = &tables.lines[listener.first_line as usize..];
    let positions = lines.iter().flat_map(|line| line.receiver).take(count);
    positions.map(|position| position - listener.first_receiver as u16).collect()
}

impl Machine {
    fn new() -> Machine {
        let (service, config, mut ids) = (FanOutService::default(), configuration(&FIRST), Ids::default());
        let mut plan = config::plan(&config, "test", &environment::imagined(&config), &mut ids, 1).unwrap();
        service.overlay(&mut plan, &config.fan_out);
        service.finish(&plan, &config.fan_out);
        let tables = BTreeMap::from([(1, turns_in(&plan))]);
        let (coming, news, down) = (None, (1, vec![]), BTreeSet::new());
        Machine { service, ids, active: (plan, config), coming, in_force: 1, tables, news, down }
    }

    /// As many answers as a check without numbers of its own wants; those of receivers that are not checked are ignored.
    fn health(&mut self, name: &'static str, answers: bool) {
        let pool = self.service.state().watched["l"].pool.clone();
        for target in pool.targets().iter().filter(|target| target.name == name) {
            (0..2).for_each(|_| _ = pool.report(target, answers));
            if answers {
                self.down.remove(name);
            } else {
                self.down.insert(name);
            }
        }
    }

    fn step(&mut self, step: Step, case: &Case) {
        match step {
            Step::Overlay => {
                let config = configuration(&case.next);
                let seen = environment::imagined(&config);
                let mut plan = config::plan(&config, "test", &seen, &mut self.ids, 2).unwrap();
                self.service.overlay(&mut plan, &config.fan_out);
                self.tables.insert(2, turns_in(&plan));
                self.coming = Some((plan, config));
            }
            Step::Switch if case.fails => {}
            Step::Switch => self.in_force = 2,
            Step::Finish if case.fails => self.service.abandon(Some(&self.active.0)),
            Step::Finish => {
                let (plan, config) = self.coming.as_ref().unwrap();
                self.service.finish(plan, &config.fan_out);
            }
            Step::Publish if case.fails => {}
            Step::Publish => self.active = self.coming.take().unwrap(),
            Step::Health => self.health(case.changes, case.comes_back),
            Step::News => self.news = (self.active.0.generation, self.service.news(&self.active.0)),
            Step::Write => {
                if self.news.0 == self.in_force {
                    for one in &self.news.1 {
                        self.tables.insert(self.in_force, one.positions.clone());
                    }
                } else {
                    self.news.1.clear();
                }
            }
            Step::Mark => self.service.written(self.news.0, std::mem::take(&mut self.news.1)),
        }
    }

    /// Whom packets go to.
    fn served(&self) -> BTreeSet<&str> {
        let receivers = &self.active.0.fan_out[0].receivers;
        self.tables[&self.in_force]
            .iter()
            .map(|position| receivers[usize::from(*position)].0.as_str())
            .collect()
    }

    fn wanted(&self) -> BTreeSet<&str> {
        let named = self.active.1.fan_out.listeners[0].receivers.iter().map(|r| r.name.as_str());
        named.filter(|name| !self.down.contains(name)).collect()
    }
}

/// All orders of three rows of steps, each of which keeps its own order.
fn orders(rows: [&[Step]; 3]) -> Vec<Vec<Step>> {
    if rows.iter().all(|row| row.is_empty()) {
        return vec![vec![]];
    }
    let mut all = vec![];
    for index in 0..3 {
        let Some((first, rest)) = rows[index].split_first() else { continue };
        let mut left = rows;
        left[index] = rest;
        all.extend(orders(left).into_iter().map(|order| [&[*first][..], &order].concat()));
    }
    all
}

#[test]
fn in_every_order_the_data_plane_has_what_health_and_configuration_say() {
    let commit = [Step::Overlay, Step::Switch, Step::Finish, Step::Publish];
    let writer = [Step::News, Step::Write, Step::Mark];
    let orders = orders([&commit, &[Step::Health], &writer]);
    assert_eq!(orders.len(), 280);
    std::thread::scope(|scope| {
        for next in NEXT {
            let orders = &orders;
            scope.spawn(move || every_order(next, orders, &writer));
        }
    });
}

fn every_order(next: [&'static str; 3], orders: &[Vec<Step>], writer: &[Step; 3]) {
    for (changes, comes_back, fails) in
        [("a", false, false), ("b", false, false), ("b", true, false), ("b", false, true), ("b", true, true)]
    {
        let case = Case { next, fails, changes, comes_back };
        for order in orders {
            let mut machine = Machine::new();
            if comes_back {
                machine.health(changes, false);
                writer.iter().for_each(|step| machine.step(*step, &case));
            }
            order.iter().for_each(|step| machine.step(*step, &case));
            // the thread goes on
            (0..2).flat_map(|_| writer).for_each(|step| machine.step(*step, &case));
            assert_eq!(machine.served(), machine.wanted(), "{case:?} {order:?}");
            let news = machine.service.news(&machine.active.0);
            assert!(news.is_empty(), "{case:?} {order:?}: it is at rest");
            let views = machine.service.state().watched["l"].pool.view();
            let shares = views.iter().filter(|view| view.share > 0).map(|view| view.target.name.as_str());
            assert_eq!(shares.collect::<BTreeSet<_>>(), machine.wanted(), "{case:?} {order:?}: metrics");
        }
    }
}
