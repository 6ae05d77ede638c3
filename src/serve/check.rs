//! Parses an untrusted body and checks the result: the function of the fuzz target and of its smoke test.

use std::time::Duration;

use super::{
    choose,
    requests::{self, Asked, Defaults},
    responses,
    settings::Limits,
};

const LIMITS: Limits = Limits {
    queue: 1,
    connections: 1,
    body_bytes: 1 << 20,
    prompt_tokens: 100,
    output_tokens: 50,
    deadline: Duration::from_secs(1),
    drain: Duration::from_secs(1),
};
/// Of a service in the tests of bodies.
pub(super) const DEFAULTS: Defaults<'_> = Defaults { drafter: "plan", limits: &LIMITS, context: 40 };

/// Parses a body as a request of each endpoint; returns whether one accepted it.
///
/// # Panics
/// If a request is accepted that an engine would refuse, or a refusal has no reason or another status than 400.
pub(crate) fn check_body(body: &[u8]) -> bool {
    let mut understood = false;
    let chat = requests::chat(body, &DEFAULTS);
    for asked in [chat, requests::completion(body, &DEFAULTS), responses::asked(body, &DEFAULTS)] {
        match asked {
            Ok(Asked { request, .. }) => {
                assert!((1..=LIMITS.output_tokens).contains(&request.max_tokens), "{request:?}");
                assert!(request.sampling.validate().is_ok(), "{request:?}");
                assert!(request.stop.iter().all(|stop| !stop.is_empty()), "{request:?}");
                understood = true;
            }
            Err(refused) => {
                let said = refused.body().to_string();
                assert!(refused.status == 400 && !refused.message.is_empty(), "{said}");
            }
        }
    }
    match choose::asked(body, &DEFAULTS) {
        Ok(_) => understood = true,
        Err(refused) => assert!(refused.status == 400 && !refused.message.is_empty(), "{}", refused.body()),
    }
    understood
}

#[cfg(test)]
#[path = "../../fuzz/src/mutation.rs"]
#[expect(unreachable_pub, reason = "a module of the fuzz targets")]
mod mutation;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Runs the fuzz target's function over a fixed number of mutations of its seeds.
    #[test]
    fn bodies_in_any_shape_are_understood_or_refused() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/http_bodies");
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        for (path, seed) in paths.iter().zip(&seeds) {
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(!name.starts_with("valid") || check_body(seed), "{name} is no request");
        }
        let accepted = mutation::run(&seeds, 30_000, check_body);
        assert!(accepted > 1_000, "mutations must reach deep: {accepted} were requests");
    }
}
