//! The time as it stands before a line of output: a pure function of the clock's reading, in UTC,
//! which needs no table of zones.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time as it stands before a line: UTC, to the millisecond (ISO 8601).
pub(super) fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years of 400-year cycles counted from 1 March of the year 0, so that the leap day comes last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{:03}Z ",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let at = |seconds: u64, millis: u64| {
            stamp(UNIX_EPOCH + std::time::Duration::from_millis(seconds * 1000 + millis))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z ");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z ");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z ");
        assert_eq!(at(1_767_225_599, 7), "2025-12-31T23:59:59.007Z ");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z ");
    }
}
