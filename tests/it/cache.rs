//! `yggc cache`: what is cached is listed, checked and removed, by name and by kind.

use std::{fs, path::PathBuf, process::Output};

use serde_json::Value;

use crate::{
    kept_weights::large,
    program::{failure, success, yggc},
    tiny_commands as tiny,
};

/// A cache with an entry of every kind, and a cache of the hub.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().expect("a temporary folder"));
        let write = |path: &str, text: &str| {
            let path = scene.at(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        };
        fs::create_dir_all(scene.at("cache/models")).expect("writable");
        let model = large(&scene.at("cache/models"));
        write("ids.json", "[5, 6, 7, 8]");
        success(&scene.yggc(&format!(
            "score -m {} --token-ids {}",
            model.display(),
            scene.at("ids.json").display()
        )));
        write("cache/plans/0123.failure", "too slow\nfor this\n");
        write("cache/partial/77/half.whl", "half");
        write("cache/kernels/some.cubin", "kernels");
        write("cache/contents/abcd.json", "{}");
        write("cache/hub/tiny--repo.json", "{}");
        write("cache/hub/tiny--repo/a.gguf.json", "{}");
        write("hf/hub/models--tiny--repo/blobs/b", "12345");
        write("hf/hub/models--others--repo/blobs/b", "not fetched by name");
        fs::copy(tiny::plan(), scene.at("cache/plans/4567.plan")).expect("the tiny plan");
        fs::copy(tiny::profile(), scene.at("cache/plans/4567.profile")).expect("the tiny profile");
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn yggc(&self, line: &str) -> Output {
        let mut command = yggc();
        command.args(line.split_whitespace()).arg("--cache-dir").arg(self.at("cache"));
        command.env_remove("HF_HUB_CACHE").env("HF_HOME", self.at("hf")).output().expect("yggc starts")
    }

    fn entries(&self) -> Vec<Value> {
        let listing: Value = serde_json::from_str(&success(&self.yggc("cache list --json"))).expect("JSON");
        let entries = listing["entries"].as_array().expect("a list").clone();
        let bytes: u64 = entries.iter().map(|entry| entry["bytes"].as_u64().expect("a number")).sum();
        assert_eq!(listing["bytes"].as_u64(), Some(bytes));
        entries
    }

    fn kinds(&self) -> Vec<String> {
        let kind = |entry: Value| entry["kind"].as_str().expect("text").to_owned();
        self.entries().into_iter().map(kind).collect()
    }
}

#[test]
fn everything_is_listed_with_size_and_name_and_removed_by_it() {
    let scene = Scene::new();
    assert_eq!(
        scene.kinds(),
        ["model", "hub", "packed", "plan", "failure", "kernels", "contents", "partial"]
    );
    let entries = scene.entries();
    let name = |at: usize| entries[at]["name"].as_str().expect("text");
    assert_eq!([name(0), name(1), name(3), name(4)], ["large.gguf", "hf:tiny/repo", "4567", "0123"]);
    assert_eq!(entries[1]["bytes"], 5 + 4);
    assert_eq!(entries[4]["about"], "too slow");
    let packed = entries[2]["about"].as_str().expect("text");
    assert!(packed.ends_with("models/large.gguf") && entries[2]["last_used"].as_u64() > Some(1_700_000_000));
    assert!(entries[3]["about"].as_str().expect("text").contains("portable"), "{entries:?}");
    let table = success(&scene.yggc("cache list"));
    for part in ["kind", "hf:tiny/repo", "too slow", " MiB in ", "now"] {
        assert!(table.contains(part), "`{part}`: {table}");
    }
    assert_eq!(table.lines().count(), entries.len() + 2, "{table}");

    let said = failure(&scene.yggc("cache rm large.gguf elsewhere"), 3);
    assert!(said.contains("`elsewhere`") && said.contains("yggc cache list"), "{said}");
    assert_eq!(scene.entries().len(), entries.len(), "nothing is removed if a name is wrong");

    // A model goes with what was packed from it.
    let said = success(&scene.yggc("cache rm large.gguf 0123"));
    assert!(said.starts_with("3 entries, "), "{said}");
    assert_eq!(scene.kinds(), ["hub", "plan", "kernels", "contents", "partial"]);
    success(&scene.yggc("cache rm hf:tiny/repo"));
    assert!(!scene.at("hf/hub/models--tiny--repo").exists() && !scene.at("cache/hub/tiny--repo").exists());
    assert!(scene.at("hf/hub/models--others--repo").exists(), "what others fetched stays");
}

#[test]
fn kinds_are_cleared_and_the_hub_only_where_it_is_named() {
    let scene = Scene::new();
    success(&scene.yggc("cache clear packed failure"));
    assert_eq!(scene.kinds(), ["model", "hub", "plan", "kernels", "contents", "partial"]);
    success(&scene.yggc("cache clear"));
    assert_eq!(scene.kinds(), ["hub"]);
    success(&scene.yggc("cache clear hub"));
    assert_eq!(scene.entries(), [Value::Null; 0]);
    let said = failure(&scene.yggc("cache clear everything"), 2);
    assert!(said.contains("possible values: model"), "{said}");
    let empty = tempfile::tempdir().expect("a temporary folder");
    let mut command = yggc();
    let listed = command.args(["cache", "list", "--cache-dir"]).arg(empty.path().join("none")).output();
    assert!(success(&listed.expect("yggc starts")).contains("0.0 KiB in "));
}

#[test]
fn a_check_finds_what_was_changed() {
    let scene = Scene::new();
    assert!(success(&scene.yggc("cache check")).contains("none is damaged"));
    let packed = PathBuf::from(scene.entries()[2]["paths"][0].as_str().expect("text"));
    let mut bytes = fs::read(&packed).expect("it is there");
    // Between two samples, which opening would not see.
    let at = bytes.len() / 2 + 8 * 4096;
    bytes[at] ^= 1;
    fs::write(&packed, bytes).expect("writable");
    fs::write(scene.at("cache/plans/4567.plan"), "no plan").expect("writable");
    let said = failure(&scene.yggc("cache check"), 1);
    let name = packed.file_stem().expect("a name").to_str().expect("UTF-8");
    for part in ["2 of 8 entries", &format!("yggc cache rm {name} 4567"), "found others"] {
        assert!(said.contains(part), "`{part}`: {said}");
    }
}
