//! Decimal numbers on the wire: PostgreSQL's binary `numeric`, and decimal text.

/// Appends a number as PostgreSQL sends `numeric`: digits of base 10000, each two bytes.
pub fn encode(units: i64, scale: u8, out: &mut Vec<u8>) {
    // Fractional digits fill whole groups of four.
    let fraction_groups = u32::from(scale).div_ceil(4);
    let padding = 10_i128.pow(fraction_groups * 4 - u32::from(scale));
    let mut rest = i128::from(units).unsigned_abs() * padding as u128;
    let mut groups = [0_u16; 12];
    let mut count = 0;
    while rest > 0 {
        groups[count] = (rest % 10_000) as u16;
        rest /= 10_000;
        count += 1;
    }
    let weight = count as i32 - 1 - fraction_groups as i32;
    out.extend_from_slice(&(count as i16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&(if units < 0 { 0x4000_u16 } else { 0 }).to_be_bytes());
    out.extend_from_slice(&u16::from(scale).to_be_bytes());
    for group in groups[..count].iter().rev() {
        out.extend_from_slice(&group.to_be_bytes());
    }
}

/// Reads what [`encode`] writes, with `scale` digits after the decimal point; more digits are cut off.
pub fn decode(bytes: &[u8], scale: u8) -> i64 {
    let word = |index: usize| i32::from(i16::from_be_bytes([bytes[2 * index], bytes[2 * index + 1]]));
    let (count, weight) = (word(0), word(1));
    let is_negative = word(2) == 0x4000;
    let mut value: i128 = 0;
    for index in 0..count {
        value = value * 10_000 + i128::from(word(4 + index as usize));
    }
    // The last group's exponent of ten, relative to the wanted scale.
    let exponent = 4 * (weight - count + 1) + i32::from(scale);
    let scaled = match exponent {
        0.. => value * 10_i128.pow(exponent as u32),
        _ => value / 10_i128.pow(-exponent as u32),
    };
    (if is_negative { -scaled } else { scaled }) as i64
}

/// Appends a number as text, such as `-12.30`.
pub fn write_text(units: i64, scale: u8, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 24];
    let mut at = digits.len();
    let mut rest = units.unsigned_abs();
    let mut written = 0;
    while rest > 0 || written <= scale {
        if written == scale && scale > 0 {
            at -= 1;
            digits[at] = b'.';
        }
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        written += 1;
    }
    if units < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Reads decimal text with `scale` digits after the decimal point; more digits are cut off.
pub fn read_text(text: &[u8], scale: u8) -> i64 {
    let (mut value, mut fraction_digits, mut in_fraction) = (0_i64, 0, false);
    for byte in text {
        match byte {
            b'0'..=b'9' if !in_fraction || fraction_digits < scale => {
                value = value * 10 + i64::from(byte - b'0');
                fraction_digits += u8::from(in_fraction);
            }
            b'.' => in_fraction = true,
            _ => {}
        }
    }
    value *= 10_i64.pow(u32::from(scale - fraction_digits));
    if text.first() == Some(&b'-') { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numeric_is_encoded_as_the_manual_describes_it_and_text_has_the_digits_of_its_scale() {
        let mut bytes = Vec::new();
        encode(-123_456, 2, &mut bytes);
        assert_eq!(bytes, [0, 2, 0, 0, 0x40, 0, 0, 2, 0x04, 0xd2, 0x15, 0xe0], "-1234.5600");
        bytes.clear();
        encode(0, 4, &mut bytes);
        assert_eq!(decode(&bytes, 4), 0);
        let text = |units, scale| {
            let mut out = Vec::new();
            write_text(units, scale, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(-1230, 2), "-12.30");
        assert_eq!(text(5, 4), "0.0005");
        assert_eq!(text(7, 0), "7");
        assert_eq!(read_text(b"3.5", 2), 350);
        assert_eq!(read_text(b"-0.0075", 2), 0);
    }

    proptest! {
        #[test]
        fn numbers_survive_both_encodings(units in -1_000_000_000_000_i64..1_000_000_000_000, scale in 0_u8..5) {
            let (mut bytes, mut text) = (Vec::new(), Vec::new());
            encode(units, scale, &mut bytes);
            write_text(units, scale, &mut text);
            prop_assert_eq!(decode(&bytes, scale), units);
            prop_assert_eq!(read_text(&text, scale), units);
        }
    }
}
