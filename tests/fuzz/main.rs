//! Bad input, replayed and mutated: `tests/run -p tollgate-tests --test fuzz -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod mutate;
mod targets;

use mutate::run;
use targets::{event_id, expression, http_answer, proto, yaml};

#[test]
fn expressions() {
    let words = [
        "*",
        "*/",
        "-",
        ",",
        "L",
        "#",
        "#L",
        "@daily",
        "@yearly",
        "JAN",
        "SUN",
        "MON-FRI",
        "\nc ",
        "\nf ",
        "\ni ",
        "\na ",
        "|",
        " after=",
        " start=",
        " end=",
        " skip",
        " both",
        "Africa/Casablanca",
        "Asia/Gaza",
        "America/Havana",
        "Antarctica/Troll",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "America/Sao_Paulo",
        "29 2",
        "31",
        "5#5",
    ];
    run("expression", expression::target, &words, 10_000);
}

#[test]
fn event_ids() {
    run("event_id", event_id::target, &["-", "3f-", "_", "=", "+", "%00", "é"], 60_000);
}

#[test]
fn requests() {
    run(
        "proto",
        proto::target,
        &["\n", "\x12\x00", "\x1a", "namespaces/a/", "schedules/", "label.a=", " AND ", "\""],
        60_000,
    );
}

#[test]
fn yaml_files() {
    let words = [
        "\n---\n",
        "\n...\n",
        "kind: ",
        "Policy",
        "Schedule",
        "schedules:\n",
        "policies:\n",
        "  - ",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!!binary ",
        "? ",
        "|\n",
        ">-\n",
        "\t",
        "{",
        "}",
        "[",
        "]",
        "id: ",
        "name: ",
        "namespace: ",
        "payload: ",
        "triggers: ",
        "cron: ",
        "null",
        "true",
        "1e400",
        ".nan",
        "0x1F",
        "%YAML 1.1\n",
        "\u{feff}",
        "\u{85}",
    ];
    run("yaml", yaml::target, &words, 1_500);
}

#[test]
fn http_answers() {
    let words = [
        "HTTP/1.1 ",
        "HTTP/1.0 ",
        "200 OK\r\n",
        "100 Continue\r\n\r\n",
        "103 Early Hints\r\n",
        "101 Switching Protocols\r\n",
        "204 No Content\r\n",
        "302 Found\r\n",
        "429 x\r\n",
        "503 x\r\n",
        "\r\n",
        "\r\n\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "Retry-After: ",
        "Location: ",
        "Connection: close\r\n",
        "Connection: upgrade\r\n",
        "Sat, 21 Nov 2026 04:00:00 GMT",
    ];
    run("http_answer", http_answer::target, &words, 2_500);
}
