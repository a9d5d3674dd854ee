//! What ranks that meet by variables send each other: a table of what each has put, or why there is
//! none (docs/reference/job.md, E6). Bounded by
//! [`EXCHANGE_TABLE_MAX`](garonne_job::limits::EXCHANGE_TABLE_MAX), which whoever reads a message
//! heeds.

use std::collections::HashMap;

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{EXCHANGE_VALUE_MAX, KEY_BYTES_MAX, RANKS_MAX};
use garonne_job::rank_messages::{MessageReader, MessageWriter, malformed};

/// Values that ranks have put, by key.
pub(super) type ExchangeTable = HashMap<String, String>;

/// A table, or a part of it.
pub(super) fn encode<'a>(
    entries: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
) -> Vec<u8> {
    let writer = MessageWriter::new(371).raw((entries.len() as u32).to_le_bytes());
    let put = |writer: MessageWriter, (key, value): (&String, &String)| {
        writer.bytes(key.as_bytes()).bytes(value.as_bytes())
    };
    entries.fold(writer, put).0
}

/// Why a rank cannot take part, from rank 0.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    MessageWriter::new(372).bytes(why.as_bytes()).0
}

/// The entries of a table.
///
/// # Errors
/// It is none, or rank 0 says why there is none.
pub(super) fn decode(message: &[u8]) -> Result<Vec<(String, String)>> {
    let (kind, mut r) = MessageReader::new(message)?;
    if kind == 372 {
        let why = r.text()?;
        return r.end(()).and(Err(Error::peer(codes::G0219, why)));
    }
    let count = r.u32()? as usize;
    if kind != 371 || count > r.left() / 8 || count > 4 * RANKS_MAX as usize {
        return Err(malformed("it is no table"));
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, value) = (r.text()?, r.text()?);
        if key.len() > KEY_BYTES_MAX || value.len() > EXCHANGE_VALUE_MAX {
            return Err(malformed("an entry of a table is too long"));
        }
        entries.push((key, value));
    }
    r.end(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prefix_of_a_table_is_one() {
        let entries = ExchangeTable::from([("a".into(), "b".into()), ("c".into(), String::new())]);
        let bytes = encode(entries.iter());
        assert_eq!(
            decode(&bytes)
                .unwrap()
                .into_iter()
                .collect::<ExchangeTable>(),
            entries
        );
        (0..bytes.len()).for_each(|cut| assert!(decode(&bytes[..cut]).is_err()));
    }
}
