//! The page at `/`: its headers, and that it asks this service alone, for fields that are there.

use serde_json::json;

use super::{
    answered, planned,
    server::{Reply, Server, chat},
};
use crate::tiny_commands::model;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

fn page(server: &Server) -> Reply {
    server.get_with("/", &[BROWSER])
}

#[test]
fn a_browser_gets_a_page_that_loads_nothing_else() {
    let server = planned();
    let reply = page(&server);
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").unwrap().starts_with("text/html"));
    assert_eq!(
        (reply.header("vary"), reply.header("x-content-type-options")),
        (Some("accept"), Some("nosniff"))
    );
    let text = &reply.text;
    assert!(text.len() < 25_000, "{} bytes", text.len());
    for foreign in ["http:", "https:", "//cdn", "@import", "url(", "src="] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    // The model's text is text.
    for unsafe_way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "setHTML",
        "createContextualFragment",
        "DOMParser",
        "srcdoc",
        "document.write",
        "eval(",
        "Function(",
        "javascript:",
        "setAttribute(\"on",
        ".href",
        " onclick=",
        " style=",
    ] {
        assert!(!text.contains(unsafe_way), "{unsafe_way}");
    }
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    assert!(nonce.len() == 32 && text.matches(nonce).count() == 2 && !text.contains("NONCE"), "{policy}");
    assert_ne!(page(&server).header("content-security-policy"), Some(policy), "another number every time");
}

#[test]
fn names_and_errors_that_are_markup_are_json_and_not_part_of_the_page() {
    let markup = "<img src=x onerror=alert(1)>";
    let server = Server::start(model(), &["--no-spec", "--model-name", markup]);
    assert!(!page(&server).text.contains("<img"));
    let path = "/v1/models/%3Cimg%20src=x%20onerror=alert(2)%3E";
    let refused = server.get_with(path, &[BROWSER]);
    let body = json!({"model": markup, "messages": [{"role": markup, "content": "a"}], "drafter": markup});
    for reply in [server.get("/"), server.get("/v1/models"), refused, server.chat(&body)] {
        assert!(reply.text.contains("<img"), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        assert!(reply.json().is_object(), "{reply:?}");
    }
    // Labels of metrics are quoted.
    let metrics = server.get("/metrics");
    assert!(metrics.header("content-type").expect("said").starts_with("text/plain"), "{metrics:?}");
    assert!(metrics.text.contains(&format!("\"{markup}\"")), "{}", metrics.text);
}

#[test]
fn its_parts_have_names_and_its_script_finds_them() {
    let text = page(&planned()).text;
    for part in [
        "lang=\"en\"",
        "<main>",
        "aria-live=\"polite\"",
        "role=\"status\"",
        "prefers-color-scheme",
        "viewport",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let names = |before: &str| -> Vec<String> {
        let name = |rest: &str| rest.split('"').next().unwrap_or_default().to_owned();
        text.split(before).skip(1).map(name).collect()
    };
    let ids = names(" id=\"");
    assert!(names("at(\"").iter().chain(&names("for=\"")).all(|name| ids.contains(name)), "{ids:?}");
    for field in ["<input id=\"", "<textarea id=\"", "<select id=\""] {
        for id in names(field) {
            assert!(names("for=\"").contains(&id), "{id} has no label");
        }
    }
}

#[test]
fn the_fields_that_it_reads_are_those_of_a_stream() {
    let server = planned();
    let page = page(&server).text;
    let mut body = chat("one and one and one", 40);
    body["drafter"] = json!("lookup");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_steps": true, "include_usage": true});
    let stream = server.chat(&body).text;
    for (variable, fields) in [
        ("about", &["drafters", "step"][..]),
        ("step", &["rows", "accepted", "tree"]),
        ("node", &["text", "parent", "drafters", "accepted"]),
        (
            "report",
            &["drafter", "tokens_per_s", "average_accepted_length", "drafted", "accepted", "speculation_off"],
        ),
    ] {
        for field in fields {
            assert!(page.contains(&format!("{variable}.{field}")), "{variable}.{field} is not read");
            assert!(stream.contains(&format!("\"{field}\":")), "{field} is not sent");
        }
    }
    // What a model thinks is shown as well (`structured::thoughts_are_told_from_answers_whole_and_in_deltas`).
    assert!(page.contains("{reasoning_content: thought"));
}

#[test]
fn a_flag_turns_it_off() {
    let server = Server::start(model(), &["--no-spec", "--no-page"]);
    let reply = page(&server);
    assert_eq!(answered(&reply)["name"], "yggc");
    assert_eq!(reply.header("content-security-policy"), None);
}
