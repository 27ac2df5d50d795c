//! Remote commands.

use anyhow::{Result, ensure};

use crate::world::{FAILED, Test, World};

pub const TESTS: &[(&str, Test)] = &[
    ("each_transport_has_separate_outputs", each_transport_has_separate_outputs),
    ("each_version_reports_exit_codes", each_version_reports_exit_codes),
    ("each_version_reports_errors", each_version_reports_errors),
    ("ten_megabytes_are_echoed_until_the_input_is_closed", ten_megabytes_are_echoed),
    ("a_terminal_has_its_size_before_the_start", a_terminal_has_its_size),
    ("unknown_protocols_are_refused", unknown_protocols_are_refused),
];

/// Each protocol of client-go that this crate supports.
const TRANSPORTS: [&str; 9] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "channel.k8s.io",
    "spdy",
    "spdy:v4.channel.k8s.io",
    "spdy:v3.channel.k8s.io",
    "spdy:v2.channel.k8s.io",
    "spdy:channel.k8s.io",
    "fallback",
];

fn each_transport_has_separate_outputs(world: &World) -> Result<()> {
    for transport in TRANSPORTS {
        for (command, stdout, stderr) in [("echo", "hello", ""), ("warn", "", "hello")] {
            let query = format!("command={command}&command=hello&stdin=1&stdout=true&stderr=true");
            let ran = world.exec(transport, &query, b"")?;
            let is_expected = ran.code == 0 && ran.stdout == stdout.as_bytes();
            ensure!(is_expected && ran.stderr == stderr, "{transport} {command}: {ran:?}");
        }
    }
    Ok(())
}

fn each_version_reports_exit_codes(world: &World) -> Result<()> {
    for transport in TRANSPORTS {
        let query = "command=exit&command=3&stdin=1&stdout=1&stderr=1";
        let ran = world.exec(transport, query, b"")?;
        let is_v1 = transport.ends_with(":channel.k8s.io") || transport == "channel.k8s.io";
        let is_text = is_v1 || transport.starts_with("spdy:v2") || transport.starts_with("spdy:v3");
        let expected = if is_text { FAILED } else { 3 };
        // The client of the unversioned protocol may miss an error that arrives with the end of the output.
        ensure!(ran.code == expected || is_v1 && ran.code == 0, "{transport}: {ran:?}");
    }
    Ok(())
}

fn each_version_reports_errors(world: &World) -> Result<()> {
    for transport in ["v5.channel.k8s.io", "v4.channel.k8s.io", "spdy", "spdy:v2.channel.k8s.io"] {
        let ran = world.exec(transport, "command=nonsense&stdin=1&stdout=1&stderr=1", b"")?;
        let is_reported = ["Internal error occurred: ", "no such command: nonsense"]
            .iter()
            .all(|part| ran.stderr.contains(part));
        ensure!(ran.code == FAILED && is_reported, "{transport}: {ran:?}");
    }
    Ok(())
}

fn ten_megabytes_are_echoed(world: &World) -> Result<()> {
    let input: Vec<u8> =
        (0..10_u32 << 20).flat_map(|i| (i % 251).to_le_bytes()[..1].to_vec()).collect();
    // The other protocols over a WebSocket cannot close the input.
    let transports = ["v5.channel.k8s.io", "spdy", "spdy:v2.channel.k8s.io", "fallback"];
    for transport in transports {
        let ran = world.exec(transport, "command=cat&stdin=1&stdout=1&stderr=1", &input)?;
        let count = ran.stdout.len();
        ensure!(ran.stdout == input, "{transport}: {count} bytes, {} {}", ran.code, ran.stderr);
        ensure!(ran.code == 0, "{transport}: {} {}", ran.code, ran.stderr);
    }
    Ok(())
}

fn a_terminal_has_its_size(world: &World) -> Result<()> {
    for transport in ["v5.channel.k8s.io", "v4.channel.k8s.io", "spdy", "spdy:v3.channel.k8s.io"] {
        let ran = world.exec(transport, "command=size&stdin=1&stdout=1&tty=true", b"")?;
        ensure!(ran.code == 0 && ran.stdout == b"80x24", "{transport}: {ran:?}");
    }
    Ok(())
}

fn unknown_protocols_are_refused(world: &World) -> Result<()> {
    let query = "command=cat&stdin=1&stdout=1";
    let ran = world.exec("spdy:v9.channel.k8s.io", query, b"")?;
    let message =
        "unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts";
    ensure!(ran.code == FAILED && ran.stderr.contains(message), "{ran:?}");
    let ran = world.exec("v9.channel.k8s.io", query, b"")?;
    ensure!(ran.code == FAILED && ran.stderr.contains("403 Forbidden"), "{ran:?}");
    let ran = world.exec("v5.channel.k8s.io", "command=cat", b"")?;
    ensure!(ran.stderr.contains("you must specify at least 1 of stdin, stdout, stderr"), "{ran:?}");
    Ok(())
}
