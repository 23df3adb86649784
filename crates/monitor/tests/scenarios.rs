//! One scenario a test: what a channel says about restarts, jumps, strays, rekeys, slow replays, limits.

use std::sync::{Arc, Mutex};

use sluice_monitor::anomaly::Kind;
use sluice_monitor::channel::{Arrival, Channels, Event, What, hash_of};
use sluice_monitor::observation::{ChannelKey, Flags, Location, Observation, Protocol, Vlans};
use sluice_monitor::summary::{ChannelState, Gap, Interval, Protection, Rekey, Update};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Channels with a clock, and all they reported.
struct Bed {
    channels: Channels,
    now_ns: u64,
    frame: u64,
    events: Arc<Mutex<Vec<Event>>>,
    gaps: Vec<Gap>,
    rekeys: Vec<Rekey>,
    anomalies: Vec<(Kind, u64)>,
    states: Vec<ChannelState>,
}

impl Bed {
    fn new(limit: usize) -> Self {
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let mut channels = Channels::new(limit);
        let sink = Arc::clone(&events);
        channels.watch(Box::new(move |event| sink.lock().unwrap().push(*event)));
        let (gaps, rekeys, anomalies, states) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Bed { channels, now_ns: 1000 * SECOND, frame: 0, events, gaps, rekeys, anomalies, states }
    }

    fn wait(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self
    }

    /// One packet a millisecond; the content goes with the number and `salt`.
    fn send(&mut self, key: ChannelKey, numbers: impl IntoIterator<Item = u64>, salt: u32) -> &mut Self {
        for sequence in numbers {
            let fingerprint = (sequence as u32).wrapping_mul(0x9e37_79b1) ^ salt | 1;
            self.packet(Observation {
                key,
                sequence,
                fingerprint,
                payload_len: 80,
                bits: 32,
                flags: Flags::ENCRYPTED,
            });
        }
        self
    }

    fn packet(&mut self, observation: Observation) {
        self.now_ns += MILLISECOND;
        self.frame += 1;
        let hash = hash_of(&observation.key);
        let guess = self.channels.prefetch_channel(hash, &observation.key);
        let arrival = Arrival { time_ns: self.now_ns, frame: self.frame, wire_len: 120 };
        self.channels.observe(hash, guess, &observation, &arrival);
        if self.frame.is_multiple_of(997) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let mut updates = Vec::new();
        self.channels.flush(self.now_ns, Interval::default(), &mut |update| updates.push(update));
        self.keep(updates);
    }

    fn keep(&mut self, updates: Vec<Update>) {
        for update in updates {
            self.gaps.extend(update.gaps);
            self.rekeys.extend(update.rekeys);
            self.states.extend(update.channels);
        }
    }

    fn end(&mut self) {
        let mut updates = Vec::new();
        let interval = Interval::default();
        self.channels.finish(self.now_ns, interval, &mut |update| updates.push(update));
        let directions = self.channels.directions();
        let sums = self.channels.conclude(&directions, interval, &mut |update| updates.push(update));
        self.keep(updates);
        self.anomalies = sums.anomalies;
    }

    fn state(&self, key: ChannelKey) -> &ChannelState {
        self.states.iter().rev().find(|state| state.key == key).expect("the channel was reported")
    }

    fn count(&self, what: What) -> usize {
        self.events.lock().unwrap().iter().filter(|event| event.what == what).count()
    }

    fn anomaly(&self, kind: Kind) -> u64 {
        self.anomalies.iter().find(|(found, _)| *found == kind).map_or(0, |(_, count)| *count)
    }

    /// Asserts that exactly these kinds of events happened, so often.
    fn assert_events(&self, expected: &[(What, usize)]) {
        for what in [
            What::Skipped,
            What::Late,
            What::Duplicate,
            What::Replay,
            What::Reused,
            What::TooOld,
            What::Stray,
            What::Jump,
        ] {
            let wanted = expected.iter().find(|(kind, _)| *kind == what).map_or(0, |(_, count)| *count);
            assert_eq!(self.count(what), wanted, "{what:?}");
        }
    }
}

fn esp(spi: u32) -> ChannelKey {
    ChannelKey::ipv4(Protocol::Esp, [10, 0, 0, 1], [10, 0, 0, 2], spi, Location::default())
}

fn macsec(an: u8) -> ChannelKey {
    ChannelKey::macsec(0x0200_0000_0001_0001, an, Location::default())
}

#[test]
fn a_late_packet_is_not_lost() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), [10, 11, 14, 12, 15, 13, 16], 0).end();
    let counts = bed.state(esp(1)).figures.counts;
    assert_eq!((counts.lost, counts.late, counts.packets), (0, 2, 7));
    bed.assert_events(&[(What::Skipped, 1), (What::Late, 2)]);
    assert!(bed.gaps.is_empty(), "a gap that was filled in time is never reported");
    assert_eq!(bed.state(esp(1)).figures.reorder.depths[..2], [0, 2], "both were two behind");
}

#[test]
fn a_reported_gap_is_taken_back_when_its_packets_come_after_all() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), (1..10).chain(15..20), 0).wait(5 * SECOND).send(esp(1), [20], 0).flush();
    assert_eq!(bed.gaps.iter().map(|gap| (gap.first, gap.last, gap.lost)).collect::<Vec<_>>(), [(10, 14, 5)]);
    bed.gaps.clear();
    bed.send(esp(1), [10, 12], 0).end();
    let found: Vec<_> = bed.gaps.iter().map(|gap| (gap.first, gap.last, gap.lost)).collect();
    assert_eq!(found, [(10, 14, 0), (11, 14, 4), (11, 11, 1), (13, 14, 2)]);
    assert_eq!(bed.state(esp(1)).figures.counts.lost, 3);
    assert_eq!(bed.state(esp(1)).figures.gaps, 2);
}

#[test]
fn a_gap_tells_between_which_packets_it_happened() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), [1, 2, 3], 0);
    let before_ns = bed.now_ns;
    bed.wait(7 * MILLISECOND).send(esp(1), [9], 0);
    let (after_ns, frame) = (bed.now_ns, bed.frame);
    bed.end();
    let gap = bed.gaps[0];
    assert_eq!((gap.before_ns, gap.after_ns, gap.frame), (before_ns, after_ns, frame));
    assert_eq!((gap.channel, gap.lost), (esp(1).channel_id(), 5));
}

#[test]
fn packets_that_overtook_the_first_one_seen_extend_the_sequence_downwards() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), [5, 2, 6, 3, 7], 0).end();
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.first_sequence, figures.counts.lost, figures.counts.late), (2, 1, 2));
    assert_eq!(bed.gaps.iter().map(|gap| (gap.first, gap.last)).collect::<Vec<_>>(), [(4, 4)]);
}

#[test]
fn a_slow_copy_within_the_window_is_a_replay() {
    let mut bed = Bed::new(8);
    // One packet a second: number 20 comes again while its original is 40 s, then 0.3 s old.
    for number in 1..60 {
        bed.send(esp(1), [number], 0).wait(SECOND);
    }
    bed.send(esp(1), [20, 60], 0).wait(300 * MILLISECOND).send(esp(1), [60], 0).end();
    bed.assert_events(&[(What::Replay, 1), (What::Duplicate, 1)]);
    assert_eq!((bed.anomaly(Kind::Replay), bed.anomaly(Kind::Duplicate)), (1, 1));
}

#[test]
fn another_content_under_a_used_number_is_reuse_not_a_copy() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..100, 0)
        .send(esp(1), [97], 0xbeef_0000)
        .send(esp(1), [97], 0)
        .send(esp(1), 100..110, 0)
        .end();
    bed.assert_events(&[(What::Reused, 1), (What::Duplicate, 1)]);
    assert_eq!(bed.state(esp(1)).figures.restarts, 0);
}

#[test]
fn two_senders_under_one_key_are_reuse_without_end() {
    let mut bed = Bed::new(8);
    for number in 1..500 {
        bed.send(esp(1), [number], 0).send(esp(1), [number], 0x7777_0000);
    }
    bed.end();
    bed.assert_events(&[(What::Reused, 499)]);
}

#[test]
fn a_restarted_counter_is_one_event_and_then_followed() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..5000, 0);
    // After the reboot 7 is lost, then the sequence goes on past where it was before.
    bed.send(esp(1), (1..7).chain(8..6000), 0xabc0_0000).end();
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.restarts, figures.counts.lost, figures.highest_sequence), (1, 1, 5999));
    assert_eq!(figures.counts.replays, 0, "no packet of the new count is a replay");
    assert_eq!(bed.anomaly(Kind::CounterRestart), 1);
    assert!(figures.counts.reused >= 4 && figures.counts.reused <= 64, "{:?}", figures.counts);
    assert_eq!(bed.gaps.iter().map(|gap| (gap.first, gap.last)).collect::<Vec<_>>(), [(7, 7)]);
}

#[test]
fn a_restart_is_found_in_a_capture_that_began_later() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 900_000..901_000, 0).send(esp(1), 1..300, 1 << 20).end();
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.restarts, figures.counts.too_old, figures.highest_sequence), (1, 0, 299));
}

#[test]
fn a_restart_across_half_the_range_is_no_leap() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 3_000_000_000..3_000_000_100, 0).wait(60 * SECOND).send(esp(1), 1..100, 1 << 20).end();
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.restarts, figures.jumps, figures.counts.lost), (1, 0, 0));
    assert!(!figures.extended);
}

#[test]
fn a_replayed_stretch_is_no_restart() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..3000, 0);
    // An attacker sends a recorded stretch while the sender goes on.
    for step in 0..200 {
        bed.send(esp(1), [100 + step], 0).send(esp(1), [3000 + step], 0);
    }
    bed.end();
    bed.assert_events(&[(What::Replay, 200)]);
    assert_eq!(bed.state(esp(1)).figures.restarts, 0);
}

#[test]
fn one_forged_number_does_not_move_the_window() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..100, 0).send(esp(1), [2_000_000], 0).send(esp(1), 100..200, 0).send(
        esp(1),
        [50_000],
        0,
    );
    bed.send(esp(1), 200..300, 0).wait(2 * SECOND).end();
    bed.assert_events(&[(What::Stray, 2)]);
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.highest_sequence, figures.counts.lost, figures.counts.stray), (299, 0, 2));
}

/// One forged packet on each of many silent channels must not end the patience with all others.
#[test]
fn forged_numbers_on_many_channels_do_not_use_up_what_may_wait() {
    let mut bed = Bed::new(1 << 14);
    for spi in 10..10_010 {
        bed.send(esp(spi), [1, 2, 3, 2_000_000], 0);
    }
    bed.wait(20 * SECOND).send(esp(1), 1..100, 0).send(esp(1), [3_000_000], 0).send(esp(1), 100..200, 0);
    bed.send(esp(2), 1..5000, 0).send(esp(2), 1..300, 1 << 20).wait(2 * SECOND).end();
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.highest_sequence, figures.counts.stray, figures.jumps), (199, 1, 0));
    assert_eq!((bed.state(esp(2)).figures.restarts, bed.state(esp(2)).figures.counts.replays), (1, 0));
    assert_eq!((bed.count(What::Stray), bed.count(What::Jump)), (10_001, 0), "each forged one is named once");
}

/// Captures with coarse times have many packets at one time.
#[test]
fn a_number_ahead_that_the_others_reach_at_the_same_time_is_a_stray() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..10, 0);
    for number in [1000].into_iter().chain(10..1001) {
        bed.now_ns -= MILLISECOND;
        bed.send(esp(1), [number], 0);
    }
    bed.end();
    bed.assert_events(&[(What::Stray, 1)]);
    assert_eq!(bed.state(esp(1)).figures.counts.lost, 0);
}

#[test]
fn a_long_outage_is_loss_and_an_impossible_leap_is_a_jump() {
    let mut bed = Bed::new(8);
    // 1,000 packets a second: 30,000 are missing after 30 s, and then 100 million at once.
    bed.send(esp(1), 1..1000, 0).wait(30 * SECOND).send(esp(1), 31_000..32_000, 0);
    bed.send(esp(1), 100_000_000..100_000_100, 0).end();
    bed.assert_events(&[(What::Skipped, 1), (What::Jump, 1)]);
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.counts.lost, figures.jumps, figures.counts.stray), (30_000, 1, 0));
}

#[test]
fn a_leap_at_the_very_end_is_loss() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), (1..100).chain([1000]), 0).end();
    assert_eq!(bed.state(esp(1)).figures.counts.lost, 900);
}

#[test]
fn numbers_wrap_into_the_upper_half() {
    let mut bed = Bed::new(8);
    let numbers =
        (0..2000u64).map(|step| (0xffff_ffff - 999 + step) & 0xffff_ffff).filter(|number| *number != 5);
    bed.send(esp(1), numbers, 0).end();
    let figures = bed.state(esp(1)).figures;
    assert!(figures.extended && figures.exhaustion.is_none());
    assert_eq!((figures.counts.lost, figures.highest_sequence), (1, (1 << 32) + 999));
    assert_eq!(bed.anomaly(Kind::Wrapped), 1);
    assert_eq!((bed.gaps[0].first, bed.gaps[0].last), ((1 << 32) + 5, (1 << 32) + 5));
}

#[test]
fn sixteen_bit_numbers_wrap_without_a_word() {
    let mut bed = Bed::new(8);
    let key = ChannelKey::ipv4(Protocol::GtpU, [1; 4], [2; 4], 77, Location::default());
    for step in 0..200_000u64 {
        let sequence = step & 0xffff;
        let observation =
            Observation { key, sequence, fingerprint: step as u32 | 1, bits: 16, ..Observation::default() };
        bed.packet(observation);
    }
    bed.end();
    bed.assert_events(&[]);
    assert!(bed.state(key).figures.extended);
    assert_eq!(bed.anomaly(Kind::Wrapped), 0, "usual for GTP-U");
}

#[test]
fn packets_without_numbers_are_only_counted() {
    let mut bed = Bed::new(8);
    let key = ChannelKey::ipv4(Protocol::Ike, [1; 4], [2; 4], 0, Location::default());
    for _ in 0..10 {
        bed.packet(Observation { key, flags: Flags::CONTROL, ..Observation::default() });
    }
    bed.end();
    bed.assert_events(&[]);
    let figures = bed.state(key).figures;
    assert_eq!((figures.counts.packets, figures.highest_sequence, figures.one_way), (10, 0, None));
    assert_eq!(figures.protection, Protection::None);
}

#[test]
fn a_new_an_is_a_rekey_with_its_lost_start() {
    let mut bed = Bed::new(8);
    bed.send(macsec(0), 1..1000, 0).wait(4 * MILLISECOND).send(macsec(1), 4..1000, 0).end();
    assert_eq!(bed.rekeys.len(), 1);
    let rekey = &bed.rekeys[0];
    assert_eq!((rekey.from, rekey.to), (macsec(0).channel_id(), macsec(1).channel_id()));
    assert_eq!((rekey.pause_ns, rekey.lost), (5 * MILLISECOND as i64, 3));
    assert_eq!(
        bed.state(macsec(1)).figures.counts.lost,
        3,
        "a new key starts with number 1 (802.1AE 10.5.2)"
    );
    assert_eq!(bed.anomaly(Kind::RekeyLoss), 3);
}

#[test]
fn an_an_that_comes_round_is_a_new_key_not_a_restart() {
    let mut bed = Bed::new(8);
    for round in 0..9u32 {
        bed.send(macsec((round % 4) as u8), 1..300, round << 20);
    }
    bed.end();
    assert_eq!(bed.rekeys.len(), 8);
    bed.assert_events(&[]);
    assert_eq!((bed.anomaly(Kind::CounterRestart), bed.anomaly(Kind::CounterReuse)), (0, 0));
}

/// Receivers refuse what is played of a key that was replaced (802.1AE 10.6); its number stands still whoever sends.
#[test]
fn a_recording_of_a_replaced_key_is_replayed_not_a_new_key() {
    // From the middle, from the first packet on, with gaps, and of the live key's time or not.
    for (first, step, live) in
        [(5000, 1, true), (5000, 1, false), (1, 1, true), (1, 1, false), (700, 3, true)]
    {
        let mut bed = Bed::new(8);
        bed.send(macsec(0), 1..10_000, 0).send(macsec(1), 1..1000, 1 << 20);
        for number in 0..100 {
            bed.send(macsec(0), [first + number * step], 0);
            if live {
                bed.send(macsec(1), [1000 + number], 1 << 20);
            }
        }
        bed.end();
        bed.assert_events(&[(What::Replay, 100)]);
        assert_eq!(bed.rekeys.len(), 1, "from {first}: only the one to AN 1");
        assert_eq!((bed.anomaly(Kind::Replay), bed.anomaly(Kind::CounterRestart)), (100, 0));
    }
}

#[test]
fn a_short_key_that_is_played_again_is_no_new_one() {
    let mut bed = Bed::new(8);
    bed.send(macsec(0), 1..257, 0).send(macsec(1), 1..3000, 1 << 20).send(macsec(0), 1..257, 0).end();
    bed.assert_events(&[(What::Replay, 256)]);
    assert_eq!(bed.rekeys.len(), 1);
}

/// Numbers below half of the range seem to be ahead of those above it.
#[test]
fn a_recording_across_half_the_range_is_replayed() {
    let mut bed = Bed::new(8);
    bed.send(macsec(0), 3_000_000_000..3_000_000_100, 0).send(macsec(1), 1..2000, 1 << 20);
    bed.send(macsec(0), 5000..5100, 0).send(macsec(1), 2000..2100, 1 << 20).end();
    // Each is judged when the next one comes.
    bed.assert_events(&[(What::TooOld, 99), (What::Stray, 1)]);
    assert_eq!((bed.rekeys.len(), bed.anomaly(Kind::CounterRestart)), (1, 0));
}

#[test]
fn a_key_whose_start_was_missed_is_new_once_the_other_is_silent() {
    let mut bed = Bed::new(8);
    for round in 0..4 {
        bed.send(macsec(round), 1..20_000, u32::from(round) << 20);
    }
    bed.wait(2 * SECOND).send(macsec(0), 5000..9000, 9 << 20).end();
    bed.assert_events(&[]);
    assert_eq!((bed.rekeys.len(), bed.anomaly(Kind::CounterRestart)), (4, 0));
    assert_eq!(bed.state(macsec(0)).figures.highest_sequence, 8999);
}

/// SPIs do not come round: who counts anew under one uses numbers twice, replaced or not.
#[test]
fn a_replaced_security_association_that_counts_anew_is_a_restart() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 1..2000, 0).send(esp(2), 1..12_000, 0);
    bed.flush();
    assert_eq!(bed.rekeys.len(), 1);
    bed.send(esp(1), 1..300, 1 << 20).end();
    assert_eq!((bed.rekeys.len(), bed.anomaly(Kind::CounterRestart)), (1, 1));
    let figures = bed.state(esp(1)).figures;
    assert_eq!((figures.restarts, figures.counts.replays, figures.highest_sequence), (1, 0, 299));
}

#[test]
fn a_new_spi_replaces_the_one_that_fell_silent() {
    let mut bed = Bed::new(8);
    // Two SAs side by side; then the first is replaced, with both in use for a while.
    for number in 1..200 {
        bed.send(esp(1), [number], 0).send(esp(2), [number + 500], 0);
    }
    for number in 1..20 {
        bed.send(esp(1), [number + 199], 0).send(esp(2), [number + 699], 0).send(esp(3), [number], 0);
    }
    for number in 20..200 {
        bed.send(esp(2), [number + 699], 0).send(esp(3), [number], 0);
    }
    bed.end();
    let pairs: Vec<_> = bed.rekeys.iter().map(|rekey| (rekey.from, rekey.to)).collect();
    assert_eq!(pairs, [(esp(1).channel_id(), esp(3).channel_id())]);
    assert!(bed.rekeys[0].pause_ns < 0, "both keys were in use");
    assert_eq!(bed.rekeys[0].lost, 0);
}

/// Somebody sends under new SPIs without end: what really changes beside that is found all the same.
#[test]
fn a_change_of_keys_among_many_spis_is_found() {
    let mut bed = Bed::new(1 << 16);
    bed.send(esp(1), 1..1000, 0).send(esp(2), 3..200, 0);
    for spi in 100..20_100 {
        bed.send(esp(spi), [0xf000_0000], 0);
    }
    bed.send(esp(2), 200..400, 0).end();
    let pairs: Vec<_> = bed.rekeys.iter().map(|rekey| (rekey.from, rekey.to, rekey.lost)).collect();
    assert!(pairs.contains(&(esp(1).channel_id(), esp(2).channel_id(), 2)), "{}", pairs.len());
}

/// A NAT's mapping is kept open while a host has nothing to say (RFC 3948 2.3): no new key.
#[test]
fn keepalives_are_no_key() {
    let mut bed = Bed::new(8);
    let key = |spi| {
        let key = ChannelKey::ipv4(Protocol::EspUdp, [10, 0, 0, 1], [10, 0, 0, 2], spi, Location::default());
        key.with_ports(4500, 4500)
    };
    let keepalive = Observation { key: key(0), flags: Flags::CONTROL, ..Observation::default() };
    bed.send(key(7), 1..1000, 0);
    for _ in 0..3 {
        bed.wait(20 * SECOND).packet(keepalive);
        bed.flush();
    }
    bed.wait(SECOND).send(key(7), 1000..1100, 0).send(key(8), 1..1000, 0).wait(20 * SECOND).packet(keepalive);
    bed.end();
    let pairs: Vec<_> = bed.rekeys.iter().map(|rekey| (rekey.from, rekey.to)).collect();
    assert_eq!(pairs, [(key(7).channel_id(), key(8).channel_id())]);
    assert_eq!((bed.anomaly(Kind::RekeyLoss), bed.anomaly(Kind::RekeyPause)), (0, 0));
}

#[test]
fn a_channel_without_an_answer_is_one_way() {
    let mut bed = Bed::new(8);
    let back = ChannelKey::ipv4(Protocol::Esp, [10, 0, 0, 2], [10, 0, 0, 1], 9, Location::default());
    let alone = ChannelKey::ipv4(Protocol::Esp, [10, 0, 0, 7], [10, 0, 0, 8], 9, Location::default());
    bed.send(esp(1), 1..50, 0).send(back, 1..50, 0).send(alone, 1..50, 0).end();
    assert_eq!(bed.state(esp(1)).figures.one_way, Some(false));
    assert_eq!(bed.state(alone).figures.one_way, Some(true));
    assert_eq!(bed.anomaly(Kind::OneWay), 49);
}

#[test]
fn readable_and_mixed_frames_are_named_once() {
    let mut bed = Bed::new(8);
    for (an, flags) in [(0, [Flags::INTEGRITY_ONLY; 2]), (1, [Flags::INTEGRITY_ONLY, Flags::ENCRYPTED])] {
        for sequence in 1..3000 {
            let flags = flags[sequence as usize % 2];
            bed.packet(Observation {
                key: macsec(an),
                sequence,
                fingerprint: 1,
                bits: 32,
                flags,
                payload_len: 9,
            });
        }
    }
    bed.end();
    assert!(bed.anomaly(Kind::IntegrityOnly) > 0 && bed.anomaly(Kind::MixedProtection) > 0);
    assert_eq!(bed.state(macsec(0)).figures.protection, Protection::IntegrityOnly);
    assert_eq!(bed.state(macsec(1)).figures.protection, Protection::Mixed);
}

#[test]
fn numbers_that_run_out_are_announced() {
    let mut bed = Bed::new(8);
    bed.send(esp(1), 0xc000_0000..0xc000_0100, 0).end();
    assert_eq!(bed.anomaly(Kind::Exhaustion), 1, "past the limit for a new key (802.1X PendingPNExhaustion)");
    let forecast = bed.state(esp(1)).figures.exhaustion.unwrap();
    assert_eq!(forecast.remaining, 0xffff_ffff - 0xc000_00ff);
    assert!((forecast.rate_pps - 1000.0).abs() < 1.0, "{forecast:?}");
}

#[test]
fn memory_is_bounded_and_nothing_is_forgotten_silently() {
    let mut bed = Bed::new(64);
    for spi in 0..1000 {
        bed.send(esp(spi), [1, 2, 4, 5], 0);
    }
    bed.end();
    assert_eq!(bed.channels.evicted(), 936);
    assert_eq!(bed.states.len(), 1000, "every channel is reported, evicted or not");
    assert_eq!(bed.states.iter().map(|state| state.figures.counts.packets).sum::<u64>(), 4000);
    assert_eq!(bed.states.iter().map(|state| state.figures.counts.lost).sum::<i64>(), 1000);
    assert_eq!(bed.gaps.len(), 1000, "each lost number was reported once");
}

#[test]
fn more_gaps_than_are_remembered_stay_lost_and_late_ones_are_too_old() {
    let mut bed = Bed::new(8);
    // Every second number is missing; only the latest 256 gaps are remembered.
    bed.send(esp(1), (1..4001).map(|number| number * 2), 0).send(esp(1), [101], 0).send(
        esp(1),
        [8001 - 450],
        0,
    );
    bed.send(esp(1), [8002], 0).end();
    let counts = bed.state(esp(1)).figures.counts;
    assert_eq!((counts.lost, counts.too_old, counts.late), (4000 - 1, 1, 1));
}

/// A TAP hands each direction to a port of its own; keepalives of a NAT answer nobody and ask for no answer.
#[test]
fn directions_are_those_of_addresses_not_of_ports() {
    let mut bed = Bed::new(16);
    let port = |interface| Location::new(interface, Vlans::default());
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let forth = ChannelKey::ipv4(Protocol::Esp, a, b, 1, port(0));
    let back = ChannelKey::ipv4(Protocol::Esp, b, a, 2, port(1));
    let sender = |sci, interface| ChannelKey::macsec(sci, 0, port(interface));
    let nat =
        |from, to, spi| ChannelKey::ipv4(Protocol::EspUdp, from, to, spi, port(0)).with_ports(4500, 4500);
    let (asked, keepalive) = (nat(a, b, 7), nat(b, a, 0));
    let (_, alone) = (bed.send(forth, 1..50, 0), nat([10, 0, 0, 7], b, 0));
    bed.send(back, 1..50, 0).send(sender(1, 0), 1..50, 0).send(sender(2, 1), 1..50, 0).send(asked, 1..50, 0);
    for key in [keepalive, alone] {
        for _ in 0..40 {
            bed.packet(Observation { key, flags: Flags::CONTROL, ..Observation::default() });
        }
    }
    bed.end();
    let one_way = |key| bed.state(key).figures.one_way;
    assert_eq!([forth, back, sender(1, 0), sender(2, 1)].map(one_way), [Some(false); 4]);
    assert_eq!((one_way(asked), one_way(keepalive), one_way(alone)), (Some(true), None, None));
    assert_eq!(bed.anomaly(Kind::OneWay), 49, "only the one that no ESP answers");
}

/// Encrypted bytes look like an open packet once in a while, the more so behind an initialization vector that counts.
#[test]
fn a_single_packet_that_looks_open_says_nothing_of_its_channel() {
    let mut bed = Bed::new(8);
    let packet = |key, sequence, flags| Observation {
        key,
        sequence,
        fingerprint: sequence as u32,
        bits: 32,
        flags,
        payload_len: 80,
    };
    for sequence in 1..5000 {
        let looks_open = sequence % 1000 == 0 || (2001..2003).contains(&sequence);
        let flags = if looks_open { Flags::INTEGRITY_ONLY } else { Flags::ENCRYPTED };
        bed.packet(packet(esp(1), sequence, flags));
        bed.packet(packet(esp(2), sequence, Flags::INTEGRITY_ONLY));
    }
    (1..4).for_each(|sequence| bed.packet(packet(esp(3), sequence, Flags::INTEGRITY_ONLY)));
    // Open, then encrypted under the same key.
    for sequence in 1..100 {
        let flags = if sequence < 50 { Flags::INTEGRITY_ONLY } else { Flags::ENCRYPTED };
        bed.packet(packet(esp(4), sequence, flags));
    }
    bed.end();
    let protection = |spi| bed.state(esp(spi)).figures.protection;
    assert_eq!(protection(1), Protection::Encrypted);
    assert_eq!((protection(2), protection(3)), (Protection::IntegrityOnly, Protection::IntegrityOnly));
    assert_eq!(protection(4), Protection::Mixed);
    assert!(bed.anomaly(Kind::MixedProtection) > 0);
}
