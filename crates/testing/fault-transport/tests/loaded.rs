//! The fault wrapper loaded as a module: the conformance suite over what it makes, faults that
//! engines take, faults that the suite finds, and modules that are refused.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, Peer, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::{PacketClass, Transport};
use garonne_plugin::{Difference, LoadError};
use garonne_sim::local::Fabric;
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::modules::built_module;
use garonne_transport::conformance::{RecordedEvents, World, check_all, send};
use garonne_transport::dynamic::{DynTransport, boxed};
use garonne_transport::module::{ModuleContext, TransportModule};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn module() -> TransportModule {
    TransportModule::load(&built_module("garonne-fault-transport")).unwrap()
}

/// Two in-process transports, each behind a wrapper that was loaded.
struct Pair {
    fabric: Arc<Fabric>,
    transports: Vec<Box<dyn DynTransport>>,
}

impl Pair {
    fn new(module: &TransportModule, options: &str) -> Self {
        let fabric = Fabric::new(2);
        let wrapped = |me| {
            let context = ModuleContext {
                me,
                world: 2,
                shard: 0,
                options,
                inner: Some(boxed(fabric.transport(me))),
                at_leave: &mut Vec::new(),
            };
            module.create(context).unwrap()
        };
        let transports = (0..2).map(wrapped).collect();
        Self { fabric, transports }
    }
}

impl World for Pair {
    type Tested = Box<dyn DynTransport>;
    fn transport(&mut self, peer: Peer) -> &mut Self::Tested {
        &mut self.transports[peer as usize]
    }
    fn kill_second(&mut self) {
        self.fabric.kill(1);
    }
}

#[test]
fn the_suite_holds_over_a_loaded_wrapper() {
    let module = module();
    check_all(|| Pair::new(&module, ""));
}

#[test]
fn the_suite_holds_where_half_of_all_polls_find_nothing() {
    let module = module();
    for seed in 1..6 {
        check_all(|| Pair::new(&module, &format!("seed={seed},late=500")));
    }
}

/// Runs the suite where it is to fail, without a word about that.
fn is_found(options: &str) -> bool {
    let module = module();
    catch_unwind(AssertUnwindSafe(|| {
        check_all(|| Pair::new(&module, options));
    }))
    .is_err()
}

#[test]
fn the_suite_finds_a_wrapper_that_loses_packets_changes_them_or_refuses_room() {
    for options in ["lost=20", "damaged=20", "full=200"] {
        assert!(is_found(options), "{options}");
    }
}

fn pending(started: StartOutcome) -> Option<Request> {
    match started {
        StartOutcome::Pending(request) => Some(request),
        StartOutcome::Done(_) => None,
    }
}

#[test]
fn messages_of_engines_arrive_whole_where_room_is_refused_and_polls_are_late() {
    const LENGTHS: [usize; 6] = [0, 8, 100, 5_000, 70_000, 1 << 20];
    let module = module();
    for seed in 1..10 {
        let pair = Pair::new(&module, &format!("seed={seed},full=300,late=300"));
        let mut engines: Vec<_> = (0..)
            .zip(pair.transports)
            .map(|(me, transport)| Engine::new(transport, me, 2, CreditQuotas::for_world(2)))
            .collect();
        let mut open = Vec::new();
        let mut buffers = Vec::new();
        for (tag, len) in (0..).zip(LENGTHS) {
            let bytes: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + seed) as u8).collect();
            let [from, to] = [(); 2].map(|()| Scratch::new(len.max(1)).unwrap());
            from.mem().write(0, &bytes);
            let sent = engines[0].send(SendArgs {
                context: 2,
                peer: 1,
                source: 0,
                tag,
                data: Data::contiguous(from.mem(), len as u64),
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            });
            open.extend(pending(sent.unwrap()).map(|request| (0, request)));
            let received = engines[1].recv(RecvArgs {
                pattern: Pattern {
                    context: 2,
                    source: Some(Source { rank: 0, peer: 0 }),
                    tag: Some(tag),
                },
                data: Data::contiguous(to.mem(), len as u64),
                origin: CallOrigin::default(),
            });
            open.extend(pending(received.unwrap()).map(|request| (1, request)));
            buffers.push((bytes, from, to));
        }
        for _ in 0..100_000 {
            engines.iter_mut().for_each(|engine| {
                engine.progress();
            });
            open.retain(|(rank, request)| match engines[*rank].take(*request) {
                Ok(Some(status)) => {
                    assert_eq!(status.error, None);
                    false
                }
                Ok(None) => true,
                Err(error) => panic!("{error:?}"),
            });
            if open.is_empty() {
                break;
            }
        }
        assert!(open.is_empty(), "seed {seed}: {open:?}");
        for (bytes, _from, to) in buffers {
            let mut got = vec![0; bytes.len()];
            to.mem().read(0, &mut got);
            assert!(got == bytes, "seed {seed}: {} bytes", bytes.len());
        }
    }
}

#[test]
fn what_a_module_made_outlives_whoever_loaded_it() {
    let fabric = Fabric::new(2);
    let wake = {
        let pair = Pair::new(&module(), "");
        pair.transports[0].wake_source()
    };
    wake.wake();
    let mut transport = {
        let module = module();
        let inner = Some(boxed(fabric.transport(0)));
        let options = "";
        module
            .create(ModuleContext {
                me: 0,
                world: 2,
                shard: 0,
                options,
                inner,
                at_leave: &mut Vec::new(),
            })
            .unwrap()
    };
    let ticket = transport.arm();
    transport.wake_source().wake();
    transport
        .wake_source()
        .sleep(ticket, Some(Duration::from_secs(60)));
    send(&mut transport, 1, b"word", 0, PacketClass::Data).unwrap();
    let mut told = RecordedEvents::default();
    fabric.transport(1).poll(1, &mut told);
    assert_eq!(told.packets[0].2, b"word");
}

#[test]
fn a_module_says_why_it_makes_no_transport() {
    let module = module();
    let file = built_module("garonne-fault-transport");
    let fails = |options: &str, inner| {
        let made = module.create(ModuleContext {
            me: 0,
            world: 1,
            shard: 0,
            options,
            inner,
            at_leave: &mut Vec::new(),
        });
        made.err().expect("it is refused")
    };
    assert_eq!(
        fails("", None),
        format!(
            "{}: it wraps a transport, and was given none",
            file.display()
        )
    );
    let inner = || Some(boxed(Fabric::new(1).transport(0)));
    for (options, word) in [
        ("loss=1", "loss=1"),
        ("seed=1,full", "full"),
        ("late=1001", "late=1001"),
    ] {
        assert!(
            fails(options, inner()).contains(&format!("'{word}'")),
            "{options}"
        );
    }
}

/// A file that is removed when the test ends.
struct Changed(PathBuf);

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Copy of the module in which `change` changed the header, which begins at its second argument.
fn changed(name: &str, change: impl FnOnce(&mut [u8], usize)) -> Changed {
    let mut bytes = std::fs::read(built_module("garonne-fault-transport")).unwrap();
    let version = 1u32.to_ne_bytes();
    let start = [&b"GARONNEM"[..], &version].concat();
    let at = |from: usize| {
        let rest = bytes[from..].windows(start.len());
        rest.enumerate().find(|(_, window)| *window == start)
    };
    let first = at(0).expect("the module has a header").0;
    assert!(at(first + 1).is_none(), "it has one");
    change(&mut bytes, first);
    let file = std::env::temp_dir().join(format!("garonne-{}-{name}.so", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    Changed(file)
}

/// Bytes of the parts of a header: magic, version, size, layout, interface, crates, compiler.
const VERSION: usize = 8;
const SIZE: usize = 12;
const LAYOUT: usize = 16;
const INTERFACE: usize = 24;
const CRATES: usize = 56;
const COMPILER: usize = 88;

fn refusal(file: &Path) -> LoadError {
    TransportModule::load(file).expect_err("it is refused")
}

#[test]
fn a_module_that_was_built_otherwise_is_refused_by_file_and_both_versions() {
    let rows = [
        (
            "header",
            Difference::Header,
            VERSION,
            &2u32.to_ne_bytes()[..],
            "2",
        ),
        (
            "interface",
            Difference::Interface,
            INTERFACE,
            b"strategy\0",
            "strategy",
        ),
        ("crates", Difference::Crates, CRATES, b"9.8.7\0", "9.8.7"),
        (
            "compiler",
            Difference::Compiler,
            COMPILER,
            b"rustc 1.0.0\0",
            "rustc 1.0.0",
        ),
        (
            "layout",
            Difference::Layout,
            LAYOUT,
            &7u64.to_ne_bytes()[..],
            "0000000000000007",
        ),
    ];
    for (name, difference, at, bytes, said) in rows {
        let file = changed(name, |module, header| {
            module[header + at..header + at + bytes.len()].copy_from_slice(bytes);
        });
        let error = refusal(&file.0);
        let LoadError::Differs {
            what, theirs, ours, ..
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!((*what, theirs.as_str()), (difference, said), "{name}");
        let message = error.to_string();
        for part in [file.0.to_str().unwrap(), theirs, ours] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn what_is_no_module_is_refused() {
    let size = changed("size", |module, header| module[header + SIZE] ^= 0xff);
    assert!(matches!(refusal(&size.0), LoadError::NoHeader { .. }));
    let magic = changed("magic", |module, header| module[header] = b'X');
    assert!(matches!(refusal(&magic.0), LoadError::NoHeader { .. }));
    let text = changed("text", |module, _| module.fill(b'x'));
    assert!(matches!(refusal(&text.0), LoadError::Open { .. }));
    let absent = refusal(Path::new("/nonexistent/module.so"));
    assert!(matches!(absent, LoadError::Open { .. }));
    assert!(absent.to_string().starts_with("/nonexistent/module.so: "));
    // A shared object of somebody else's.
    let other = refusal(Path::new("libm.so.6"));
    assert!(matches!(other, LoadError::NoModule { .. }), "{other}");
}
