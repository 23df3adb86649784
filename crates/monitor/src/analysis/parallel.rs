//! Several workers, one result.
//!
//! Channels are divided among the workers by their group. Each worker takes turns: it claims the next batch of the
//! source, parses it and hands every worker its share; and it takes its own shares, strictly in the order of batches.
//! So a channel sees its packets in the order of capture, and the result does not depend on the number of workers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::frame::Batch;
use crate::summary::Update;

use super::worker::{GROUP, Observe, Parser, Shard, Slot, shard_of};
use super::{Done, Feed, Options, Outlet, after_batch};

/// Batches that may be under way between the fastest and the slowest worker: three milliseconds, so that one that loses its
/// CPU for a moment does not stop the others.
const AHEAD: u64 = 32;

/// Looks at what others have done before a worker goes to sleep, and pauses between them: some microseconds, which waking up
/// takes as well.
const LOOKS: usize = 16;
const PAUSES: usize = 16;

/// One worker's share of a batch.
struct Share {
    slots: Vec<Slot>,
    /// The capture's clock behind the batch.
    last_ns: u64,
}

/// What the workers agree on.
struct Table {
    /// Shares that wait for their worker, by number of the batch.
    waiting: Vec<BTreeMap<u64, Share>>,
    /// The batch that each worker takes next.
    taken: Vec<u64>,
    /// Batches claimed so far.
    claimed: u64,
    /// No more batches will be claimed.
    ended: bool,
    /// Workers that wait to be woken.
    sleeping: usize,
    spare: Vec<Vec<Slot>>,
}

impl Table {
    /// Own shares come first: they are what others may wait for.
    fn step(&mut self, me: usize) -> Option<Step> {
        let next = self.taken[me];
        if let Some(share) = self.waiting[me].remove(&next) {
            return Some(Step::Take(share));
        }
        let slowest = self.taken.iter().copied().min().unwrap_or(0);
        match self.ended {
            true => (next == self.claimed).then_some(Step::Done),
            false => (self.claimed - slowest < AHEAD).then_some(Step::Claim),
        }
    }
}

struct Team<'a, 'b> {
    feed: Mutex<&'a mut Feed<'b>>,
    table: Mutex<Table>,
    changed: Condvar,
    workers: usize,
}

/// What a worker does next.
enum Step {
    Take(Share),
    Claim,
    Done,
}

/// Runs all workers to the end of the source.
pub fn run<O: Observe + Send>(
    feed: &mut Feed<'_>,
    observe: O,
    options: &Options,
    outlet: &Outlet<'_>,
) -> Vec<Done> {
    let workers = options.workers;
    let table = Table {
        waiting: (0..workers).map(|_| BTreeMap::new()).collect(),
        taken: vec![0; workers],
        claimed: 0,
        ended: false,
        sleeping: 0,
        spare: Vec::new(),
    };
    let team = Team { feed: Mutex::new(feed), table: Mutex::new(table), changed: Condvar::new(), workers };
    std::thread::scope(|scope| {
        let work = |me| {
            let team = &team;
            scope.spawn(move || team.work(me, Parser::new(observe), options, outlet))
        };
        let handles: Vec<_> = (0..workers).map(work).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    })
}

impl<'a, 'b> Team<'a, 'b> {
    fn work<O: Observe>(
        &self,
        me: usize,
        mut parser: Parser<O>,
        options: &Options,
        outlet: &Outlet<'_>,
    ) -> Done {
        let mut shard = Shard::new(options, me);
        let mut batch = Batch::default();
        let mut emit = |update| outlet.emit(update);
        loop {
            match self.next_step(me) {
                Step::Take(share) => {
                    take(&mut shard, &share, &mut emit);
                    self.took(me, share.slots);
                }
                Step::Claim => self.claim(&mut batch, &mut parser, &mut shard, options, outlet),
                Step::Done => return Done { link: parser.link, alarms: parser.alarms, shard },
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets others see a change. Waking takes a system call, which most changes do without.
    fn changed(&self, table: MutexGuard<'_, Table>) {
        let sleeping = table.sleeping;
        drop(table);
        if sleeping > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until there is something to do.
    fn next_step(&self, me: usize) -> Step {
        for _ in 0..LOOKS {
            if let Some(step) = self.table().step(me) {
                return step;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        let mut table = self.table();
        loop {
            if let Some(step) = table.step(me) {
                return step;
            }
            table.sleeping += 1;
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
            table.sleeping -= 1;
        }
    }

    fn took(&self, me: usize, mut slots: Vec<Slot>) {
        slots.clear();
        let mut table = self.table();
        table.taken[me] += 1;
        table.spare.push(slots);
        self.changed(table);
    }

    /// Who reads holds it for some microseconds only: mostly it is free again before one would sleep.
    fn feed(&self) -> MutexGuard<'_, &'a mut Feed<'b>> {
        for _ in 0..LOOKS {
            if let Ok(feed) = self.feed.try_lock() {
                return feed;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the next batch, parses it and hands out the shares.
    fn claim<O: Observe>(
        &self,
        batch: &mut Batch,
        parser: &mut Parser<O>,
        shard: &mut Shard,
        options: &Options,
        outlet: &Outlet<'_>,
    ) {
        let (number, fed) = {
            let mut feed = self.feed();
            let fed = feed.next(batch, outlet);
            let mut table = self.table();
            let Some(fed) = fed else {
                table.ended = true;
                return self.changed(table);
            };
            table.claimed += 1;
            (table.claimed - 1, fed)
        };
        let mut shares = self.spare_shares(batch.len() / self.workers + 1);
        let (bytes, mut previous_ns) = (batch.bytes(), fed.previous_ns);
        for (at, record) in batch.records().iter().enumerate() {
            let frame = Batch::frame_of(bytes, record, batch.first_number() + at as u64);
            if let Some(slot) = parser.parse(&frame, previous_ns, options) {
                shares[shard_of(&slot.observation.key, self.workers)].push(slot);
            }
            previous_ns = record.time_ns;
        }
        after_batch(batch, &fed, parser, shard, options, outlet);
        let last_ns = fed.clock_ns(batch);
        let mut table = self.table();
        for (waiting, slots) in table.waiting.iter_mut().zip(shares) {
            waiting.insert(number, Share { slots, last_ns });
        }
        self.changed(table);
    }

    fn spare_shares(&self, room: usize) -> Vec<Vec<Slot>> {
        let mut table = self.table();
        let mut spare = || table.spare.pop().unwrap_or_else(|| Vec::with_capacity(room + room / 4));
        (0..self.workers).map(|_| spare()).collect()
    }
}

fn take(shard: &mut Shard, share: &Share, emit: &mut dyn FnMut(Update)) {
    let mut groups = share.slots.chunks(GROUP).peekable();
    if let Some(first) = groups.peek() {
        first.iter().for_each(|slot| shard.prefetch(slot));
    }
    while let Some(group) = groups.next() {
        // The index entries of the next group are asked for while this one is worked on.
        if let Some(next) = groups.peek() {
            next.iter().for_each(|slot| shard.prefetch(slot));
        }
        shard.take(group, emit);
    }
    shard.tick(share.last_ns, emit);
}
