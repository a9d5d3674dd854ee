//! Constructors, over jobs of several ranks.

use super::*;
use crate::attr::{AttrCallbacks, AttrKind};
use crate::group::RankRange;
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::process::{Process, ProcessConfig, ThreadLevel};
use crate::request::wait;
use crate::session::Session;
use crate::testing::{TestBytes, hosts, job};
use garonne_engine::api::CallOrigin;

/// Every rank sends its number to the next in the ring of the (local or remote) group and checks
/// the previous one's.
fn ring(comm: &Comm) {
    let (rank, peers) = (comm.rank(), comm.peers());
    let (to, from) = if comm.is_inter() {
        (rank % peers, rank % peers)
    } else {
        ((rank + 1) % peers, (rank + peers - 1) % peers)
    };
    if comm.is_inter() && comm.size() != peers {
        return;
    }
    let (out, into) = (TestBytes::of(&[rank as u8]), TestBytes::new(1));
    let send = SendArgs {
        data: out.data(),
        dest: to as i32,
        tag: 1,
        mode: SendMode::Standard,
        origin: CallOrigin::default(),
    };
    let recv = RecvArgs {
        data: into.data(),
        source: from as i32,
        tag: 1,
        origin: CallOrigin::default(),
    };
    comm.sendrecv(send, recv).unwrap();
    assert_eq!(into.get(), [from as u8]);
}

#[test]
fn a_duplicate_is_congruent_and_its_messages_are_its_own() {
    for size in 1..6 {
        job(size, |world| {
            let dup = world.dup(None, CallOrigin::default()).unwrap();
            assert_eq!(world.compare(&dup), Comparison::Congruent);
            assert_eq!(world.compare(&world.clone()), Comparison::Ident);
            assert_ne!(dup.context(), world.context());
            ring(&dup);
            ring(&world);
        });
    }
}

#[test]
fn several_idups_in_flight_complete_in_any_order_with_equal_contexts() {
    job(4, |world| {
        let made: Vec<_> = (0..5)
            .map(|_| world.idup(None, CallOrigin::default()).unwrap())
            .collect();
        for (comm, request) in made.iter().rev() {
            // What is local works before completion.
            comm.set_errhandler(Errhandler::Return).unwrap();
            assert_eq!(comm.rank(), world.rank());
            wait(request).unwrap();
            let word = u64::from(comm.context());
            let channel = comm.constructor_channel(CallOrigin::default());
            assert_eq!(
                comm.run(async move { channel.min_max(word).await })
                    .unwrap(),
                (word, word)
            );
            ring(comm);
        }
    });
}

#[test]
fn a_split_orders_ranks_by_key_and_leaves_out_who_has_no_colour() {
    job(7, |world| {
        let rank = world.rank() as i32;
        let color = if rank == 3 {
            crate::UNDEFINED
        } else {
            rank % 2
        };
        let part = world.split(color, -rank, CallOrigin::default()).unwrap();
        assert_eq!(part.is_none(), rank == 3);
        if let Some(part) = part {
            let expected: Vec<u32> = (0..7)
                .rev()
                .filter(|r| *r != 3 && *r as i32 % 2 == color)
                .collect();
            assert_eq!(part.group().members().collect::<Vec<_>>(), expected);
            ring(&part);
        }
        assert_eq!(
            world
                .split(-1, 0, CallOrigin::default())
                .err()
                .unwrap()
                .class,
            Class::Arg
        );
    });
}

#[test]
fn disjoint_groups_create_their_communicators_in_one_call() {
    job(6, |world| {
        let ranges = |first| {
            [RankRange {
                first,
                last: 5,
                stride: 2,
            }]
        };
        let half = world
            .group()
            .range_incl(&ranges(world.rank() as i32 % 2))
            .unwrap();
        let comm = world.create(&half, CallOrigin::default()).unwrap().unwrap();
        assert_eq!(comm.size(), 3);
        ring(&comm);
        let first = world.group().incl(&[0]).unwrap();
        assert_eq!(
            world
                .create(&first, CallOrigin::default())
                .unwrap()
                .is_some(),
            world.rank() == 0
        );
    });
}

#[test]
fn members_of_a_group_create_a_communicator_without_the_others() {
    job(5, |world| {
        let group = world.group().incl(&[4, 1, 2]).unwrap();
        if let Some(comm) = world
            .create_group(&group, 9, CallOrigin::default())
            .unwrap()
        {
            assert_eq!(comm.group().members().collect::<Vec<_>>(), [4, 1, 2]);
            ring(&comm);
        } else {
            assert!([0, 3].contains(&world.rank()));
        }
        assert_eq!(
            world
                .create_group(&Group::single(77), 0, CallOrigin::default())
                .err()
                .unwrap()
                .class,
            Class::Group
        );
    });
}

#[test]
fn threads_that_duplicate_different_parents_at_once_agree_on_distinct_contexts() {
    job(3, |world| {
        let parents: Vec<Comm> = (0..4)
            .map(|_| world.dup(None, CallOrigin::default()).unwrap())
            .collect();
        let barrier = std::sync::Barrier::new(4);
        let made: Vec<Comm> = std::thread::scope(|scope| {
            let threads: Vec<_> = parents
                .iter()
                .map(|parent| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        (0..10)
                            .map(|_| parent.dup(None, CallOrigin::default()).unwrap())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        let mut contexts: Vec<_> = made.iter().map(Comm::context).collect();
        contexts.sort();
        contexts.dedup();
        assert_eq!(contexts.len(), 40);
        for comm in &made {
            ring(comm);
        }
    });
}

#[test]
fn an_intercommunicator_faces_two_groups_and_merges_in_the_order_asked_for() {
    job(5, |world| {
        let low = world.rank() < 2;
        let half = world
            .split(low as i32, 0, CallOrigin::default())
            .unwrap()
            .unwrap();
        let peer = PeerLeader {
            comm: &world,
            rank: if low { 2 } else { 0 },
        };
        let inter = half
            .intercomm_create(0, Some(peer), 5, CallOrigin::default())
            .unwrap();
        assert!(inter.is_inter());
        assert_eq!(
            (inter.size(), inter.peers()),
            if low { (2, 3) } else { (3, 2) }
        );
        assert_eq!(inter.0.local_comm.get().unwrap().size(), inter.size());
        let dup = inter.dup(None, CallOrigin::default()).unwrap();
        assert_eq!(dup.compare(&inter), Comparison::Congruent);
        if inter.rank() < 2 {
            let (out, into) = (TestBytes::of(&[inter.rank() as u8]), TestBytes::new(1));
            let dest = 1 - inter.rank() as i32;
            let send = SendArgs {
                data: out.data(),
                dest,
                tag: 1,
                mode: SendMode::Standard,
                origin: CallOrigin::default(),
            };
            let recv = RecvArgs {
                data: into.data(),
                source: dest,
                tag: 1,
                origin: CallOrigin::default(),
            };
            dup.sendrecv(send, recv).unwrap();
            assert_eq!(into.get(), [dest as u8]);
        }
        let merged = inter
            .merge(
                if low {
                    MergeOrder::High
                } else {
                    MergeOrder::Low
                },
                CallOrigin::default(),
            )
            .unwrap();
        assert_eq!(
            merged.group().members().collect::<Vec<_>>(),
            [2, 3, 4, 0, 1]
        );
        ring(&merged);
        let plain = inter.merge(MergeOrder::Low, CallOrigin::default()).unwrap();
        assert_eq!(plain.group().members().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        // Colour 1 exists on one side only.
        let part = inter
            .split(
                if inter.rank() == 0 { 0 } else { low as i32 + 1 },
                0,
                CallOrigin::default(),
            )
            .unwrap();
        assert_eq!(part.is_some(), inter.rank() == 0);
        inter.disconnect(CallOrigin::default()).unwrap();
    });
}

#[test]
fn a_group_cannot_face_itself() {
    job(1, |world| {
        let found = world.intercomm_create(
            0,
            Some(PeerLeader {
                comm: &world,
                rank: 0,
            }),
            0,
            CallOrigin::default(),
        );
        assert_eq!(found.err().unwrap().class, Class::Comm);
    });
}

#[test]
fn sessions_make_communicators_without_world() {
    let hosts = hosts(4);
    std::thread::scope(|scope| {
        for host in hosts {
            scope.spawn(move || {
                let process = Process::new(crate::process::ProcessConfig::plain(host));
                let session = Session::init(&process, None, Errhandler::Return).unwrap();
                assert_eq!(process.users(), 1);
                let from = |stringtag| FromGroup {
                    process: &process,
                    session: Some(session.clone()),
                    stringtag,
                    info: None,
                    errhandler: Errhandler::Return,
                    origin: CallOrigin::default(),
                };
                let all = session.group("MPI://world").unwrap();
                let comm = Comm::create_from_group(from("app"), &all).unwrap().unwrap();
                ring(&comm);
                let me = comm.rank() as i32;
                let (even, odd) = (all.incl(&[0, 2]).unwrap(), all.incl(&[1, 3]).unwrap());
                let sides = if me % 2 == 0 {
                    (&even, &odd)
                } else {
                    (&odd, &even)
                };
                let sides = IntercommGroups {
                    local: sides.0,
                    local_leader: 1,
                    remote: sides.1,
                    remote_leader: 1,
                };
                let inter = Comm::intercomm_from_groups(from("pair"), sides)
                    .unwrap()
                    .unwrap();
                ring(&inter);
                assert_eq!(session.group("nothing").err().unwrap().class, Class::Arg);
                comm.disconnect(CallOrigin::default()).unwrap();
                session.finalize().unwrap();
                assert_eq!(session.finalize().err().unwrap().class, Class::Session);
                assert_eq!(process.users(), 0);
            });
        }
    });
}

#[test]
fn freed_communicators_give_their_contexts_back_after_their_last_operation() {
    job(2, |world| {
        let dup = world.dup(None, CallOrigin::default()).unwrap();
        let context = dup.context();
        let into = TestBytes::new(1);
        let recv = RecvArgs {
            data: into.data(),
            source: 1 - world.rank() as i32,
            tag: 0,
            origin: CallOrigin::default(),
        };
        let pending = dup.irecv(recv).unwrap();
        dup.free().unwrap();
        let out = TestBytes::of(&[1]);
        let sender = dup.clone();
        drop(dup);
        let block = context / crate::limits::CONTEXTS_PER_COMM;
        assert!(world.process().contexts.reserve_exactly(block).is_none());
        world.meet().unwrap();
        let dest = 1 - world.rank() as i32;
        sender
            .send(SendArgs {
                data: out.data(),
                dest,
                tag: 0,
                mode: SendMode::Standard,
                origin: CallOrigin::default(),
            })
            .unwrap();
        drop(sender);
        wait(&pending).unwrap();
        drop(pending);
        assert!(world.process().contexts.reserve_exactly(block).is_some());
    });
}

#[test]
fn engines_keep_nothing_of_communicators_that_are_freed() {
    let setup = garonne_sim::ThreadWorld {
        world: 3,
        quotas: garonne_engine::CreditQuotas::for_world(3),
    };
    garonne_sim::threads_with(setup, |host| {
        let process = Process::new(ProcessConfig::plain(host.clone()));
        process.init(ThreadLevel::Multiple).unwrap();
        let world = process.world().unwrap();
        let mut kept = Vec::new();
        for _ in 0..30 {
            let dup = world.dup(None, CallOrigin::default()).unwrap();
            dup.collective(&crate::coll::Barrier, CallOrigin::default())
                .unwrap();
            ring(&dup);
            let part = dup
                .split(i32::from(dup.rank() == 0), 0, CallOrigin::default())
                .unwrap()
                .unwrap();
            part.collective(&crate::coll::Barrier, CallOrigin::default())
                .unwrap();
            for comm in [part, dup] {
                comm.free().unwrap();
            }
            kept.push(host.inspect(|shard| shard.streams()));
        }
        // Those of the world, on which dup and split agree.
        assert_eq!(kept[29], kept[2], "{kept:?}");
        process.finalize().unwrap();
    });
}

struct Double;

impl AttrCallbacks for Double {
    fn copy(&self, owner: usize, _: i32, value: usize) -> Result<Option<usize>, i32> {
        assert_eq!(owner, 42);
        if value == 99 {
            Err(7)
        } else {
            Ok(Some(value * 2))
        }
    }

    fn delete(&self, _: usize, _: i32, _: usize) -> Result<(), i32> {
        Ok(())
    }
}

#[test]
fn duplicates_take_attributes_and_error_handler_but_not_the_name_nor_the_hints() {
    job(1, |world| {
        let parent = world.dup(None, CallOrigin::default()).unwrap();
        parent.set_handle(42);
        let key = world
            .process()
            .keyvals
            .create(AttrKind::Comm, Arc::new(Double))
            .unwrap();
        parent.set_attr(key, 21).unwrap();
        parent.set_name("halo_x");
        parent.set_errhandler(Errhandler::Return).unwrap();
        let info = Info::from_pairs([("mpi_assert_no_any_tag", "true"), ("colour", "blue")]);
        parent.set_info(&info);
        let dup = parent.dup(None, CallOrigin::default()).unwrap();
        assert_eq!(dup.get_attr(key).unwrap(), Some(42));
        assert!(matches!(dup.errhandler(), Errhandler::Return));
        assert_eq!(dup.name(), "");
        assert_eq!(dup.info().lookup("mpi_assert_no_any_tag"), None);
        assert_eq!(parent.info().nth_key(0).unwrap(), "mpi_assert_no_any_tag");
        assert_eq!(parent.info().lookup("colour"), None);
        assert_eq!(
            parent.info().lookup("mpi_memory_alloc_kinds").as_deref(),
            Some("system,mpi")
        );
        assert_eq!(
            parent
                .dup(Some(&info), CallOrigin::default())
                .unwrap()
                .info()
                .lookup("mpi_assert_no_any_tag")
                .as_deref(),
            Some("true")
        );
        parent.set_attr(key, 99).unwrap();
        assert_eq!(
            parent.dup(None, CallOrigin::default()).err().unwrap().code,
            Some(7)
        );
        assert!(
            parent
                .split_type(Some(SplitType::HwUnguided), 0, None, CallOrigin::default())
                .unwrap()
                .is_none()
        );
        assert!(
            parent
                .split_type(Some(SplitType::Shared), 0, None, CallOrigin::default())
                .unwrap()
                .is_some()
        );
        assert!(
            parent
                .split_type(None, 0, None, CallOrigin::default())
                .unwrap()
                .is_none()
        );
    });
}

#[test]
fn an_error_handler_made_for_windows_does_not_fit_a_communicator() {
    job(1, |world| {
        struct Ignore;
        impl crate::errhandler::ErrhandlerCallback for Ignore {
            fn call(&self, _: usize, _: i32) {}
        }
        let window = Errhandler::user(crate::errhandler::ErrhandlerKind::Window, Box::new(Ignore));
        assert_eq!(
            world.set_errhandler(window).err().unwrap().class,
            Class::Arg
        );
        assert!(matches!(world.errhandler(), Errhandler::Fatal));
    });
}
