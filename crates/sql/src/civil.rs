//! Dates of the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").

/// Microseconds since 1970 at 2000-01-01, PostgreSQL's epoch.
pub(crate) const EPOCH_2000_US: i64 = 946_684_800_000_000;

/// Year, month, day, hour, minute, second and microsecond of a time in microseconds since 1970.
pub(crate) fn civil(us: i64) -> (u16, u8, u8, u8, u8, u8, u32) {
    let (seconds, micros) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (
        year as u16,
        month as u8,
        day as u8,
        (second / 3600) as u8,
        (second / 60 % 60) as u8,
        (second % 60) as u8,
        micros as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1, 0, 0, 0, 0));
        assert_eq!(civil(EPOCH_2000_US), (2000, 1, 1, 0, 0, 0, 0));
        assert_eq!(civil(951_782_399_000_007), (2000, 2, 28, 23, 59, 59, 7));
        assert_eq!(civil(951_782_400_000_000), (2000, 2, 29, 0, 0, 0, 0));
        assert_eq!(civil(1_798_761_599_999_999), (2026, 12, 31, 23, 59, 59, 999_999));
    }
}
