//! `garonne run --metrics`: what Prometheus reads of a running job.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use support::{command, finish, kill, run, said, until};

/// Status, content type and body of a page.
fn get(address: &str, path: &str) -> Option<(String, String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.to_owned();
    let content_type = lines.find_map(|line| line.strip_prefix("Content-Type: "))?;
    Some((status, content_type.to_owned(), body.to_owned()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The labels between braces, each value without its escapes.
fn labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text
            .split_once("=\"")
            .expect("a label has a value in quotes");
        assert!(is_name(name), "{name}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a value ends with a quote") {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next().expect("an escape is of something").1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    other => panic!("no escape: {other}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert_eq!(labels.insert(name.to_owned(), value), None, "{name} twice");
        text = &rest[end..];
        text = text.strip_prefix(',').unwrap_or(text);
    }
    labels
}

type Samples = BTreeMap<String, Vec<(BTreeMap<String, String>, f64)>>;

/// Reads the text format 0.0.4 as strictly as its description is; panics where the text is none.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let (mut samples, mut types, mut closed) = (Samples::new(), BTreeMap::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, rest) = (
                words.next().unwrap(),
                words.next().unwrap(),
                words.next().unwrap(),
            );
            assert!(is_name(name) && !rest.is_empty(), "{line}");
            if name != current {
                assert!(
                    closed.insert(name.to_owned()),
                    "{name} is described twice, or apart"
                );
                name.clone_into(&mut current);
            }
            match what {
                "TYPE" => assert!(
                    ["counter", "gauge"].contains(&rest)
                        && types.insert(name.to_owned(), rest.to_owned()).is_none(),
                    "{line}"
                ),
                "HELP" => assert!(
                    !types.contains_key(name),
                    "help comes before the type: {line}"
                ),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, rest) = series.split_once('{').expect("all of these have labels");
        assert_eq!(name, current, "samples stand behind their type");
        let kind = &types[name];
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        let labels = labels(rest.strip_suffix('}').expect("labels end"));
        let value: f64 = value.parse().expect("a value is a number");
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let all = samples.entry(name.to_owned()).or_default();
        assert!(
            all.iter().all(|(known, _)| *known != labels),
            "{line}: twice"
        );
        all.push((labels, value));
    }
    samples
}

/// The value of a metric with this label.
fn value(samples: &Samples, name: &str, label: (&str, &str)) -> Option<f64> {
    let all = samples.get(name)?.iter();
    let mut of =
        all.filter(|(labels, _)| labels.get(label.0).is_some_and(|value| value == label.1));
    of.next().map(|(_, value)| *value)
}

#[test]
fn prometheus_reads_what_the_ranks_of_a_job_do() {
    let mut job = command("run -n 3 --name heat --metrics 0 RANK forever")
        .spawn()
        .unwrap();
    let mut err = BufReader::new(job.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("garonne run: metrics at http://127.0.0.1:");
    let port = address
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .expect(&line)
        .to_owned();
    let address = format!("127.0.0.1:{port}");
    let mut samples = Samples::new();
    until("all ranks run", || {
        let Some((status, kind, text)) = get(&address, "/metrics") else {
            return false;
        };
        assert!(status == "200" || status == "503", "{status}: {text}");
        if status != "200" {
            return false;
        }
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        samples = parse(&text);
        value(&samples, "garonne_ranks", ("state", "running")) == Some(3.0)
    });
    for name in [
        "garonne_messages_sent_total",
        "garonne_sent_bytes_total",
        "garonne_cpu_seconds_total",
        "garonne_wait_seconds",
    ] {
        for rank in ["0", "1", "2"] {
            assert!(
                value(&samples, name, ("rank", rank)).is_some(),
                "{name} of {rank}: {samples:?}"
            );
        }
    }
    assert_eq!(
        value(&samples, "garonne_job_info", ("job_name", "heat")),
        Some(1.0)
    );
    let program = samples["garonne_job_info"][0].0["program"].clone();
    assert!(program.ends_with("forever"), "{program}");
    assert_eq!(
        value(&samples, "garonne_job_stuck", ("job_name", "heat")),
        Some(0.0)
    );
    assert_eq!(get(&address, "/").unwrap().0, "200");
    assert_eq!(get(&address, "/nothing").unwrap().0, "404");
    // Clients that stay and say nothing are no matter of the job's.
    let _silent: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    assert_eq!(get(&address, "/metrics").unwrap().0, "200");
    kill(job.id() as i32, libc::SIGTERM);
    assert_eq!(finish(job).code, 128 + libc::SIGTERM);
    assert!(
        TcpStream::connect(&address).is_err(),
        "the port is held by nobody any more"
    );
}

#[test]
fn a_port_that_cannot_be_had_is_said_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = run(&format!("run -n 1 --metrics {port} echo started"));
    assert!(
        said.code == 1 && said.out.is_empty() && said.err.starts_with("error[G0320]: "),
        "{said:?}"
    );
    for wrong in ["nowhere", "99999", ":80", "10.0.0.1"] {
        let mut job = command("run -n 1 --metrics");
        let said = support::said(job.args([wrong, "true"]));
        assert!(
            said.code == 2 && said.err.contains("a port, or an address and a port"),
            "{wrong}: {said:?}"
        );
    }
    assert!(run("explain G0320").out.contains("--metrics"));
}

#[test]
fn a_job_that_is_served_ends_as_others_do() {
    let said = said(&mut command(
        "run -n 2 --metrics 0 RANK ring fence finalize",
    ));
    assert_eq!((said.code, said.out.lines().count()), (0, 2));
}
