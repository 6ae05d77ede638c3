//! Expressions of formats. Each allows texts of the format only, if not always all of them.

/// Formats that are kept: `(name, expression)`.
pub(super) fn expression(name: &str) -> Option<String> {
    // The 29th of February is one of leap years only.
    let leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29";
    let date = format!(
        "(?:[0-9]{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{leap})"
    );
    // Leap seconds depend on the zone: none is written.
    let time = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let ipv4 = format!("{byte}(?:\\.{byte}){{3}}");
    let label = "[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9]){0,30}";
    let host = format!("{label}(?:\\.{label}){{0,3}}");
    Some(match name {
        "date" => date,
        "time" => time.to_owned(),
        "date-time" => format!("{date}T{time}"),
        "duration" => {
            let hours =
                "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
            let days =
                "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)";
            format!("P(?:{days}(?:{hours})?|{hours}|[0-9]{{1,9}}W)")
        }
        "email" => {
            let atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,30}";
            format!("{atom}(?:\\.{atom})?@{host}")
        }
        "hostname" => host,
        "ipv4" => ipv4,
        "ipv6" => {
            let group = "[0-9A-Fa-f]{1,4}";
            let mut forms = vec![format!("{group}(?::{group}){{7}}")];
            // Groups before and after the gap.
            forms.extend((0..=6).map(|before| {
                let head = if before == 0 {
                    String::new()
                } else {
                    format!("{group}(?::{group}){{{}}}", before - 1)
                };
                format!("{head}::(?:{group}(?::{group}){{0,{}}})?", 6 - before)
            }));
            forms.join("|")
        }
        "uuid" => "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}".to_owned(),
        "uri" => {
            let character = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";
            let path = format!("(?:/(?:{character}|:)*)*");
            let authority = format!("//(?:[A-Za-z0-9._~-]+@)?{host}(?::[0-9]{{1,4}})?{path}");
            let other =
                format!("(?:/(?:{character}(?:{character}|:)*{path})?|{character}(?:{character}|:)*{path})");
            format!(
                "[A-Za-z][A-Za-z0-9+.-]*:(?:{authority}|{other})(?:\\?(?:{character}|[:/?])*)?(?:#(?:{character}|[:/?])*)?"
            )
        }
        _ => return None,
    })
}
