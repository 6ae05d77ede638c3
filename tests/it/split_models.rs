//! Models in several GGUF files: any part opens the whole, with the bits of the single file; parts that do not fit are
//! refused.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ygg_kernels::WeightFormat;
use yggc::{
    engine::{Activations, KvFormat, LoadOptions, Loaded, Pinning},
    measure::score,
    model::{
        Model, RopeConfig, RopeScaling,
        gguf::{DATA_ALIGNMENT, TensorRecord, Value, encode_header, parse},
        synthetic::SyntheticSpec,
    },
};

/// Rope factors are a tensor, too, which the container reads.
fn spec() -> SyntheticSpec {
    let rope = RopeConfig { base: 10_000.0, scaling: RopeScaling::PerPair(vec![1.5; 8].into()) };
    SyntheticSpec { format: WeightFormat::Q4_1, rope, ..SyntheticSpec::default() }
}

pub(crate) fn part(number: usize, count: usize) -> String {
    format!("tiny-{number:05}-of-{count:05}.gguf")
}

/// What a part says in addition to its tensors.
pub(crate) type Metadata = BTreeMap<String, Value>;

/// Writes `tiny.gguf` and the same in parts, the first without a tensor; `change` may change what a part (from 0) says.
pub(crate) fn write(folder: &Path, count: usize, change: &dyn Fn(usize, &mut Metadata)) -> PathBuf {
    let whole = folder.join("tiny.gguf");
    spec().write_gguf(&whole).expect("the folder is writable");
    let bytes = fs::read(&whole).expect("it was written");
    let file = parse(&bytes).expect("a synthetic file");
    let tensors: Vec<_> = file.tensors.iter().collect();
    let share = tensors.len().div_ceil(count - 1);
    let shares = std::iter::once(&[][..]).chain(tensors.chunks(share));
    let number = |n: usize| Value::U16(u16::try_from(n).expect("few parts"));
    for (n, tensors) in shares.enumerate() {
        let mut metadata = if n == 0 { file.metadata.clone() } else { Metadata::new() };
        let total = Value::I32(i32::try_from(file.tensors.len()).expect("few tensors"));
        metadata.extend([
            ("split.no".to_owned(), number(n)),
            ("split.count".to_owned(), number(count)),
            ("split.tensors.count".to_owned(), total),
        ]);
        change(n, &mut metadata);
        let (mut records, mut data) = (Vec::new(), Vec::new());
        for (name, info) in tensors {
            let (name, offset) = ((*name).clone(), data.len() as u64);
            records.push(TensorRecord { name, shape: info.shape.clone(), format: info.format, offset });
            data.extend(&bytes[info.bytes.clone()]);
            data.resize(data.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
        }
        let mut out = encode_header(3, &metadata, &records);
        out.resize(out.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
        out.extend(data);
        fs::write(folder.join(part(n + 1, count)), out).expect("the folder is writable");
    }
    whole
}

/// The bits of the log-likelihoods of some tokens.
fn bits(path: &Path) -> Vec<u64> {
    let options = LoadOptions {
        tier: None,
        activations: Activations::Int8,
        cache: KvFormat::F16,
        threads: Some(2),
        widths: vec![],
        resident: None,
    };
    let loaded = Loaded::open(path, &options).expect("a whole model");
    let ids: Vec<u32> = (3..60).collect();
    let scored = score(&loaded, &ids, Pinning::default()).expect("tokens of the model");
    scored.tokens.iter().map(|token| token.nll.to_bits()).collect()
}

#[test]
fn any_part_opens_the_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = write(folder.path(), 4, &|_, _| {});
    let (one, expected) = (Model::open(&whole).expect("a whole model"), bits(&whole));
    for n in 1..=4 {
        let path = folder.path().join(part(n, 4));
        let model = Model::open(&path).expect("all parts are there");
        assert_eq!(model.config, one.config);
        assert_eq!(model.tensors.len(), one.tensors.len());
        assert_eq!(bits(&path), expected, "part {n}");
    }
}

#[test]
fn fingerprints_cover_all_parts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), 3, &|_, _| {});
    let fingerprint = || Model::open(&folder.path().join(part(2, 3))).expect("a model").fingerprint();
    let first = fingerprint();
    for n in [1, 3] {
        let path = folder.path().join(part(n, 3));
        let before = fs::read(&path).expect("a part");
        let mut bytes = before.clone();
        // A byte of the metadata of the first part, of the last weight of the other.
        let at = if n == 1 {
            bytes.windows(9).position(|w| w == b"synthetic").expect("its name")
        } else {
            bytes.len() - 40
        };
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("the folder is writable");
        assert_ne!(fingerprint(), first, "part {n}");
        fs::write(&path, before).expect("the folder is writable");
        assert_eq!(fingerprint(), first);
    }
}

#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    let said = Model::open(path).expect_err("parts that do not fit").to_string();
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let number = |n: u16| Value::U16(n);

    write(folder.path(), 3, &|_, _| {});
    fs::rename(at(&part(3, 3)), at("elsewhere")).expect("it is there");
    refused(&at(&part(1, 3)), &["part 3 of 3", &part(3, 3), "no such file", "one folder"]);
    fs::write(at(&part(3, 3)), "text").expect("the folder is writable");
    refused(&at(&part(1, 3)), &["part 3 of 3", "GGUF"]);
    fs::copy(at(&part(2, 3)), at(&part(3, 3))).expect("it is there");
    refused(&at(&part(1, 3)), &[&part(3, 3), "`split.no`: expected 2, found 1", "name"]);
    fs::copy(at(&part(2, 3)), at("renamed.gguf")).expect("it is there");
    refused(&at("renamed.gguf"), &["NAME-00002-of-00003.gguf", "found `renamed.gguf`", "names"]);
    fs::copy(at(&part(2, 3)), at(&part(2, 4))).expect("it is there");
    refused(&at(&part(2, 4)), &["NAME-00002-of-00003.gguf", &part(2, 4)]);

    write(folder.path(), 3, &|n, metadata| {
        if n == 2 {
            metadata.insert("split.count".to_owned(), number(5));
        }
    });
    refused(&at(&part(1, 3)), &[&part(3, 3), "`split.count`: expected 3, found 5", "different models"]);
    write(folder.path(), 3, &|n, metadata| drop((n == 1).then(|| metadata.remove("split.no"))));
    refused(&at(&part(1, 3)), &[&part(2, 3), "`split.no` is missing"]);
    write(folder.path(), 3, &|_, metadata| drop(metadata.insert("split.no".to_owned(), number(3))));
    refused(&at(&part(1, 3)), &[&part(1, 3), "below the 3", "found 3"]);
    write(folder.path(), 3, &|_, metadata| {
        drop(metadata.insert("split.tensors.count".to_owned(), number(7)))
    });
    refused(&at(&part(1, 3)), &["`split.tensors.count`: expected 7 tensors", "in all 3 parts"]);
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let total = |n: usize, metadata: &mut Metadata| {
        if n == 2 {
            metadata.insert("split.no".to_owned(), Value::U16(1));
        } else if n == 1 {
            metadata.insert("split.no".to_owned(), Value::U16(2));
        }
    };
    write(folder.path(), 3, &|_, _| {});
    let second = fs::read(folder.path().join(part(2, 3))).expect("a part");
    write(folder.path(), 3, &total);
    // The second part's tensors in a part that says it is the third.
    fs::rename(folder.path().join(part(2, 3)), folder.path().join(part(3, 3))).expect("it is there");
    fs::write(folder.path().join(part(2, 3)), second).expect("the folder is writable");
    refused(&folder.path().join(part(1, 3)), &[&part(3, 3), "tensor `", "one entry", &part(2, 3)]);
}
