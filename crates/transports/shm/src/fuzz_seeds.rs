//! Inputs that fuzzing kept, read once more: good ones, and all that ever found a fault.

use garonne_transport::fuzz_seeds::replay;

#[test]
fn kept_inputs_are_read_without_harm() {
    replay("cost_model", crate::cost_model::read_anything);
    replay("region_descriptors", crate::read_anything);
}
