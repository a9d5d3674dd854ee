//! `garonne agent --adopt`: the agent of ranks that another launcher started. The first of them on
//! a host starts it; it detaches itself, serves all of them there and ends with them.
//!
//! Owned by the command. Standard input is a private socket to the rank that started the agent
//! (`garonne-launchers` holds the other end). The rank says whom to adopt, the agent where it is,
//! and the rank where the agent is that this one reports to. The socket's end tells of a rank that
//! died before it registered.

use std::io::Write;
use std::os::fd::AsFd;

use garonne_job::adoption_messages::AdoptionRequest;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_links::process_tree;
use garonne_links::sys::{self, ForkSide, SignalFd};
use garonne_topology::binding::{BindTo, Policy};
use rustix::net::RecvFlags;

use crate::agent;
use crate::cpu_claims;

/// `garonne agent --adopt`: adopts those whom the process that started it names on its standard
/// input. Returns the exit code.
pub fn serve() -> i32 {
    match serve_ranks() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}

fn serve_ranks() -> Result<i32> {
    let failed =
        |what: &'static str| move |error: std::io::Error| Error::system(codes::G0220, what, error);
    let line = sys::detach_input().map_err(failed("cannot keep standard input"))?;
    let message = || {
        let message = sys::recv(line.as_fd(), RecvFlags::empty());
        message
            .map(|message| message.bytes)
            .map_err(failed("nobody says whom to adopt"))
    };
    let adoption = AdoptionRequest::decode(message).map_err(|_| {
        let text =
            "nobody to adopt; `garonne agent --adopt` is started by ranks of other launchers, not by hand";
        Error::misuse(codes::G0220, text)
    })?;
    // Whoever started us is a rank: it shall not find a child of which it knows nothing.
    match sys::fork().map_err(failed("cannot detach the agent"))? {
        ForkSide::Parent(_) => return Ok(0),
        ForkSide::Child => {}
    }
    // Neither the keys of a terminal nor what a launcher sends to its ranks are for us: we end when
    // they have ended.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    cpu_claims::use_all_cpus();
    process_tree::adopt_orphans().map_err(failed("cannot become the parent of orphans"))?;
    let signals = SignalFd::watch().map_err(failed("cannot watch signals"))?;
    let mut job = adoption.job();
    let node = adoption.of_rank[adoption.leader as usize];
    let unbound = Policy {
        bind: BindTo::None,
        ..Policy::default()
    };
    let here = job.ranks_of(node).len() as u32;
    job.placement = cpu_claims::place_ranks(here, &unbound).placement;
    Ok(agent::adopt(&job, &adoption, &line, &signals))
}
