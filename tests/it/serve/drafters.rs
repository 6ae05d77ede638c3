//! Names of drafters in requests: each of the plan's drafts, and others are refused before they wait.

use serde_json::json;

use super::{
    answered, load, planned,
    server::{Server, chat, endless},
    text,
};
use crate::{
    program::failure,
    tiny_commands::{drafting_plan, json as printed, model, on_tiny},
};

/// Names of the plan's drafters.
fn names() -> Vec<String> {
    let plan = yggc::plan::read(drafting_plan()).expect("a plan");
    plan.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.name.to_string()).collect()
}

#[test]
fn every_drafter_of_the_plan_is_known_by_its_own_name_over_http_and_on_the_command_line() {
    let names = names();
    let is_variant = |name: &&String| !yggc::plan::DrafterKind::NAMES.contains(&name.as_str());
    let variants: Vec<&String> = names.iter().filter(is_variant).collect();
    assert!(variants.iter().any(|name| *name == "lookup_short"), "{names:?}");
    let server = planned();
    let expected = answered(&server.chat(&chat("one and one", 24)));
    for name in &names {
        let mut body = chat("one and one", 24);
        body["drafter"] = json!(name);
        assert_eq!(text(&answered(&server.chat(&body))), text(&expected), "{name}");
    }
    for name in variants {
        let plan = drafting_plan().to_str().expect("UTF-8");
        let mut run = on_tiny("run");
        let said =
            printed(run.args(["-p", "one and one", "-n", "24", "--json", "--plan", plan, "--drafter", name]));
        assert_eq!(said["text"], text(&expected), "{name}");
    }
}

#[test]
fn unknown_names_are_refused_with_what_there_is_and_do_not_wait() {
    let plan = drafting_plan().to_str().expect("UTF-8");
    let refused = |server: &Server, name: &str| {
        let mut body = chat("one", 2);
        body["drafter"] = json!(name);
        let reply = server.chat(&body);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!("drafter")), "{reply:?}");
        error["message"].as_str().expect("a message").to_owned()
    };
    let server = planned();
    for (name, part) in [
        ("oracle", "there is no such drafter"),
        ("", "there is no such drafter"),
        ("lookup_long", "it never measured it"),
        ("model_hidden", "it never measured it"),
        ("layer_skip_v9", "it never measured it"),
    ] {
        let said = refused(&server, name);
        assert!(said.contains(part) && said.contains("lookup_short"), "{said}");
        assert!(said.contains("kinds of drafters are none, lookup, layer_skip"), "{said}");
    }
    let mut run = on_tiny("run");
    let run = run.args(["-p", "x", "--plan", plan, "--drafter", "model_hidden"]);
    let said = failure(&run.output().expect("yggc starts"), 3);
    assert!(said.contains("it never measured it") && said.contains("kinds of drafters are none"), "{said}");
    let mut serve = on_tiny("serve");
    let serve = serve.args(["--port", "0", "--plan", plan, "--drafter", "model_hidden"]);
    assert!(failure(&serve.output().expect("yggc starts"), 3).contains("it never measured it"));

    let busy = load::start(&["--queue", "0"]);
    let running = busy.begin(&endless());
    busy.wait_for("yggc_requests_running", 1.0);
    assert_eq!(busy.chat(&chat("one", 2)).status, 429);
    assert!(refused(&busy, "oracle").contains("without a plan"));
    assert!(refused(&busy, "lookup").contains("leave `drafter` out"));
    drop(running);
    let plain = Server::start(model(), &["--no-spec"]);
    let mut none = chat("one", 2);
    none["drafter"] = json!("none");
    answered(&plain.chat(&none));
}
