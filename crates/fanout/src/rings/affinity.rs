//! Which CPU a queue's interrupts go to.

use std::fs;

/// As the kernel has it for a device with interrupts of its own; others have their queues dealt out over `cpus`.
pub fn cpu_of(device: &str, queue: u32, cpus: &[usize]) -> Option<usize> {
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let told = interrupt_of(&interrupts, device, queue).and_then(|number| {
        let list = fs::read_to_string(format!("/proc/irq/{number}/effective_affinity_list")).ok()?;
        list.trim().split([',', '-']).next()?.parse().ok()
    });
    told.filter(|cpu| cpus.contains(cpu)).or_else(|| cpus.get(queue as usize % cpus.len().max(1)).copied())
}

/// Number of the interrupt whose name has the device and ends in the queue's number, as drivers name them:
/// `ens5-Tx-Rx-0`, `eth0-rx-3`, `mlx5_comp7@...` has none.
fn interrupt_of(table: &str, device: &str, queue: u32) -> Option<u32> {
    let is_it = |name: &str| {
        let Some(rest) = name.strip_prefix(device) else { return false };
        let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (kind, number) = rest.split_at(rest.len() - digits);
        kind.starts_with('-') && !kind.eq_ignore_ascii_case("-tx-") && number.parse() == Ok(queue)
    };
    table.lines().find_map(|line| {
        let (number, rest) = line.trim().split_once(':')?;
        rest.split_whitespace().next_back().filter(|name| is_it(name))?;
        number.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU1\n  1:         9          0   IO-APIC   1-edge      i8042\n \
                         27:          5          0   PCI-MSIX-0000:00:05.0   1-edge      ens5-Tx-Rx-0\n \
                         28:          5          0   PCI-MSIX-0000:00:05.0   2-edge      ens5-Tx-Rx-1\n \
                         29:          5          0   PCI-MSIX-0000:00:06.0   2-edge      eth0-tx-0\n \
                         30:          5          0   PCI-MSIX-0000:00:06.0   2-edge      eth0-rx-0\nNMI:  1 2\n";

    #[test]
    fn interrupts_are_found_by_device_and_queue() {
        for (device, queue, wanted) in [
            ("ens5", 0, Some(27)),
            ("ens5", 1, Some(28)),
            ("ens5", 2, None),
            ("ens", 0, None),
            ("eth0", 0, Some(30)),
        ] {
            assert_eq!(interrupt_of(TABLE, device, queue), wanted, "{device} {queue}");
        }
    }

    #[test]
    fn queues_of_other_devices_are_dealt_out() {
        let of = |queue| cpu_of("no-such-device", queue, &[2, 5]);
        assert_eq!([of(0), of(1), of(2)], [Some(2), Some(5), Some(2)]);
        assert_eq!(cpu_of("no-such-device", 0, &[]), None);
    }
}
