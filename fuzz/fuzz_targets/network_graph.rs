//! Frames of LLDP, and files that describe a network: Slurm's, InfiniBand's, matrices, kept graphs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_network_graph::read_anything(bytes);
});
