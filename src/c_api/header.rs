//! The header that C includes, generated from these sources: `UPDATE_HEADER=1 cargo test -p ygg-c header` updates it.

use std::{fs, path::Path};

use cbindgen::{Builder, Config};

#[test]
fn the_header_is_what_the_sources_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is one");
    let made = Builder::new().with_config(config).with_src(folder.join("mod.rs")).generate();
    let mut header = Vec::new();
    made.expect("the sources can be read").write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    let path = folder.join("ygg.h");
    #[expect(clippy::disallowed_methods, reason = "asked for by whoever changes the interface")]
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &header).expect("the header can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == header,
        "ygg.h is not current: run `UPDATE_HEADER=1 cargo test -p ygg-c header`, then look at the difference"
    );
}
