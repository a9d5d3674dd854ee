//! How much processor time the control groups of this process grant, in thousandths of a core.

use std::fs;
use std::path::{Path, PathBuf};

/// The tightest quota on the way from this process's group to the root; `None` if there is none.
pub fn cpu_milli() -> Option<u32> {
    from_files(
        Path::new("/sys/fs/cgroup"),
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )
}

/// Computes the quota for a given mount of the control groups and the text of `/proc/self/cgroup`.
fn from_files(mount: &Path, groups: &str) -> Option<u32> {
    let quotas = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => tightest(&[mount.to_owned(), mount.join("unified")], path, v2),
            list if list.split(',').any(|name| name == "cpu") => {
                tightest(&[mount.join("cpu"), mount.join("cpu,cpuacct")], path, v1)
            }
            _ => None,
        }
    });
    quotas.min()
}

fn tightest(mounts: &[PathBuf], path: &str, quota: impl Fn(&Path) -> Option<u32>) -> Option<u32> {
    // In a container the mount often is the group itself, and the path names a place that is not
    // below it.
    let levels = |mount: &PathBuf| {
        let group = mount.join(path);
        group
            .ancestors()
            .take_while(|dir| dir.starts_with(mount))
            .map(Path::to_owned)
            .collect::<Vec<_>>()
    };
    mounts
        .iter()
        .flat_map(levels)
        .filter_map(|dir| quota(&dir))
        .min()
}

fn milli(quota: &str, period: &str) -> Option<u32> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    u32::try_from((quota * 1000).checked_div(period)?)
        .ok()
        .map(|milli| milli.max(1))
}

fn v2(dir: &Path) -> Option<u32> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    milli(quota, period)
}

fn v1(dir: &Path) -> Option<u32> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    milli(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_quota_on_the_way_to_the_root_counts() {
        let mount = std::env::temp_dir().join(format!("garonne-quota-{}", std::process::id()));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        fs::create_dir_all(mount.join("cpu/c")).unwrap();
        fs::write(mount.join("a/cpu.max"), "150000 100000\n").unwrap();
        fs::write(mount.join("a/b/cpu.max"), "max 100000\n").unwrap();
        fs::write(mount.join("cpu/c/cpu.cfs_quota_us"), "50000\n").unwrap();
        fs::write(mount.join("cpu/c/cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(mount.join("cpu/cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(mount.join("cpu/cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(from_files(&mount, "0::/a/b\n"), Some(1500));
        assert_eq!(from_files(&mount, "0::/\n"), None);
        assert_eq!(
            from_files(&mount, "4:memory:/c\n3:cpu,cpuacct:/c\n"),
            Some(500)
        );
        assert_eq!(from_files(&mount, "3:cpu:/elsewhere\n"), None);
        fs::remove_dir_all(&mount).unwrap();
    }
}
