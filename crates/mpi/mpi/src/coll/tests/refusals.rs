//! What collectives refuse, and what they say then.

use super::random_calls::with_world;
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::op::{Op, PredefinedOp};
use garonne_coll::testing::elements::{TestBuffer, TestElements};

fn elements<'a>(buffer: &TestBuffer, count: u64, datatype: &'a Datatype) -> Elements<'a> {
    Elements {
        mem: buffer.mem(),
        count,
        datatype,
    }
}

#[test]
fn a_wrong_root_or_operation_is_refused_by_name() {
    with_world(2, 1, |rank| {
        let datatype = rank.datatype(TestElements::Dense);
        let buffer = TestBuffer::new(TestElements::Dense, 1);
        let call = Bcast {
            buffer: elements(&buffer, 1, &datatype),
            root: 2,
        };
        let error = rank
            .comm
            .collective(&call, CallOrigin::default())
            .unwrap_err();
        assert_eq!(error.class, Class::Root);
        assert!(
            error.detail.contains("MPI_Bcast: root 2"),
            "{}",
            error.detail
        );
        let double = Datatype::predefined(codes::DOUBLE).unwrap();
        let op = Op::predefined(PredefinedOp::Band as u16).unwrap();
        let call = Allreduce {
            send: None,
            recv: buffer.mem(),
            count: 1,
            datatype: &double,
            op: &op,
        };
        assert_eq!(
            rank.comm
                .collective(&call, CallOrigin::default())
                .unwrap_err()
                .class,
            Class::Op
        );
    });
}

#[test]
fn a_broadcast_longer_than_a_receivers_buffer_is_an_error_that_names_the_call() {
    with_world(2, 1, |rank| {
        let datatype = rank.datatype(TestElements::Dense);
        let count = if rank.me() == 0 { 5 } else { 2 };
        let buffer = TestBuffer::new(TestElements::Dense, 5);
        let call = Bcast {
            buffer: elements(&buffer, count, &datatype),
            root: 0,
        };
        let outcome = rank.comm.collective(&call, CallOrigin::default());
        if rank.me() == 1 {
            let error = outcome.unwrap_err();
            assert_eq!(error.class, Class::Truncate);
            for part in ["error[G0107]: MPI_Bcast #1:", "help: the counts"] {
                assert!(error.detail.contains(part), "{}", error.detail);
            }
        }
    });
}
