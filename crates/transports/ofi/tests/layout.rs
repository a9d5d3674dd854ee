//! The structures and constants written down here are those of the library's headers, where these
//! are installed.

use garonne_ofi::abi;
use std::mem::offset_of;
use std::process::Command;

/// A structure's field in C, and where it is here.
macro_rules! fields {
    ($($name:literal $kind:ty { $($c:literal $field:ident),* })*) => {
        vec![$($((format!("offsetof(struct {}, {})", $name, $c), offset_of!($kind, $field) as u64)),*),*]
    };
}

/// A constant in C, and here.
macro_rules! constants {
    ($($c:ident $value:expr),*) => { vec![$((format!("(uint64_t)({})", stringify!($c)), $value as i64 as u64)),*] };
}

fn expected() -> Vec<(String, u64)> {
    let mut all = fields! {
        "fi_info" abi::Info { "caps" caps, "mode" mode, "addr_format" addr_format, "src_addrlen" src_addrlen, "src_addr" src_addr,
            "handle" handle, "tx_attr" tx_attr, "rx_attr" rx_attr, "ep_attr" ep_attr, "domain_attr" domain_attr, "fabric_attr" fabric_attr, "nic" nic }
        "fi_tx_attr" abi::TxAttr { "inject_size" inject_size, "rma_iov_limit" rma_iov_limit, "tclass" tclass }
        "fi_rx_attr" abi::RxAttr { "total_buffered_recv" total_buffered_recv, "iov_limit" iov_limit }
        "fi_ep_attr" abi::EpAttr { "type" kind, "max_msg_size" max_msg_size, "mem_tag_format" mem_tag_format, "auth_key" auth_key }
        "fi_domain_attr" abi::DomainAttr { "name" name, "threading" threading, "resource_mgmt" resource_mgmt, "mr_mode" mr_mode, "mr_key_size" mr_key_size }
        "fi_fabric_attr" abi::FabricAttr { "name" name, "prov_name" prov_name, "api_version" api_version }
        "fid" abi::Fid { "fclass" fclass, "context" context, "ops" ops }
        "fi_ops" abi::Ops { "close" close, "bind" bind, "control" control }
        "fid_fabric" abi::Fabric { "ops" ops, "api_version" api_version }
        "fi_ops_fabric" abi::FabricOps { "domain" domain, "trywait" trywait }
        "fid_domain" abi::Domain { "ops" ops, "mr" mr }
        "fi_ops_domain" abi::DomainOps { "av_open" av_open, "cq_open" cq_open, "endpoint" endpoint }
        "fi_ops_mr" abi::MrOps { "reg" reg }
        "fid_mr" abi::Mr { "mem_desc" mem_desc, "key" key }
        "fi_av_attr" abi::AvAttr { "type" kind, "rx_ctx_bits" rx_ctx_bits, "count" count, "ep_per_node" ep_per_node, "name" name, "map_addr" map_addr, "flags" flags }
        "fid_av" abi::Av { "ops" ops }
        "fi_ops_av" abi::AvOps { "insert" insert, "remove" remove }
        "fi_cq_attr" abi::CqAttr { "size" size, "flags" flags, "format" format, "wait_obj" wait_obj, "wait_cond" wait_cond, "wait_set" wait_set }
        "fid_cq" abi::Cq { "ops" ops }
        "fi_ops_cq" abi::CqOps { "read" read, "readerr" readerr }
        "fi_cq_msg_entry" abi::CqEntry { "op_context" op_context, "flags" flags, "len" len }
        "fi_cq_err_entry" abi::CqError { "olen" olen, "err" err, "prov_errno" prov_errno, "err_data" err_data, "err_data_size" err_data_size }
        "fid_ep" abi::Ep { "cm" cm, "msg" msg, "rma" rma }
        "fi_ops_cm" abi::CmOps { "getname" getname }
        "fi_ops_msg" abi::MsgOps { "recv" recv, "send" send }
        "fi_ops_rma" abi::RmaOps { "read" read }
    };
    all.extend(constants! {
        FI_MSG abi::MSG, FI_RMA abi::RMA, FI_READ abi::READ, FI_WRITE abi::WRITE, FI_RECV abi::RECV, FI_SEND abi::SEND,
        FI_REMOTE_READ abi::REMOTE_READ, FI_REMOTE_WRITE abi::REMOTE_WRITE, FI_CONTEXT abi::CONTEXT, FI_CONTEXT2 abi::CONTEXT2,
        FI_EP_RDM abi::EP_RDM, FI_RM_ENABLED abi::RM_ENABLED, FI_CQ_FORMAT_MSG abi::CQ_FORMAT_MSG, FI_WAIT_NONE abi::WAIT_NONE,
        FI_WAIT_FD abi::WAIT_FD, FI_GETWAIT abi::GETWAIT, FI_ENABLE abi::ENABLE, FI_MR_LOCAL abi::MR_LOCAL,
        FI_MR_VIRT_ADDR abi::MR_VIRT_ADDR, FI_MR_ALLOCATED abi::MR_ALLOCATED, FI_MR_PROV_KEY abi::MR_PROV_KEY,
        FI_MR_ENDPOINT abi::MR_ENDPOINT, FI_ADDR_UNSPEC abi::ADDR_UNSPEC, FI_SOURCE abi::SOURCE
    });
    let constant = |c: &str, value: i64| (format!("(uint64_t)({c})"), value as u64);
    all.push(constant("-FI_EAVAIL", abi::EAVAIL as i64));
    all.push(constant("-FI_EAGAIN", abi::EAGAIN as i64));
    all.push(constant("FI_VERSION(1, 9)", abi::VERSION.into()));
    all.push((
        String::from("sizeof(struct fi_cq_msg_entry)"),
        size_of::<abi::CqEntry>() as u64,
    ));
    all.push((
        String::from("sizeof(struct fi_cq_err_entry)"),
        size_of::<abi::CqError>() as u64,
    ));
    all.push((
        String::from("sizeof(struct fi_av_attr)"),
        size_of::<abi::AvAttr>() as u64,
    ));
    all.push((
        String::from("sizeof(struct fi_cq_attr)"),
        size_of::<abi::CqAttr>() as u64,
    ));
    // What this side lends is at least what the library may use.
    all.push((String::from("sizeof(struct fi_context2)"), 64));
    all
}

#[test]
fn structures_are_those_of_the_headers() {
    let there = |name: &str| {
        std::path::Path::new("/usr/include/rdma")
            .join(name)
            .exists()
    };
    if !there("fabric.h") || !there("fi_rma.h") {
        return eprintln!("skipped: the library's headers (libfabric-dev) are not installed");
    }
    let expected = expected();
    let words: Vec<_> = expected
        .iter()
        .map(|(c, _)| format!("  (uint64_t){c},"))
        .collect();
    let program = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
         #include <rdma/fi_cm.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_errno.h>\nstatic const uint64_t all[] = {{\n{}\n}};\n\
         int main(void) {{ for (unsigned i = 0; i < sizeof all / sizeof *all; i++) printf(\"%llu\\n\", (unsigned long long)all[i]); return 0; }}\n",
        words.join("\n")
    );
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (dir.join("ofi_layout.c"), dir.join("ofi_layout"));
    std::fs::write(&source, program).unwrap();
    match Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
    {
        Err(error) => return eprintln!("skipped: no C compiler: {error}"),
        Ok(status) => assert!(status.success()),
    }
    let printed = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let found: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    for ((c, here), there) in expected.iter().zip(found) {
        assert_eq!(*here, there, "{c}");
    }
}
