//! Inputs that fuzzing kept, read once more: good ones, and all that ever found a fault.

fn replay(target: &str, read: fn(&[u8])) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fuzz/seeds")
        .join(target);
    let inputs = std::fs::read_dir(&dir).unwrap();
    let count = inputs
        .map(|input| read(&std::fs::read(input.unwrap().path()).unwrap()))
        .count();
    assert!(count > 0, "{}", dir.display());
}

#[test]
fn kept_inputs_are_read_without_harm() {
    replay("tcp_bulk", crate::hostile::bulk);
    replay("tcp_frames", crate::frame::read_anything);
    replay("tcp_hello", crate::hostile::hello);
    replay("tcp_link", crate::hostile::link);
    replay("tcp_meeting", crate::hostile::meeting);
    replay("tcp_relay", crate::hostile::relay);
}
