//! Why the system does not let a process be examined, in words.

use std::io;

/// Explains why a thread of process `pid` could not be stopped.
pub fn explanation(pid: u32, error: &io::Error) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    if let Some(tracer) = field("TracerPid:").filter(|tracer| tracer != "0") {
        return format!("a debugger holds it (process {tracer})");
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let effective =
        field("Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1).map(str::to_owned));
    let own = own_user();
    match error.kind() {
        io::ErrorKind::TimedOut => "it sleeps in the kernel and cannot be stopped".into(),
        io::ErrorKind::PermissionDenied if effective.is_some_and(|user| user != own) => {
            "it belongs to another user".into()
        }
        io::ErrorKind::PermissionDenied if matches!(scope.trim(), "1" | "2" | "3") => format!(
            "kernel.yama.ptrace_scope = {} does not allow it (sysctl kernel.yama.ptrace_scope=0 does)",
            scope.trim()
        ),
        io::ErrorKind::PermissionDenied => {
            "the system does not allow it (a container without CAP_SYS_PTRACE, or a program that forbids it)"
                .into()
        }
        _ => error.to_string(),
    }
}

/// The effective user of this process, as `status` files write it.
fn own_user() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_ascii_whitespace().nth(1))
        .unwrap_or_default()
        .to_owned()
}
