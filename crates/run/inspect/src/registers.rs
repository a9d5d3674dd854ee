//! The registers that unwinding begins with.

use std::mem::offset_of;

use crate::process_memory::ProcessMemory;

/// Registers of one thread at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The address of the next instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer: `rbp`, or `x29`.
    pub fp: u64,
    /// The return address of the innermost function, where a register holds it (AArch64).
    pub lr: u64,
}

#[cfg(target_arch = "x86_64")]
impl From<libc::user_regs_struct> for Registers {
    fn from(raw: libc::user_regs_struct) -> Self {
        Self {
            pc: raw.rip,
            sp: raw.rsp,
            fp: raw.rbp,
            lr: 0,
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl From<libc::user_regs_struct> for Registers {
    fn from(raw: libc::user_regs_struct) -> Self {
        Self {
            pc: raw.pc,
            sp: raw.sp,
            fp: raw.regs[29],
            lr: raw.regs[30],
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl From<Registers> for framehop::x86_64::UnwindRegsX86_64 {
    fn from(registers: Registers) -> Self {
        Self::new(registers.pc, registers.sp, registers.fp)
    }
}

#[cfg(target_arch = "aarch64")]
impl From<Registers> for framehop::aarch64::UnwindRegsAarch64 {
    fn from(registers: Registers) -> Self {
        // User addresses have at most 48 bits: those above may hold a signature of the pointer.
        let mask = framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1);
        Self::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// Out of the context that a signal handler was given, which lies at `address` of a process's
    /// memory.
    pub(crate) fn of_context(memory: ProcessMemory, address: u64) -> Option<Self> {
        const GENERAL: usize =
            offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
        let word =
            |index: i32| memory.word(address.checked_add(GENERAL as u64 + 8 * index as u64)?);
        Some(Self {
            pc: word(libc::REG_RIP)?,
            sp: word(libc::REG_RSP)?,
            fp: word(libc::REG_RBP)?,
            lr: 0,
        })
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// Out of the context that a signal handler was given, which lies at `address` of a process's
    /// memory.
    pub(crate) fn of_context(memory: ProcessMemory, address: u64) -> Option<Self> {
        const MACHINE: usize = offset_of!(libc::ucontext_t, uc_mcontext);
        let word = |offset: usize| memory.word(address.checked_add((MACHINE + offset) as u64)?);
        let general = |index: usize| word(offset_of!(libc::mcontext_t, regs) + 8 * index);
        Some(Self {
            pc: word(offset_of!(libc::mcontext_t, pc))?,
            sp: word(offset_of!(libc::mcontext_t, sp))?,
            fp: general(29)?,
            lr: general(30)?,
        })
    }
}
