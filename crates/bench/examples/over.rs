use sluice_bench::trial::*;
use std::time::Duration;
fn main() {
    for ring in [256u32, 4096] {
        for flows in [100usize, 10000] {
            let mut stand = Stand::new(Device::RawReceive { ring, workers: 1 }, 60).unwrap();
            println!("{:?}", stand.trial(None, Duration::from_millis(300)));
            let t = std::time::Instant::now();
            let c = sluice_bench::spread::over_flows(&mut stand, flows, ring, Duration::from_millis(500))
                .unwrap();
            println!("{ring} {flows} {} {:?}", c.iter().sum::<u64>(), t.elapsed());
        }
    }
}
