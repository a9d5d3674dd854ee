use super::*;

#[test]
fn a_plain_handle_gives_its_slot_back_and_is_no_handle_of_a_table() {
    let table = HandleTable::new(0);
    let entry: MPI_Request = table.insert(1).unwrap();
    assert!(!is_light(entry) && !is_light(MPI_REQUEST_NULL) && is_light(DONE));
    for (index, generation) in [(0, 0), (5, 63), (SLOT_MASK as u32, 64 + 17)] {
        for shard in [0, 3, 15] {
            let made = handle(shard, api::Request { index, generation }).unwrap();
            assert_eq!(
                (engine_name(made).unwrap().index, shard_of(made)),
                (index, shard)
            );
            assert!(i32::try_from(made.0).is_ok() && table.get(made).is_none());
        }
        let made = handle(0, api::Request { index, generation }).unwrap();
        let short = api::Request {
            index,
            generation: generation % 64,
        };
        assert_eq!(engine_name(made), Some(short));
        assert_eq!(table.get(made), None);
        assert!(i32::try_from(made.0).is_ok());
    }
    let far = api::Request {
        index: SLOT_MASK as u32 + 1,
        generation: 0,
    };
    assert_eq!(handle(0, far), None);
    assert_eq!(table.get(DONE), None);
}
