//! The checked-in bindings of `kernels/cuda/abi.h` say what a C++ compiler reads there: constants, and names, types and
//! places of fields.

use std::{fmt::Write as _, path::Path, process::Command};

use crate::emulated_cuda::kernels;

const BINDINGS: &str = include_str!("../../kernels/src/cuda/abi.rs");

/// A type of a field of the bindings, as C++ writes it.
fn type_in_cpp(ty: &str) -> String {
    let pointer = |mutability| ty.strip_prefix(mutability).map(type_in_cpp);
    if let Some(to) = pointer("*const ") {
        return format!("const {to}*");
    }
    if let Some(to) = pointer("*mut ") {
        return format!("{to}*");
    }
    if let Some((element, count)) = ty.strip_prefix('[').and_then(|array| array.split_once("; ")) {
        return format!("{}[{}]", type_in_cpp(element), count.trim_end_matches("usize]"));
    }
    match ty {
        "f32" => "float".to_owned(),
        "::core::ffi::c_void" => "void".to_owned(),
        named => named.trim_end_matches('_').to_owned(),
    }
}

/// Assertions of everything that bindings say, and the names of what they have.
fn assertions_of(bindings: &str) -> (String, Vec<String>) {
    let mut assertions = String::from("#include <cstddef>\n#include <type_traits>\n#include \"abi.h\"\n");
    // Long assertions are in two lines.
    let bindings = bindings.replace("\"]\n        [", "\"][");
    let (mut names, mut of) = (Vec::new(), "");
    let mut claim = |what: &str| {
        writeln!(assertions, "static_assert({what}, R\"({what})\");").expect("strings are writable");
    };
    for line in bindings.lines().map(str::trim) {
        let number = || {
            line.rsplit([' ', '-']).next().map(|n| n.trim_end_matches([';', ']', 'u', 's', 'i', 'z', 'e']))
        };
        if let Some((name, _)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':')) {
            claim(&format!("{name} == {}u", number().expect("a number")));
            names.push(name.to_owned());
        } else if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            of = name;
            names.push(name.to_owned());
        } else if let Some((field, ty)) = line
            .strip_prefix("pub ")
            .and_then(|rest| rest.strip_suffix(','))
            .and_then(|field| field.split_once(": "))
        {
            claim(&format!("std::is_same_v<decltype({of}::{field}), {}>", type_in_cpp(ty)));
        } else if let Some(what) = line.strip_prefix("[\"").and_then(|rest| rest.split('"').next()) {
            let number = number().expect("a number");
            let asked = match what.split_once(": ") {
                Some((_, place)) => format!("offsetof({})", place.replace("::", ", ")),
                None => match what.split_once(" of ") {
                    Some(("Size", name)) => format!("sizeof({name})"),
                    Some(("Alignment", name)) => format!("alignof({name})"),
                    other => panic!("expected a size or an alignment, found {other:?}"),
                },
            };
            claim(&format!("{asked} == {number}"));
        }
    }
    (assertions, names)
}

/// What g++ says against bindings.
fn complaints(bindings: &str, folder: &Path) -> String {
    let file = folder.join("assertions.cpp");
    std::fs::write(&file, assertions_of(bindings).0).expect("the folder can be written");
    let mut command = Command::new("g++");
    let told = command.args(["-std=c++20", "-fsyntax-only", "-I"]).arg(kernels()).arg(file).output();
    let told = told.expect("g++ is needed to test the CUDA kernels");
    String::from_utf8_lossy(&told.stderr).into_owned()
}

#[test]
fn they_are_what_the_header_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert_eq!(complaints(BINDINGS, folder.path()), "", "make them again: kernels/cuda/bindings.sh");

    // All that is in the header is in them, too.
    let header = std::fs::read_to_string(kernels().join("abi.h")).expect("readable");
    let code: String =
        header.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = assertions_of(BINDINGS).1;
    let enums = ["YggEmbedding", "YggFragment", "YggFunction", "YggBinary"];
    for word in words.filter(|word| word.starts_with("YGG_") || word.starts_with("Ygg")) {
        assert!(
            names.iter().any(|name| name == word) || enums.contains(&word),
            "{word} is not in the bindings"
        );
    }
}

/// The test sees a wrong constant, a wrong place, and a type of the same size.
#[test]
fn what_they_say_wrongly_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (right, wrong, complaint) in [
        ("YGG_TILE_K: _bindgen_ty_1 = 64", "YGG_TILE_K: _bindgen_ty_1 = 32", "YGG_TILE_K == 32u"),
        ("YGG_GELU: YggFunction = 1", "YGG_GELU: YggFunction = 2", "YGG_GELU == 2u"),
        (
            "offset_of!(YggRows, stride) - 16",
            "offset_of!(YggRows, stride) - 12",
            "offsetof(YggRows, stride) == 12",
        ),
        ("pub eps: f32", "pub eps: u32_", "decltype(YggPrepare::eps)"),
    ] {
        assert!(BINDINGS.contains(right), "{right}");
        let found = complaints(&BINDINGS.replace(right, wrong), folder.path());
        assert!(found.contains(complaint), "{wrong}: {found}");
    }
}
