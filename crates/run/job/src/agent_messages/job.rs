//! A job as the first agent tells it to others (docs/reference/job.md, D4: 301).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use garonne_topology::binding::{BindTo, MapBy, Policy};

use super::{count, optional, put_numbers, ranks};
use crate::error::Result;
use crate::job::{Job, Program, StderrMode, StdinReaders};
use crate::limits;
use crate::node_map::NodeMap;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// The reader of standard input, where all ranks read it: no rank has this number.
const READ_BY_ALL: u32 = u32::MAX - 1;

fn put_env(writer: MessageWriter, env: &[(OsString, Option<OsString>)]) -> MessageWriter {
    let writer = writer.raw((env.len() as u32).to_le_bytes());
    env.iter().fold(writer, |writer, (name, value)| {
        let writer = writer
            .bytes(name.as_bytes())
            .raw([u8::from(value.is_some())]);
        writer.bytes(value.as_ref().map_or(b"", |value| value.as_bytes()))
    })
}

fn env(r: &mut MessageReader<'_>) -> Result<Vec<(OsString, Option<OsString>)>> {
    let count = count(r, 9, limits::JOB_WORDS_MAX)?;
    let entry = |r: &mut MessageReader<'_>| {
        let name = os(r)?;
        let there = r.raw()? != [0];
        Ok((name, Some(os(r)?).filter(|_| there)))
    };
    (0..count).map(|_| entry(r)).collect()
}

fn os(r: &mut MessageReader<'_>) -> Result<OsString> {
    Ok(OsString::from_vec(r.bytes()?.to_vec()))
}

pub(super) fn put_job(writer: MessageWriter, job: &Job) -> MessageWriter {
    let mut writer = writer.raw((job.programs.len() as u32).to_le_bytes());
    for program in &job.programs {
        writer = writer.raw((program.argv.len() as u32).to_le_bytes());
        writer = program
            .argv
            .iter()
            .fold(writer, |writer, word| writer.bytes(word.as_bytes()));
        writer = put_env(writer.raw(program.ranks.to_le_bytes()), &program.env);
        let dir = program
            .dir
            .as_ref()
            .map_or(&b""[..], |dir| dir.as_os_str().as_bytes());
        writer = writer.bytes(dir);
    }
    let base: Vec<_> = job
        .env
        .iter()
        .flatten()
        .map(|(name, value)| (name.clone(), Some(value.clone())))
        .collect();
    writer = put_env(writer, &base);
    writer = writer
        .raw([u8::from(job.streams == StderrMode::Merged)])
        .raw(optional(match job.stdin {
            StdinReaders::Rank(rank) => Some(rank),
            StdinReaders::All => Some(READ_BY_ALL),
            StdinReaders::Nobody => None,
        }))
        .raw((job.nodes.names.len() as u32).to_le_bytes());
    writer = job
        .nodes
        .names
        .iter()
        .fold(writer, |writer, name| writer.bytes(name.as_bytes()));
    writer = put_numbers(
        writer,
        job.nodes.of_rank.iter().map(|node| node.to_le_bytes()),
    );
    let Policy {
        bind,
        map,
        cores_per_rank,
    } = job.policy;
    writer
        .raw([bind_code(bind), map_code(map)])
        .raw(cores_per_rank.to_le_bytes())
        .bytes(job.cpus.as_bytes())
        .bytes(job.command.as_bytes())
        .raw(job.fan_out.to_le_bytes())
        .raw(job.guests.to_le_bytes())
        .raw([u8::from(job.traced)])
        .bytes(job.name.as_bytes())
        .raw(job.started_s.to_le_bytes())
}

pub(super) fn job(r: &mut MessageReader<'_>) -> Result<Job> {
    let programs = count(r, 16, limits::JOB_WORDS_MAX)?;
    let program = |r: &mut MessageReader<'_>| {
        let words = count(r, 4, limits::JOB_WORDS_MAX)?;
        Ok(Program {
            argv: (0..words).map(|_| os(r)).collect::<Result<_>>()?,
            ranks: r.u32()?,
            env: env(r)?,
            dir: Some(PathBuf::from(os(r)?)).filter(|dir| !dir.as_os_str().is_empty()),
        })
    };
    let mut job = Job::new((0..programs).map(|_| program(r)).collect::<Result<_>>()?);
    let base = env(r)?;
    job.env = Some(
        base.into_iter()
            .map(|(name, value)| (name, value.unwrap_or_default()))
            .collect(),
    );
    job.streams = match r.raw()? {
        [0] => StderrMode::Apart,
        _ => StderrMode::Merged,
    };
    job.stdin = match r.u32()? {
        u32::MAX => StdinReaders::Nobody,
        READ_BY_ALL => StdinReaders::All,
        rank => StdinReaders::Rank(rank),
    };
    let names = count(r, 4, limits::HOSTS_MAX)?;
    let names: Vec<String> = (0..names).map(|_| r.text()).collect::<Result<_>>()?;
    let of_rank = ranks(r)?;
    if job.size() as usize != of_rank.len()
        || job.size() == 0
        || of_rank.iter().any(|node| *node as usize >= names.len())
    {
        return Err(malformed("its ranks are not where its hosts are"));
    }
    job.nodes = NodeMap { names, of_rank };
    let [bind, map] = r.raw()?;
    job.policy = Policy {
        bind: BINDS
            .get(usize::from(bind))
            .copied()
            .ok_or_else(|| malformed("there is no such binding"))?,
        map: MAPS
            .get(usize::from(map))
            .copied()
            .ok_or_else(|| malformed("there is no such order"))?,
        cores_per_rank: r.u32()?,
    };
    job.cpus = r.text()?;
    job.command = r.text()?;
    (job.fan_out, job.guests) = (r.u32()?, r.u32()?);
    job.traced = r.raw()? != [0];
    job.name = r.text()?;
    job.started_s = u64::from_le_bytes(r.raw()?);
    if !(2..=limits::FAN_OUT_MAX).contains(&job.fan_out) {
        return Err(malformed("so many agents do not report to one"));
    }
    Ok(job)
}

const BINDS: [BindTo; 7] = [
    BindTo::Auto,
    BindTo::None,
    BindTo::Thread,
    BindTo::Core,
    BindTo::Cache,
    BindTo::Numa,
    BindTo::Package,
];
const MAPS: [MapBy; 5] = [
    MapBy::Core,
    MapBy::Cache,
    MapBy::Numa,
    MapBy::Package,
    MapBy::Scatter,
];

fn bind_code(bind: BindTo) -> u8 {
    BINDS.iter().position(|known| *known == bind).unwrap_or(0) as u8
}

fn map_code(map: MapBy) -> u8 {
    MAPS.iter().position(|known| *known == map).unwrap_or(0) as u8
}
