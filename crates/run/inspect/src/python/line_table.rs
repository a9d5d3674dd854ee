//! Line tables of code objects: from an instruction to its line. Pure.

/// CPython 3.9: pairs of a distance in bytes and a signed one in lines. `instruction` is counted in
/// bytes.
pub fn of_3_9(table: &[u8], first: i32, instruction: u32) -> Option<i32> {
    let (mut line, mut at) = (first, 0);
    for [bytes, lines] in table.as_chunks().0 {
        at += u32::from(*bytes);
        if at > instruction {
            break;
        }
        line += i32::from(*lines as i8);
    }
    Some(line)
}

/// CPython 3.10: pairs of the length of a range and the distance of its line from the one before;
/// -128: the range has no line. `instruction` counts units of two bytes.
pub fn of_3_10(table: &[u8], first: i32, instruction: u32) -> Option<i32> {
    let (mut line, mut end) = (first, 0);
    for [bytes, lines] in table.as_chunks().0 {
        end += u32::from(*bytes);
        let distance = *lines as i8;
        if distance != i8::MIN {
            line += i32::from(distance);
        }
        if instruction.checked_mul(2)? < end {
            return (distance != i8::MIN).then_some(line);
        }
    }
    None
}

/// CPython 3.11 and later: entries of one byte with a code and a length, and further bytes as the
/// code wants them. `instruction` is counted in bytes, and before the first one if the function is
/// about to begin.
pub fn of_3_11(table: &[u8], first: i32, instruction: i64) -> Option<i32> {
    if instruction < 0 {
        return Some(first);
    }
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (first, 0);
    while let Some(entry) = bytes.next() {
        end += 2 * (i64::from(entry & 7) + 1);
        let code = entry >> 3 & 15;
        let distance = match code {
            15 => 0,
            14 => {
                let distance = signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
                distance
            }
            13 => signed(&mut bytes)?,
            10..=12 => {
                bytes.next()?;
                bytes.next()?;
                i32::from(code) - 10
            }
            _ => {
                bytes.next()?;
                0
            }
        };
        line = line.checked_add(distance)?;
        if end > instruction {
            return (code != 15).then_some(line);
        }
    }
    None
}

/// Six bits a byte, the lowest first; the seventh says that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(6) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let value = unsigned(bytes)?;
    let size = (value >> 1) as i32;
    Some(if value & 1 != 0 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_3_9_lead_to_lines() {
        // 6 bytes on line 10, then 4 lines on, then one line back.
        let table = [6, 4, 8, 0xff];
        let line = |instruction| of_3_9(&table, 10, instruction);
        assert_eq!(
            [line(0), line(5), line(6), line(13), line(14)],
            [Some(10), Some(10), Some(14), Some(14), Some(13)]
        );
    }

    #[test]
    fn ranges_of_3_10_lead_to_lines_or_to_none() {
        let table = [4, 1, 2, 0x80, 6, 3];
        let line = |instruction| of_3_10(&table, 10, instruction);
        assert_eq!(
            [line(0), line(1), line(2), line(3), line(5), line(6)],
            [Some(11), Some(11), None, Some(14), Some(14), None]
        );
    }

    #[test]
    fn entries_of_3_11_lead_to_lines() {
        // One unit on the line after (code 11), two units by a long entry (five lines on), one
        // without line, one on the same line by columns only.
        let table = [
            0x80 | 11 << 3,
            0,
            0,
            0x80 | 14 << 3 | 1,
            10,
            0,
            0,
            0,
            0x80 | 15 << 3,
            0x80,
            0,
        ];
        let line = |instruction| of_3_11(&table, 10, instruction);
        assert_eq!(
            [
                line(-2),
                line(0),
                line(2),
                line(5),
                line(6),
                line(8),
                line(10)
            ],
            [Some(10), Some(11), Some(16), Some(16), None, Some(16), None]
        );
        let back = [0x80 | 13 << 3, 7];
        assert_eq!(of_3_11(&back, 10, 0), Some(7));
    }

    proptest::proptest! {
        #[test]
        fn no_table_leads_astray(table: Vec<u8>, first: i16, instruction: u32) {
            let _ = of_3_9(&table, first.into(), instruction);
            let _ = of_3_10(&table, first.into(), instruction);
            let _ = of_3_11(&table, first.into(), instruction.into());
        }
    }
}
