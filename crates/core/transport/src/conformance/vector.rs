//! Data of a simple shape.

use garonne_sync::user::{Data, Layout, Packed, Scratch, UserMem};
use std::sync::Arc;

/// Blocks of `block` bytes, `stride` apart.
#[derive(Debug)]
struct Vector {
    len: u64,
    block: u64,
    stride: u64,
}

impl Layout for Vector {
    fn packed_len(&self) -> u64 {
        self.len
    }
    fn pack(&self, mem: UserMem, from: u64, dst: Packed) {
        for i in 0..dst.len() {
            let at = from + i as u64;
            let there = (at / self.block * self.stride + at % self.block) as isize;
            dst.mem().copy_from(i as isize, mem, there, 1);
        }
    }
    fn unpack(&self, mem: UserMem, from: u64, src: Packed) {
        for i in 0..src.len() {
            let at = from + i as u64;
            let there = (at / self.block * self.stride + at % self.block) as isize;
            mem.copy_from(there, src.mem(), i as isize, 1);
        }
    }
    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64 {
        let mut done = 0;
        while done < len && out.len() < max_blocks {
            let (index, within) = ((from + done) / self.block, (from + done) % self.block);
            let take = (self.block - within).min(len - done);
            out.push(((index * self.stride + within) as isize, take as usize));
            done += take;
        }
        done
    }
}

/// Memory for `len` bytes in blocks of `block`, `stride` apart, of which the last has what is left;
/// and the data there.
pub fn vector_of(len: u64, block: u64, stride: u64) -> (Scratch, Data) {
    let memory = Scratch::new((len.div_ceil(block) * stride).max(1) as usize).unwrap();
    let data = Data::shaped(memory.mem(), Arc::new(Vector { len, block, stride }));
    (memory, data)
}
