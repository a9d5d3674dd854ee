//! The part of libfabric's binary interface that is used, as of its symbol version `FABRIC_1.3`,
//! which later releases keep.
//!
//! Structures that the library makes may be longer than they are here, never different at the
//! front; nothing but hints' fields is written to them. Functions of tables that are not called are
//! mere words. A test compares all of it with the library's headers where these are installed.

use std::ffi::{c_char, c_int, c_void};

/// A function of a table that is not called here.
pub type Unused = *const c_void;
/// `fi_addr_t`.
pub type Addr = u64;
/// No address in particular.
pub const ADDR_UNSPEC: Addr = u64::MAX;

/// `FI_VERSION(1, 9)`: the interface that is asked for.
pub const VERSION: u32 = 1 << 16 | 9;

/// `FI_MSG`.
pub const MSG: u64 = 1 << 1;
/// `FI_RMA`.
pub const RMA: u64 = 1 << 2;
/// `FI_READ`.
pub const READ: u64 = 1 << 8;
/// `FI_WRITE`.
pub const WRITE: u64 = 1 << 9;
/// `FI_RECV`.
pub const RECV: u64 = 1 << 10;
/// `FI_SEND`, also `FI_TRANSMIT`.
pub const SEND: u64 = 1 << 11;
/// `FI_REMOTE_READ`.
pub const REMOTE_READ: u64 = 1 << 12;
/// `FI_REMOTE_WRITE`.
pub const REMOTE_WRITE: u64 = 1 << 13;
/// `FI_CONTEXT`.
pub const CONTEXT: u64 = 1 << 59;
/// `FI_CONTEXT2`.
pub const CONTEXT2: u64 = 1 << 52;
/// `FI_SOURCE`.
pub const SOURCE: u64 = 1 << 57;
/// `FI_EP_RDM`.
pub const EP_RDM: c_int = 3;
/// `FI_RM_ENABLED`.
pub const RM_ENABLED: c_int = 2;
/// `FI_CQ_FORMAT_MSG`.
pub const CQ_FORMAT_MSG: c_int = 2;
/// `FI_WAIT_NONE`.
pub const WAIT_NONE: c_int = 0;
/// `FI_WAIT_FD`.
pub const WAIT_FD: c_int = 3;
/// `FI_GETWAIT`.
pub const GETWAIT: c_int = 5;
/// `FI_ENABLE`.
pub const ENABLE: c_int = 6;
/// `FI_MR_LOCAL`.
pub const MR_LOCAL: c_int = 1 << 2;
/// `FI_MR_VIRT_ADDR`.
pub const MR_VIRT_ADDR: c_int = 1 << 4;
/// `FI_MR_ALLOCATED`.
pub const MR_ALLOCATED: c_int = 1 << 5;
/// `FI_MR_PROV_KEY`.
pub const MR_PROV_KEY: c_int = 1 << 6;
/// `FI_MR_ENDPOINT`.
pub const MR_ENDPOINT: c_int = 1 << 9;
/// `-FI_EAGAIN`.
pub const EAGAIN: isize = -(libc::EAGAIN as isize);
/// `-FI_EAVAIL`: an operation failed, and `readerr` says which.
pub const EAVAIL: isize = -259;

/// `struct fi_info`.
#[repr(C)]
pub struct Info {
    /// The next of a list.
    pub next: *mut Info,
    /// Capabilities of the endpoint.
    pub caps: u64,
    /// Modes that the endpoint demands.
    pub mode: u64,
    /// Kind of its addresses.
    pub addr_format: u32,
    /// Bytes of `src_addr`.
    pub src_addrlen: usize,
    /// Bytes of `dest_addr`.
    pub dest_addrlen: usize,
    /// Own address.
    pub src_addr: *mut c_void,
    /// Peer's address.
    pub dest_addr: *mut c_void,
    /// Unused.
    pub handle: *mut Fid,
    /// Sending.
    pub tx_attr: *mut TxAttr,
    /// Receiving.
    pub rx_attr: *mut RxAttr,
    /// The endpoint.
    pub ep_attr: *mut EpAttr,
    /// The domain.
    pub domain_attr: *mut DomainAttr,
    /// The fabric.
    pub fabric_attr: *mut FabricAttr,
    /// The device.
    pub nic: *mut c_void,
}

/// `struct fi_tx_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// `struct fi_rx_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// `struct fi_domain_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct DomainAttr {
    pub domain: *mut Domain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct FabricAttr {
    pub fabric: *mut Fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// `struct fid`: what every object of the library begins with.
#[repr(C)]
#[allow(missing_docs)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const Ops,
}

/// `struct fi_ops`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

/// `struct fid_fabric`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Fabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
    pub api_version: u32,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
#[allow(missing_docs)]
pub struct FabricOps {
    pub size: usize,
    pub domain:
        unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
    pub passive_ep: Unused,
    pub eq_open: Unused,
    pub wait_open: Unused,
    pub trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Domain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

/// `struct fi_ops_domain`.
#[repr(C)]
#[allow(missing_docs)]
pub struct DomainOps {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

/// `struct fi_ops_mr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct MrOps {
    pub size: usize,
    #[allow(clippy::type_complexity)]
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut Mr,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Mr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fi_av_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Av {
    pub fid: Fid,
    pub ops: *const AvOps,
}

/// `struct fi_ops_av`.
#[repr(C)]
#[allow(missing_docs)]
pub struct AvOps {
    pub size: usize,
    pub insert:
        unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut Addr, u64, *mut c_void) -> c_int,
    pub insertsvc: Unused,
    pub insertsym: Unused,
    pub remove: unsafe extern "C" fn(*mut Av, *mut Addr, usize, u64) -> c_int,
}

/// `struct fi_cq_attr`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fid_cq`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Cq {
    pub fid: Fid,
    pub ops: *const CqOps,
}

/// `struct fi_ops_cq`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> isize,
    pub readfrom: Unused,
    pub readerr: unsafe extern "C" fn(*mut Cq, *mut CqError, u64) -> isize,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct CqEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CqError {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fid_ep`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Ep {
    pub fid: Fid,
    pub ops: Unused,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
}

/// `struct fi_ops_cm`.
#[repr(C)]
#[allow(missing_docs)]
pub struct CmOps {
    pub size: usize,
    pub setname: Unused,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

/// `struct fi_ops_msg`.
#[repr(C)]
#[allow(missing_docs)]
pub struct MsgOps {
    pub size: usize,
    pub recv:
        unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, Addr, *mut c_void) -> isize,
    pub recvv: Unused,
    pub recvmsg: Unused,
    pub send: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        Addr,
        *mut c_void,
    ) -> isize,
}

/// `struct fi_ops_rma`.
#[repr(C)]
#[allow(missing_docs)]
pub struct RmaOps {
    pub size: usize,
    #[allow(clippy::type_complexity)]
    pub read: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        Addr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
}
