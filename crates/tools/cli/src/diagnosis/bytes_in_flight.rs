//! Finds ranks with bytes in flight to or from other hosts: bytes sent and not acknowledged, or
//! received and not read.
//!
//! A rank may seem to hang while its large message takes seconds over a slow network, or was lost
//! and will be sent again. The kernel's table of sockets tells that what it waits for may still
//! come. Read only for jobs on several hosts. Bounded by the sockets of the host and the
//! descriptors of ranks that wait.

use std::collections::HashSet;

/// The sockets with bytes on their way, by inode, in the network of a process.
pub fn busy(pid: u32) -> HashSet<u64> {
    let tables =
        ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    tables
        .iter()
        .flatten()
        .flat_map(|table| busy_in(table))
        .collect()
}

/// Lists the sockets of one table with bytes in flight, by inode.
fn busy_in(table: &str) -> impl Iterator<Item = u64> + '_ {
    const LISTENS: &str = "0A";
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (state, queues) = (fields.next()?, fields.next()?);
        let is_empty = queues.bytes().all(|byte| matches!(byte, b'0' | b':'));
        // Its queue is of callers.
        if state == LISTENS || is_empty {
            return None;
        }
        fields.nth(4)?.parse().ok()
    })
}

/// Returns whether a process has one of these open.
pub fn has_one(pid: u32, busy: &HashSet<u64>) -> bool {
    if busy.is_empty() {
        return false;
    }
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    open.flatten().any(|entry| {
        let target = std::fs::read_link(entry.path()).ok();
        let inode = target.as_ref().and_then(|target| {
            let inode = target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?;
            inode.parse().ok()
        });
        inode.is_some_and(|inode: u64| busy.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn sockets_with_bytes_in_a_queue_are_busy_and_those_that_listen_are_not() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0016 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:0016 0100007F:D1 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1\n\
            2: 0100007F:0016 0100007F:D2 01 000000A0:00000000 01:00000014 00000000     0        0 13 1 0 20 4 30 10 -1\n\
            3: 0100007F:0016 0100007F:D3 01 00000000:00000010 00:00000000 00000000     0        0 14 1 0 20 4 30 10 -1\n\
            4: cut";
        assert_eq!(busy_in(table).collect::<Vec<_>>(), [13, 14]);
    }

    #[test]
    fn a_process_with_bytes_that_it_has_not_read_has_some_on_their_way() {
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (mut end, _) = door.accept().unwrap();
        out.write_all(b"abc").unwrap();
        end.peek(&mut [0]).unwrap();
        let own = std::process::id();
        assert!(has_one(own, &busy(own)));
        end.read_exact(&mut [0; 3]).unwrap();
        assert!(!has_one(own, &HashSet::new()));
    }
}
