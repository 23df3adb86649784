//! Whatever a device does to frames is found, with its right size.

use std::time::Duration;

use sluice_bench::generator::wire::Size;

use crate::device::{Fate, Middle};

const FRAMES: u64 = 20_000;
const EVERY: usize = 100;
const PLANTED: u64 = FRAMES / EVERY as u64;
const FLOWS: u32 = 10;

/// Every hundredth frame meets `fate`; the last ones do not, so that every fate has its effect.
fn planted(middle: &mut Middle, size: u16, fate: Fate) -> sluice_bench::generator::wire::Received {
    let order = middle.order(FLOWS).stamped().size(Size::Bytes(size)).rate(20e3).limit(FRAMES);
    middle.run(&order, |number| if number % EVERY == 7 { fate } else { Fate::Pass }).1
}

#[test]
fn a_sound_device_has_no_faults() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 64, Fate::Pass);
    assert!(received.is_perfect() && received.lost() == 0 && received.corrupt() == 0, "{received:?}");
}

#[test]
fn loss_is_found() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 64, Fate::Drop);
    assert_eq!((received.lost(), received.distinct), (PLANTED, FRAMES - PLANTED), "{received:?}");
    assert_eq!((received.duplicates, received.reordered, received.corrupt()), (0, 0, 0), "{received:?}");
}

#[test]
fn duplicates_are_found() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 64, Fate::Double);
    assert_eq!(
        (received.duplicates, received.distinct, received.lost()),
        (PLANTED, FRAMES, 0),
        "{received:?}"
    );
    assert_eq!((received.reordered, received.corrupt()), (0, 0), "{received:?}");
}

#[test]
fn reordering_is_found_with_its_extent() {
    let _alone = crate::alone();
    // Ten flows in turn: 25 frames later, two of the flow's own have passed.
    let received = planted(&mut Middle::new(), 64, Fate::HoldBack(25));
    assert_eq!((received.reordered, received.extent), (PLANTED, 2), "{received:?}");
    assert_eq!((received.lost(), received.duplicates, received.distinct), (0, 0, FRAMES), "{received:?}");
}

#[test]
fn frames_of_other_flows_may_overtake() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 64, Fate::HoldBack(5));
    assert!(received.is_perfect(), "{received:?}");
}

#[test]
fn what_comes_too_late_to_be_known_is_counted_apart() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 64, Fate::HoldBack(700));
    // The last few wait for frames that never come.
    assert!(received.stale > PLANTED - 10 && received.stale <= PLANTED, "{received:?}");
    assert_eq!((received.reordered, received.duplicates), (0, 0), "{received:?}");
}

#[test]
fn corruption_is_found() {
    let _alone = crate::alone();
    let mut middle = Middle::new();
    let received = planted(&mut middle, 64, Fate::Corrupt);
    assert_eq!(
        (received.bad_udp, received.corrupt(), received.lost()),
        (PLANTED, PLANTED, 0),
        "{received:?}"
    );
    let received = planted(&mut middle, 64, Fate::CorruptHeader);
    assert_eq!((received.bad_ip, received.corrupt(), received.lost()), (PLANTED, PLANTED, 0), "{received:?}");
    let received = planted(&mut middle, 512, Fate::Corrupt);
    assert_eq!(
        (received.bad_udp, received.corrupt(), received.lost()),
        (PLANTED, PLANTED, 0),
        "{received:?}"
    );
}

#[test]
fn corruption_under_a_right_checksum_is_found() {
    let _alone = crate::alone();
    let received = planted(&mut Middle::new(), 1518, Fate::CorruptWell);
    assert_eq!(
        (received.bad_tail, received.corrupt(), received.lost()),
        (PLANTED, PLANTED, 0),
        "{received:?}"
    );
}

#[test]
fn a_slow_device_is_found() {
    let _alone = crate::alone();
    let mut middle = Middle::new();
    let order = middle.order(FLOWS).stamped().rate(5e3).limit(5_000);
    let median = |fate| {
        let (_, received) = middle.run(&order, |_| fate);
        assert_eq!((received.latency.count(), received.lost()), (5_000, 0), "{received:?}");
        received.latency.percentile(50.0) / 1e6
    };
    let [quick, slow] = [Fate::Pass, Fate::Delay(Duration::from_millis(5))].map(median);
    // The device looks every millisecond, and others may have its CPU.
    assert!((4.9..8.0).contains(&(slow - quick)), "{quick} ms without, {slow} ms with 5 ms of delay");
}
