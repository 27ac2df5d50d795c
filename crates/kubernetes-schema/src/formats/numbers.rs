//! Numbers that identify things and people.

/// Whether a text is an ISBN-10: nine digits and a check digit, which can be `X`.
pub fn is_isbn_10(text: &str) -> bool {
    let text = without_gaps(text);
    let digits: Option<Vec<u32>> = text
        .chars()
        .enumerate()
        .map(|(at, digit)| if (at, digit) == (9, 'X') { Some(10) } else { digit.to_digit(10) })
        .collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 10) else { return false };
    let sum: u32 = (1..).zip(digits).map(|(weight, digit)| weight * digit).sum();
    sum.is_multiple_of(11)
}

/// Whether a text is an ISBN-13: thirteen digits, of which the last is the check digit.
pub fn is_isbn_13(text: &str) -> bool {
    let Some(digits) = digits(&without_gaps(text)).filter(|digits| digits.len() == 13) else {
        return false;
    };
    let sum: u32 = [1, 3].iter().cycle().zip(digits).map(|(weight, digit)| weight * digit).sum();
    sum.is_multiple_of(10)
}

/// Whether a text is a card number of a large issuer, whose last digit is the check digit. Other characters between the
/// digits are ignored.
pub fn is_credit_card(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let begins = |length: usize, from: u32, to: u32| {
        let first = number.get(..length).and_then(|first| first.parse().ok());
        first.is_some_and(|first: u32| (from..=to).contains(&first))
    };
    let is_issued = match number.len() {
        13 => begins(1, 4, 4),
        14 => begins(3, 300, 305) || begins(2, 36, 36) || begins(2, 38, 38),
        15 => {
            begins(2, 34, 34) || begins(2, 37, 37) || begins(4, 2131, 2131) || begins(4, 1800, 1800)
        }
        16 => {
            begins(1, 4, 4)
                || begins(2, 51, 55)
                || begins(4, 6011, 6011)
                || begins(2, 65, 65)
                || begins(2, 35, 35)
        }
        _ => false,
    };
    let Some(digits) = digits(&number).filter(|_| is_issued) else { return false };
    let every_other_twice = digits.iter().rev().enumerate().map(|(at, digit)| match at % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    });
    every_other_twice.sum::<u32>().is_multiple_of(10)
}

/// Whether a text has three, two and four digits, separated by dashes or blanks.
pub fn is_social_security_number(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(4, ['-', ' ']).collect();
    let lengths = parts.iter().map(|part| part.len());
    lengths.eq([3, 2, 4]) && parts.iter().all(|part| digits(part).is_some())
}

fn without_gaps(text: &str) -> String {
    text.replace(['\t', '\n', '\u{c}', '\r', ' ', '-'], "")
}

fn digits(text: &str) -> Option<Vec<u32>> {
    text.chars().map(|digit| digit.to_digit(10)).collect()
}
