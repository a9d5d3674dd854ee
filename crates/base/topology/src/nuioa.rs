//! Through which of a machine's network devices large data should go, by how far each is from who
//! sends (non-uniform access to devices, NUIOA).
//!
//! Pure. From Moreaud and Goglin's measurements ("Adaptive MPI Multirail Tuning for Non-Uniform
//! Input/Output Access", EuroMPI 2010; Goglin's habilitation, 5.3): where few send, a near device
//! should carry somewhat more than a far one, which gains 15 % over equal parts; where all cores
//! send at once, those near a device should use it alone, and those near none all equally.

use crate::cpuset::CpuSet;
use crate::device::DeviceLocality;

/// What a device gives that is far, of what it gives to who is near: with that, parts by rate gain
/// the 15 % over equal parts, since (1 + far) / (2 far) = 1.15.
pub const FAR: f64 = 1.0 / 1.3;

/// Returns how much each of these devices gives to who runs on `cpus`, as shares of what the best
/// gives: 0, it is to be left to others. `all_send`: so do all cores of the machine. As long as it
/// is not known where each device is, or none is nearer than the others, all are alike.
pub fn shares(cpus: &CpuSet, devices: &[DeviceLocality], all_send: bool) -> Vec<f64> {
    let near: Option<Vec<bool>> = devices
        .iter()
        .map(|device| match device {
            DeviceLocality::Cpus(around) => Some(around.meets(cpus)),
            DeviceLocality::Anywhere => None,
        })
        .collect();
    let near = near.filter(|near| near.contains(&true) && near.contains(&false));
    let Some(near) = near else {
        return vec![1.0; devices.len()];
    };
    let far = if all_send { 0.0 } else { FAR };
    near.into_iter()
        .map(|near| if near { 1.0 } else { far })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Kind, Tree};

    /// The machine of the measurements: four processors, two of which have a device.
    fn machine() -> (Tree, Vec<DeviceLocality>) {
        let tree = Tree::regular(4, 1, 1, 2);
        let devices = ["0-1", "2-3"].map(|cpus| DeviceLocality::Cpus(CpuSet::parse(cpus).unwrap()));
        (tree, devices.into())
    }

    fn cpu(number: u32) -> CpuSet {
        CpuSet::parse(&number.to_string()).unwrap()
    }

    #[test]
    fn where_one_core_sends_the_near_device_is_favoured_and_that_gains_fifteen_percent() {
        let (tree, devices) = machine();
        assert_eq!(tree.cores(), 8);
        for core in 0..2 {
            let shares = shares(&cpu(core), &devices, false);
            assert_eq!(shares, [1.0, FAR]);
            // Equal parts end with the slower device, parts by rate together.
            let (equal, by_rate) = (0.5 / FAR, 1.0 / (1.0 + FAR));
            assert!((equal / by_rate - 1.15).abs() < 1e-9, "{}", equal / by_rate);
        }
        assert_eq!(shares(&cpu(3), &devices, false), [FAR, 1.0]);
        // Far from both.
        assert_eq!(shares(&cpu(6), &devices, false), [1.0, 1.0]);
    }

    #[test]
    fn where_all_cores_send_those_near_a_device_use_it_alone_and_the_others_both() {
        let (tree, devices) = machine();
        let mut load = [0.0; 2];
        for core in 0..8 {
            let package = tree.areas()[tree.around(core, Kind::Package)].cpus.clone();
            let shares = shares(&cpu(core as u32), &devices, true);
            let expected = match package.first() {
                Some(0) => [1.0, 0.0],
                Some(2) => [0.0, 1.0],
                _ => [1.0, 1.0],
            };
            assert_eq!(shares, expected, "core {core}");
            let sum: f64 = shares.iter().sum();
            load.iter_mut()
                .zip(&shares)
                .for_each(|(load, share)| *load += share / sum);
        }
        // And so both carry the same in all.
        assert_eq!(load, [4.0, 4.0]);
    }

    #[test]
    fn where_nothing_is_known_or_all_are_near_nobody_is_favoured() {
        let near = |cpus: &str| DeviceLocality::Cpus(CpuSet::parse(cpus).unwrap());
        for devices in [
            vec![],
            vec![near("0-3")],
            vec![near("0-3"), near("0-7")],
            vec![near("0-3"), DeviceLocality::Anywhere],
        ] {
            assert_eq!(shares(&cpu(1), &devices, true), vec![1.0; devices.len()]);
        }
    }

    #[test]
    fn a_rank_that_may_run_anywhere_is_near_every_device() {
        let (_, devices) = machine();
        let anywhere = CpuSet::parse("0-7").unwrap();
        assert_eq!(shares(&anywhere, &devices, true), [1.0, 1.0]);
    }
}
