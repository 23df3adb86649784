//! The floors do no more than their names say: a floor that works twice flatters everything that is compared with it.

use sluice_bench::generator::harness::{Harness, Hook};
use sluice_bench::generator::packets::Family;

/// Helpers by their numbers in linux/bpf.h.
const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const DELETE: i32 = 3;

/// Program, helper calls, and the most instructions it may have: some more than clang 19 makes of it, for other compilers.
const FLOORS: [(&str, &[i32], usize); 13] = [
    ("empty", &[], 4),
    ("floor_lookup4", &[LOOKUP], 65),
    ("floor_lookup6", &[LOOKUP], 76),
    ("floor_insert4", &[UPDATE, UPDATE], 105),
    ("floor_insert6", &[UPDATE, UPDATE], 115),
    ("floor_delete4", &[DELETE, DELETE], 95),
    ("floor_delete6", &[DELETE, DELETE], 105),
    ("floor_grant4", &[LOOKUP], 65),
    ("floor_grant6", &[LOOKUP], 76),
    ("floor_parse4", &[], 45),
    ("floor_parse6", &[], 45),
    ("floor_array4", &[LOOKUP], 60),
    ("floor_array6", &[LOOKUP], 60),
];

#[test]
fn every_floor_calls_what_its_name_says_and_is_no_longer_than_it_was() {
    for hook in [Hook::Xdp, Hook::Tc] {
        let harness = Harness::load(hook, Family::V4, 20, 20, ([0; 6], [0; 6])).unwrap();
        for (name, wanted, most) in FLOORS {
            let (instructions, calls) = harness.size(name).unwrap();
            assert_eq!(calls, wanted, "{hook:?} {name}");
            assert!(instructions <= most, "{hook:?} {name}: {instructions} instructions");
        }
    }
}
