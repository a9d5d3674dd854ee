//! The command lines that people use, and what they mean.

use std::ffi::OsString;
use std::time::Duration;

use garonne_job::job::{OutputTags, OutputTimes, StderrMode, StdinReaders};
use garonne_job::node_map::HostOrder;
use garonne_topology::binding::{BindTo, MapBy};

use super::launch_request::{JobOrder, LaunchRequest, SystemFacts};
use super::parse::parse;

pub(super) fn facts() -> SystemFacts {
    SystemFacts {
        cores: 6,
        host_names: vec!["localhost".into(), "here".into()],
        env: vec![("HOME".into(), "/h".into()), ("PATH".into(), "/bin".into())],
        read: |path| match path.to_str() {
            Some("programs") => {
                Ok("# two programs\n-n 2 app 'a b' \\\n  c\n\n-n 3 -env X=1 other\n".into())
            }
            Some("hosts") => Ok("# nodes\nhere slots=2\nlocalhost:3\n".into()),
            Some("blanks") => Ok("here slots = 2\nlocalhost slots =3\n".into()),
            Some("strange") => Ok("here slots=2\n\nlocalhost slot=3\n".into()),
            Some("ranks") => Ok("rank 1=b slot=1:0-2\nrank 0=here slot=0\n".into()),
            Some("empty") => Ok("# none\n".into()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
        are_own: |names, ask| {
            let is_own = |name: &&str| *name == "10.0.0.1" || (ask && *name == "here.example.org");
            names.iter().map(is_own).collect()
        },
    }
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn order(line: &str) -> JobOrder {
    match parse(words(line), &facts()) {
        Ok(LaunchRequest::Run(order)) => *order,
        other => panic!("{line}: {other:?}"),
    }
}

fn fault(line: &str) -> String {
    parse(words(line), &facts()).expect_err(line)
}

/// The command lines that projects' CIs use most.
#[test]
fn the_usual_command_lines_start_the_program_they_name() {
    let lines = [
        ("-n 4 app a b", 4),
        ("-np 4 app a b", 4),
        ("--np 4 app a b", 4),
        ("--oversubscribe -n 3 app a b", 3),
        ("--allow-run-as-root --oversubscribe -np 2 app a b", 2),
        ("-np 2 --allow-run-as-root --mca btl self,tcp app a b", 2),
        ("-np 2 --mca btl_base_warn_component_unused 0 app a b", 2),
        ("-n 2 -host localhost app a b", 2),
        ("--host localhost:8 -np 8 app a b", 8),
        ("-H localhost,localhost app a b", 2),
        ("-hostfile hosts app a b", 5),
        ("-hostfile blanks app a b", 5),
        ("-f hosts -n 2 app a b", 2),
        ("-machinefile hosts -np 3 app a b", 3),
        ("-genv OMP_NUM_THREADS 1 -n 2 app a b", 2),
        ("-genvall -n 2 app a b", 2),
        ("-ppn 4 app a b", 4),
        ("-n 2 -ppn 1 app a b", 2),
        ("-bind-to core -map-by socket -n 2 app a b", 2),
        ("--bind-to none -n 2 app a b", 2),
        ("--map-by ppr:1:node:PE=2 -n 1 app a b", 1),
        ("--map-by :OVERSUBSCRIBE -n 9 app a b", 9),
        ("-x PATH -x OMP_NUM_THREADS=2 -np 2 app a b", 2),
        ("--use-hwthread-cpus -np 2 app a b", 2),
        ("-l -n 2 app a b", 2),
        ("--tag-output --timeout 30 -np 2 app a b", 2),
        ("-launcher fork -n 2 app a b", 2),
        ("-bootstrap ssh -ppn 2 -n 2 app a b", 2),
        (
            "--map-by node --bind-to none --mca pml ob1 -np 2 app a b",
            2,
        ),
        ("-n4 app a b", 4),
        ("--np=4 app a b", 4),
        ("-q -n 1 -- app a b", 1),
        ("app a b", 6),
        (
            "--merge-stderr-to-stdout --timestamp-output -np 2 app a b",
            2,
        ),
        (
            "--show-progress --forward-signals SIGUSR1,10,usr2 -np 2 app a b",
            2,
        ),
        (
            "--get-stack-traces --report-state-on-timeout --timeout 9 -n 2 app a b",
            2,
        ),
        ("--output tag,timestamp,merge -n 2 app a b", 2),
        ("--map-by ppr:3:node app a b", 3),
        ("--display map,bind --rank-by slot -n 2 app a b", 2),
        ("-print-all-exitcodes -ordered-output -IB -n 2 app a b", 2),
        ("--bind-to-socket --bynode -n 2 app a b", 2),
    ];
    for (line, ranks) in lines {
        let job = order(line).job;
        assert_eq!(job.size(), ranks, "{line}");
        assert_eq!(job.programs[0].argv, ["app", "a", "b"], "{line}");
    }
}

#[test]
fn options_after_the_program_are_the_programs() {
    let job = order("-n 2 python -m mpi4py -n 5 --help").job;
    assert_eq!(job.programs[0].argv, words("python -m mpi4py -n 5 --help"));
}

#[test]
fn programs_are_separated_by_a_colon_and_have_their_own_settings() {
    let job = order("-x A=1 -n 1 -wdir /tmp -env B=2 one x : -np 2 -env B 3 two : three").job;
    let ranks: Vec<_> = job.programs.iter().map(|program| program.ranks).collect();
    assert_eq!(ranks, [1, 2, 1]);
    assert_eq!(
        job.programs[0].dir.as_deref(),
        Some(std::path::Path::new("/tmp"))
    );
    assert_eq!(job.programs[1].dir, None);
    let env = |index: usize| job.programs[index].env.clone();
    let set = |name: &str, value: &str| (OsString::from(name), Some(OsString::from(value)));
    assert_eq!(env(0), [set("A", "1"), set("B", "2")]);
    assert_eq!(env(1), [set("A", "1"), set("B", "3")]);
    assert_eq!(env(2), [set("A", "1")]);
}

#[test]
fn binding_output_time_and_input_are_understood() {
    let order =
        order("--bind-to numa --map-by l3cache:PE=2 -n 2 -prepend-rank --timeout 1.5 -stdin 1 app");
    assert_eq!(
        (
            order.policy.bind,
            order.policy.map,
            order.policy.cores_per_rank
        ),
        (BindTo::Numa, MapBy::Cache, 2)
    );
    let map = |line: &str| self::order(line).policy.map;
    assert_eq!(map("-n 2 app"), MapBy::Scatter);
    assert_eq!(map("-n 2 --map-by core app"), MapBy::Core);
    assert_eq!(map("-n 2 --map-by slot app"), MapBy::Core);
    assert_eq!(map("-n 2 --map-by scatter app"), MapBy::Scatter);
    assert_eq!(order.job.tags, OutputTags::Rank);
    assert_eq!(order.job.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(order.job.stdin, StdinReaders::Rank(1));
    assert_eq!(self::order("-s all -n 2 app").job.stdin, StdinReaders::All);
}

#[test]
fn a_list_of_variables_keeps_only_those() {
    let job = order("-genvlist FOO -n 1 app").job;
    assert_eq!(job.programs[0].env, [(OsString::from("HOME"), None)]);
}

#[test]
fn what_is_not_understood_is_said_with_a_suggestion() {
    assert!(fault("--bindto core app").contains("--bind-to"));
    assert!(fault("--tagoutput app").contains("--tag-output"));
    assert!(fault("-n four app").contains("'four' is not a number of ranks"));
    assert!(fault("-n 0 app").contains("'0' is not a number of ranks"));
    assert!(fault("-n").contains("needs a value"));
    assert!(fault("-n 2").contains("no program"));
    assert!(fault("-n 2 app :").contains("no program"));
    assert!(fault("--host -x -n 2 app").contains("'-x' is not the name of a host"));
    assert!(fault("--launcher lsf --host elsewhere app").contains("lsf"));
    assert!(fault("--rankfile f -n 2 app").contains("cannot read the rank file 'f'"));
    assert!(fault("--rankfile ranks -n 3 app").contains("names 2 ranks, and the job has 3"));
    assert!(fault("--map-by rankfile app").contains("rankfile:FILE=PATH"));
    for option in [
        "--rankfile ranks",
        "-rf ranks",
        "--map-by rankfile:FILE=ranks",
    ] {
        let order = order(&format!("{option} app"));
        assert_eq!(order.job.size(), 2, "{option}");
        assert_eq!(order.rank_file.unwrap().places, ["0", "1:0-2"]);
        let shown: Vec<_> = order
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), host.own))
            .collect();
        assert_eq!(shown, [("here", true), ("b", false)]);
    }
    assert!(fault("--stdin 3 -n 2 app").contains("there are 2 ranks"));
    assert!(fault("--with-ft maybe -n 2 app").contains("ulfm or none"));
    assert!(fault("--frobnicate app").contains("unknown option"));
    assert!(fault("-hostfile nothing app").contains("cannot read"));
    assert!(fault("-hostfile strange app").contains("'strange', line 3: 'slot=3'"));
    for option in ["-hostfile", "-machinefile", "-f", "--default-hostfile"] {
        assert!(fault(&format!("{option} empty app")).contains("'empty' names no host"));
    }
    assert!(fault("--host , app").contains("names no host"));
}

#[test]
fn this_host_is_known_by_its_addresses_and_by_names_where_names_start_processes() {
    let own = |line: &str| -> Vec<bool> {
        let hosts = order(&format!("{line} app")).hosts;
        hosts.iter().map(|host| host.own).collect()
    };
    assert_eq!(
        own("-H here,10.0.0.1:2,10.0.0.2,here.example.org"),
        [true, true, false, true]
    );
    assert_eq!(own("-H me@10.0.0.1,there"), [false, false]);
    let by_hand = "--launcher 'ip netns exec' -H 10.0.0.1,here.example.org app";
    let words = shlex::split(by_hand)
        .unwrap()
        .into_iter()
        .map(OsString::from);
    let Ok(LaunchRequest::Run(order)) = parse(words.collect(), &facts()) else {
        panic!("{by_hand}")
    };
    assert_eq!([order.hosts[0].own, order.hosts[1].own], [true, false]);
}

#[test]
fn hosts_are_kept_with_their_slots_and_decide_how_many_ranks_there_are() {
    let of = |line: &str| {
        let order = order(line);
        let hosts: Vec<_> = order
            .hosts
            .iter()
            .map(|host| (host.name.clone(), host.slots, host.own))
            .collect();
        (order.job.size(), order.mapping, hosts)
    };
    let (a, here) = (
        |slots| ("a".into(), slots, false),
        |slots| ("here".into(), slots, true),
    );
    assert_eq!(
        of("--host a:2,here app"),
        (3, HostOrder::Slots, vec![a(2), here(1)])
    );
    assert_eq!(
        of("-n 4 --map-by node -H a,here app"),
        (4, HostOrder::Turns, vec![a(1), here(1)])
    );
    assert_eq!(
        of("--map-by ppr:3:node -H a,here app"),
        (6, HostOrder::Slots, vec![a(3), here(3)])
    );
    assert_eq!(
        of("-ppn 2 -hosts a,here app"),
        (4, HostOrder::Slots, vec![a(2), here(2)])
    );
    assert_eq!(of("-ppn 2 app").0, 2);
    assert_eq!(order("--launcher rsh -H a app").job.starter, ["rsh"]);
}

#[test]
fn version_and_help_need_no_program() {
    assert!(matches!(
        parse(words("--version"), &facts()),
        Ok(LaunchRequest::Version)
    ));
    for asked in ["-V", "-info"] {
        assert!(matches!(
            parse(words(asked), &facts()),
            Ok(LaunchRequest::Version)
        ));
    }
    assert!(matches!(
        parse(words("-h"), &facts()),
        Ok(LaunchRequest::Help)
    ));
}

#[test]
fn what_open_mpi_calls_output_marks_lines_or_is_refused_by_name() {
    let tags = |line: &str| order(line).job.tags;
    assert_eq!(tags("--output tag -n 2 app"), OutputTags::Stream);
    assert_eq!(tags("--output=RANK -n 2 app"), OutputTags::Rank);
    let files = order("--output tag,dir=out:nocopy -n 2 app").job.files;
    assert_eq!(files.out.unwrap(), "out/rank.%r/stdout");
    assert!(fault("--output tag,xml -n 2 app").contains("'--output xml' is not supported"));
}

#[test]
fn a_file_of_programs_stands_for_its_lines() {
    let job = order("-genv Y 2 -configfile programs").job;
    let shown: Vec<_> = job
        .programs
        .iter()
        .map(|program| (program.ranks, program.argv.clone()))
        .collect();
    assert_eq!(
        shown,
        [
            (2, vec!["app".into(), "a b".into(), "c".into()]),
            (3, vec!["other".into()])
        ]
    );
    assert_eq!(job.programs[1].env.len(), 2);
    assert!(fault("-configfile programs app").contains("nothing may follow"));
    assert!(fault("--app nowhere").contains("cannot read"));
}

#[test]
fn marks_streams_and_signals_are_understood_or_refused_by_name() {
    let job = order("--timestamp-output --merge-stderr-to-stdout -n 1 app").job;
    assert_eq!(
        (job.stamps, job.streams),
        (OutputTimes::Time, StderrMode::Merged)
    );
    assert_eq!(order("--bind-to-none -n 1 app").policy.bind, BindTo::None);
    let programs = order("-n 1 -initial-errhandler MPI_ERRORS_RETURN app : -n 1 other")
        .job
        .programs;
    let named = (
        OsString::from("GARONNE_INITIAL_ERRHANDLER"),
        Some("MPI_ERRORS_RETURN".into()),
    );
    assert!(programs[0].env.contains(&named) && !programs[1].env.contains(&named));
    assert!(
        fault("-initial-errhandler mpi_errors app")
            .contains("mpi_errors_are_fatal, mpi_errors_abort")
    );
    let modules = order("--transport-module ./a.so,x=1 --transport-module b.so -n 1 app").job;
    let (name, all) = modules.programs[0].env.last().unwrap().clone();
    assert_eq!(name, "GARONNE_TRANSPORT_MODULES");
    assert_eq!(all.unwrap(), "./a.so,x=1;b.so");
    assert!(fault("--transport-module ,x=1 app").contains("FILE or FILE,OPTIONS"));
    assert!(order("--display bind -n 1 app").report_bindings);
    let order_of = order("--cpu-set 1,3-4 app");
    assert_eq!(
        (order_of.job.size(), order_of.cpus.unwrap().to_string()),
        (3, "1,3-4".into())
    );
    assert!(fault("--cpu-list x app").contains("0-3,8"));
    assert!(fault("--forward-signals SIGSEGV app").contains("USR1"));
    for (line, words) in [
        ("-outfile-pattern a%q app", "%r (rank)"),
        ("-gpus-per-proc 1 app", "CUDA_VISIBLE_DEVICES"),
        ("-nolocal app", "--host"),
        ("-rankmap f app", "--rankfile"),
    ] {
        assert!(fault(line).contains(words), "{line}");
    }
    assert!(matches!(
        parse(words("--help all"), &facts()),
        Ok(LaunchRequest::HelpAll)
    ));
}

#[test]
fn variables_may_be_left_out() {
    let job = order("-genvexcl HOME,PATH -n 1 app").job;
    assert_eq!(
        job.programs[0].env,
        [("HOME".into(), None), ("PATH".into(), None)]
    );
}
