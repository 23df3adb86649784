//! When a link is told (RFC 4861 6.2.4 and 6.2.6): by itself at random times, and where hosts ask. Whatever they send, what is
//! sent is bounded.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

/// MAX_INITIAL_RTR_ADVERT_INTERVAL, MAX_INITIAL_RTR_ADVERTISEMENTS, MIN_DELAY_BETWEEN_RAS, MAX_RA_DELAY_TIME (RFC 4861 10).
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);
const INITIAL: u8 = 3;
pub const MIN_DELAY: Duration = Duration::from_secs(3);
const MAX_ANSWER_DELAY: Duration = Duration::from_millis(500);

/// Hosts that wait for an answer of their own. Who comes when all places are taken is answered with everybody else.
const WAITING: usize = 16;
/// Answers to single hosts in a second.
const ANSWERS_A_SECOND: u32 = 32;

/// What is to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// To all nodes.
    Everybody,
    /// To a host that asked.
    Host(Ipv6Addr),
}

/// Of one link.
#[derive(Debug)]
pub struct Schedule {
    min: Duration,
    max: Duration,
    initial: u8,
    next: Instant,
    last: Option<Instant>,
    waiting: VecDeque<(Instant, Ipv6Addr)>,
    second: Instant,
    answers: u32,
}

/// From 0 to 1, as those are who roll.
pub type Random = fn() -> f64;

impl Schedule {
    pub fn new(min_s: u16, max_s: u16, now: Instant) -> Self {
        let (min, max) = (Duration::from_secs(min_s.into()), Duration::from_secs(max_s.into()));
        let waiting = VecDeque::with_capacity(WAITING);
        Self { min, max, initial: INITIAL, next: now, last: None, waiting, second: now, answers: 0 }
    }

    /// Other times, and everybody is told soon (6.2.4: what is said has changed).
    pub fn change(&mut self, min_s: u16, max_s: u16, now: Instant) {
        (self.min, self.max) = (Duration::from_secs(min_s.into()), Duration::from_secs(max_s.into()));
        self.initial = INITIAL;
        self.next = self.allowed(now);
    }

    /// Not before everybody may be told again.
    fn allowed(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| now.max(last + MIN_DELAY))
    }

    /// A host asks (6.2.6); without an address it is answered with everybody.
    pub fn solicited(&mut self, source: Ipv6Addr, now: Instant, random: Random) {
        let at = now + MAX_ANSWER_DELAY.mul_f64(random());
        if self.waiting.iter().any(|(_, host)| *host == source) {
            return;
        }
        if source.is_unspecified() || self.waiting.len() == WAITING || !self.may_answer(now) {
            self.next = self.next.min(self.allowed(at));
            return;
        }
        self.waiting.push_back((at, source));
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.answers) = (now, 0);
        }
        self.answers += 1;
        self.answers <= ANSWERS_A_SECOND
    }

    /// When there will be something to send.
    pub fn wakes(&self) -> Instant {
        self.waiting.iter().map(|(at, _)| *at).fold(self.next, Instant::min)
    }

    /// What to send, one at a time; it counts as sent.
    pub fn due(&mut self, now: Instant, random: Random) -> Option<Due> {
        if self.next <= now {
            self.next = now + self.pause(random);
            self.initial = self.initial.saturating_sub(1);
            self.last = Some(now);
            // they hear it, too
            self.waiting.clear();
            return Some(Due::Everybody);
        }
        let position = self.waiting.iter().position(|(at, _)| *at <= now)?;
        self.waiting.remove(position).map(|(_, host)| Due::Host(host))
    }

    /// The link was not there, or is another one: it begins anew.
    pub fn restart(&mut self, now: Instant) {
        self.waiting.clear();
        self.initial = INITIAL;
        self.next = self.allowed(now);
    }

    fn pause(&self, random: Random) -> Duration {
        let pause = self.min + (self.max - self.min).mul_f64(random());
        if self.initial > 1 { pause.min(INITIAL_INTERVAL) } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> f64 {
        0.5
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_come_quickly_and_then_one_in_each_interval() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(200, 600, begun);
        let mut sent = vec![];
        for second in 0..2000 {
            if schedule.due(begun + SECOND * second, half).is_some() {
                sent.push(second);
            }
        }
        assert_eq!(sent, [0, 16, 32, 432, 832, 1232, 1632]);
    }

    #[test]
    fn who_asks_is_answered_within_half_a_second_and_everybody_every_three_seconds_at_most() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(200, 600, begun);
        assert_eq!(schedule.due(begun, half), Some(Due::Everybody));
        let host = "fe80::1".parse().unwrap();
        let asked = begun + SECOND;
        schedule.solicited(host, asked, half);
        schedule.solicited(host, asked, half);
        schedule.solicited(Ipv6Addr::UNSPECIFIED, asked, half);
        assert_eq!(schedule.due(asked + MAX_ANSWER_DELAY.mul_f64(0.4), half), None);
        let answered = asked + MAX_ANSWER_DELAY.mul_f64(0.5);
        assert_eq!(schedule.due(answered, half), Some(Due::Host(host)));
        assert_eq!(schedule.due(answered, half), None, "once, and nobody else before three seconds are over");
        assert_eq!(schedule.wakes(), begun + MIN_DELAY);
        assert_eq!(schedule.due(begun + MIN_DELAY, half), Some(Due::Everybody));
    }

    #[test]
    fn a_flood_is_answered_boundedly() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(200, 600, begun);
        let (mut hosts, mut all) = (0, 0);
        for step in 0..10_000_u32 {
            let now = begun + Duration::from_millis(1) * step;
            for port in 0..5 {
                let source = Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(step * 8 + port + 1));
                schedule.solicited(source, now, half);
            }
            while let Some(due) = schedule.due(now, half) {
                if due == Due::Everybody { all += 1 } else { hosts += 1 }
            }
        }
        assert!(all <= 4, "{all} to everybody in ten seconds");
        assert!(hosts <= 10 * ANSWERS_A_SECOND && hosts > 0, "{hosts} to single hosts in ten seconds");
    }

    #[test]
    fn what_has_changed_is_told_at_once_unless_everybody_was_told_just_now() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(200, 600, begun);
        assert!(schedule.due(begun, half).is_some());
        schedule.change(200, 600, begun + SECOND);
        assert_eq!(schedule.wakes(), begun + MIN_DELAY);
        schedule.change(200, 600, begun + SECOND * 10);
        assert_eq!(schedule.wakes(), begun + SECOND * 10);
    }
}
