//! Conversions between the arguments of Fortran routines and those of C functions.
//!
//! A library of Fortran routines, such as `libmpifort_abi.so.1`, has generated functions that use
//! these conversions: one for each routine. What depends on the library's ABI is a [`Family`].
//! Routines that no rule describes are written by hand ([`special`], [`removed`], [`predefined`]).
//!
//! A logical that is read is true if its lowest bit is set, and is written as 0 or 1: both are
//! right for every compiler.
//!
//! Errors: every routine reports C's error code in `ierror`, if it is there.

#![allow(
    unsafe_code,
    clippy::not_unsafe_ptr_arg_deref,
    reason = "arguments of Fortran are addresses: the caller vouches for them"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "routines take the arguments of the standard"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are called by Fortran, as the standard says"
)]

pub mod attributes;
pub mod calls;
pub mod family;
pub mod handles;
pub mod peers;
pub mod predefined;
pub mod removed;
pub mod sentinels;
pub mod special;
pub mod strings;

pub use family::{Family, HandleKind, Numbers, PredefinedFunction, is_in_place};

/// The whole body of a naked exported function: passes the caller's return address on in the first
/// floating-point register, as the C library's entry points do, and jumps.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! entry_point {
    ($function:path) => {
        std::arch::naked_asm!(
            "movsd xmm0, qword ptr [rsp]",
            "jmp {function}",
            function = sym $function,
        )
    };
}

/// The whole body of a naked exported function.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! entry_point {
    ($function:path) => {
        std::arch::naked_asm!(
            "fmov d0, x30",
            "b {function}",
            function = sym $function,
        )
    };
}

/// The whole body of an exported routine of this name, which is an indirect function: the loader
/// calls it when it binds a call of some object, and takes the address that it returns. That tells
/// the library's [`sentinels::Sentinels`] that an object may have come which has common blocks of
/// its own. The returned code passes the caller's return address on in the first floating-point
/// register, as the C library's entry points do, and jumps.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! bound_entry_point {
    ($symbol:literal, $function:path, $sentinels:path) => {
        std::arch::naked_asm!(
            concat!(".type ", $symbol, ", @gnu_indirect_function"),
            "mov qword ptr [rip + {current}], 1",
            "lea rax, [rip + 2f]",
            "ret",
            "2:",
            "movsd xmm0, qword ptr [rsp]",
            "jmp {function}",
            current = sym $sentinels,
            function = sym $function,
        )
    };
}

/// The whole body of an exported routine of this name.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! bound_entry_point {
    ($symbol:literal, $function:path, $sentinels:path) => {
        std::arch::naked_asm!(
            concat!(".type ", $symbol, ", %gnu_indirect_function"),
            "mov x1, #1",
            "adrp x2, {current}",
            "str x1, [x2, :lo12:{current}]",
            "adr x0, 2f",
            "ret",
            "2:",
            "fmov d0, x30",
            "b {function}",
            current = sym $sentinels,
            function = sym $function,
        )
    };
}

/// Returns the address that the loader gave a symbol: that of the program's copy, if there is one.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! address {
    ($symbol:path) => {{
        let address: usize;
        // SAFETY: reads the loader's table.
        unsafe {
            std::arch::asm!(
                "mov {address}, qword ptr [rip + {symbol}@GOTPCREL]",
                address = out(reg) address,
                symbol = sym $symbol,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// Returns the address that the loader gave a symbol: that of the program's copy, if there is one.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! address {
    ($symbol:path) => {{
        let address: usize;
        // SAFETY: reads the loader's table.
        unsafe {
            std::arch::asm!(
                "adrp {address}, :got:{symbol}",
                "ldr {address}, [{address}, :got_lo12:{symbol}]",
                address = out(reg) address,
                symbol = sym $symbol,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}
