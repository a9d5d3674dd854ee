//! Every bound of the engine, each with the sentence that justifies it.

/// Bytes of a rail's own in a descriptor: libfabric keys can exceed 128 bits and come with an address each.
pub const DESCRIPTOR_BLOB_MAX: usize = 40;

/// Payload that every control packet may carry: an announcement with the largest descriptor fits, and two cache lines hold it with its header.
pub const CONTROL_PAYLOAD_MAX: usize = 88;
