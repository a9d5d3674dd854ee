//! Inputs that fuzzing kept, read once more: good ones, and all that ever found a fault.

use garonne_transport::fuzz_seeds::replay;

#[test]
fn kept_inputs_are_read_without_harm() {
    replay("tcp_bulk", crate::hostile::bulk);
    replay("tcp_frames", crate::frame::read_anything);
    replay("tcp_hello", crate::hostile::hello);
    replay("tcp_link", crate::hostile::link);
    replay("tcp_meeting", crate::hostile::meeting);
    replay("tcp_relay", crate::hostile::relay);
}
