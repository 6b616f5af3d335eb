//! What a plain scalar means to kubectl, whose YAML is version 1.1: `yes` is true, `0644` is 420, `1_000` is 1000.

use serde_json::{Number, Value};

/// The value of a plain scalar; none for `.nan` and `.inf`, which JSON does not have.
pub(super) fn resolve(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ if is_not_finite(text) => return None,
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn is_not_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| is_decimal(&plain).then(|| Number::from_f64(plain.parse().ok()?)).flatten())
}

fn integer(plain: &str) -> Option<Number> {
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(plain)),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match (lower.get(..2), lower.get(2..)) {
        (Some("0x"), Some(rest)) => (rest, 16),
        (Some("0o"), Some(rest)) => (rest, 8),
        (Some("0b"), Some(rest)) => (rest, 2),
        _ => match lower.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (rest, 8),
            Some(_) | None => (lower.as_str(), 10),
        },
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), radix).map(Number::from);
    signed.ok().or_else(|| {
        let large = sign.is_empty().then(|| u64::from_str_radix(digits, radix).ok()).flatten();
        large.map(Number::from)
    })
}

/// Digits with at most one point and an exponent: Rust alone would also take `inf` and the like.
fn is_decimal(plain: &str) -> bool {
    let plain = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = plain.split_once(['e', 'E']).map_or((plain, None), |(m, e)| (m, Some(e)));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent_fits && digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_are_read_as_kubectl_reads_them() {
        let cases = [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("y", json!(true)),
            ("on", json!(true)),
            ("No", json!(false)),
            ("OFF", json!(false)),
            ("oN", json!("oN")),
            ("0644", json!(420)),
            ("0o17", json!(15)),
            ("089", json!(89.0)),
            ("-0x1F", json!(-31)),
            ("0b101", json!(5)),
            ("+5", json!(5)),
            ("1_000", json!(1000)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("99999999999999999999", json!(99_999_999_999_999_999_999.0)),
            ("3.28", json!(3.28)),
            (".5", json!(0.5)),
            ("1.", json!(1.0)),
            ("1e3", json!(1000.0)),
            ("1e400", json!("1e400")),
            ("3.28.0", json!("3.28.0")),
            ("v3.28", json!("v3.28")),
            ("2026-11-30", json!("2026-11-30")),
            ("1:30", json!("1:30")),
            ("-", json!("-")),
            (".", json!(".")),
            ("0x", json!("0x")),
            ("--5", json!("--5")),
            ("infinity", json!("infinity")),
        ];
        for (text, value) in cases {
            assert_eq!(resolve(text), Some(value), "{text}");
        }
        for text in [".nan", ".inf", "-.Inf"] {
            assert_eq!(resolve(text), None, "{text}");
        }
    }
}
