//! Options of engines, as C gives them.

use std::ffi::c_char;

use yggc::{
    engine::{Activations, DrafterChoice, KvFormat, Options, PlanSource, Tier},
    packed::KeptPlace,
    plan,
};

use super::{
    pointers::{self, Growing},
    status::Failure,
};

/// Options of an engine: `ygg_options options = {.size = sizeof options, .model = "model.gguf"};`. A field that is zero
/// or `NULL` has its default. Texts end with a NUL, are UTF-8 except for paths, and are read only while
/// `ygg_engine_open()` runs.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OpenOptions {
    /// `sizeof(ygg_options)`.
    pub size: usize,
    /// Path of a `.gguf` file, or of a folder with `config.json`, `*.safetensors` and `tokenizer.json`.
    pub model: *const c_char,
    /// Path of a plan from `yggc plan`; `NULL`: plain decoding.
    pub plan: *const c_char,
    /// Name of a drafter that the plan measured, which is then forced at every step, or `none`; `NULL`: the plan's
    /// choice.
    pub drafter: *const c_char,
    /// Path of the drafter model; `NULL`: its path when it was profiled.
    pub draft_model: *const c_char,
    /// Path of the corpus store; `NULL`: its path when it was profiled.
    pub store: *const c_char,
    /// `cpu` or `cuda`; `NULL`: `cpu`.
    pub device: *const c_char,
    /// Instruction set of the CPU kernels: `portable`, `neon`, `avx2`, `avx512`, `avx512bf16` or `amx`; `NULL`: the
    /// fastest one that this CPU has.
    pub isa: *const c_char,
    /// Activations of linears: `int8` or `native`; `NULL`: `int8` on a CPU, `native` on a GPU.
    pub activations: *const c_char,
    /// Not 0: use the plan even if it was made for another machine, model or build.
    pub force_plan: u32,
    /// Worker threads; 0: one per processor that this process may use.
    pub threads: u32,
    /// Most tokens of prompt and answer together; 0: 4096, or the model's limit if that is lower.
    pub context: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Most bytes of weights and session together; 0: no limit besides the system's.
    pub memory_limit: u64,
    /// Element type of the key/value cache, `f16` or `q8`; `NULL`: `f16`.
    pub cache: *const c_char,
    /// Most bytes of weights in memory, of a GPU where that is the device; the others are read by every forward, from
    /// `packed_folder`, or for a GPU from memory of the host. 0: what the plan is for; without a plan all are in
    /// memory.
    pub resident: u64,
    /// Path of a folder in which packed weights are kept for the next start, which need not exist; `NULL`: they are not
    /// kept.
    pub packed_folder: *const c_char,
}

// SAFETY: plain data of C that begins with its size; null pointers and zeros are values.
unsafe impl Growing for OpenOptions {
    const NAME: &'static str = "ygg_options";
    const FIRST_BYTES: usize = 96;
}

const _: () = assert!(OpenOptions::FIRST_BYTES <= size_of::<OpenOptions>());

/// The options for the engine, and where packed weights are kept.
///
/// # Errors
/// Of kind usage for missing or unknown values, and of kind input for a plan that cannot be read.
///
/// # Safety
/// `given` is null or points to a `ygg_options`, whose texts are null or end with a NUL.
pub(super) unsafe fn options(given: *const OpenOptions) -> Result<(Options, Option<KeptPlace>), Failure> {
    // SAFETY: as the caller's.
    let given = unsafe { pointers::growing(given)? };
    // SAFETY: as the caller's.
    let text = |field, what| unsafe { pointers::text(field, what) };
    // SAFETY: as the caller's.
    let path = |field, what| unsafe { pointers::path(field, what) };
    if given.reserved != 0 {
        return Err(Failure::usage(format!("reserved is {}: expected 0", given.reserved)));
    }
    let file = path(given.model, "model")?
        .ok_or_else(|| Failure::usage("model is NULL: expected the path of a .gguf file or of a folder"))?;
    let plan = path(given.plan, "plan")?.map(|file| {
        let plan = plan::read(file).map_err(yggc::engine::Error::from)?;
        Ok::<_, Failure>(PlanSource { plan, name: file.display().to_string(), force: given.force_plan != 0 })
    });
    let drafter = text(given.drafter, "drafter")?.map_or(DrafterChoice::Planned, DrafterChoice::named);
    let tier = tier(text(given.device, "device")?, text(given.isa, "isa")?)?;
    let activations = match text(given.activations, "activations")? {
        None => None,
        Some("native") => Some(Activations::Native),
        Some("int8") => Some(Activations::Int8),
        Some(found) => return Err(unknown("activations", "native or int8", found)),
    };
    let cache = match text(given.cache, "cache")? {
        None | Some("f16") => KvFormat::F16,
        Some("q8") => KvFormat::Q8,
        Some(found) => return Err(unknown("cache", "f16 or q8", found)),
    };
    let options = Options {
        plan: plan.transpose()?,
        drafter,
        store: path(given.store, "store")?.map(Into::into),
        draft_model: path(given.draft_model, "draft_model")?.map(Into::into),
        tier,
        activations,
        cache,
        threads: some(given.threads),
        context: some(given.context),
        memory_limit: usize::try_from(given.memory_limit).ok().filter(|bytes| *bytes != 0),
        resident: usize::try_from(given.resident).ok().filter(|bytes| *bytes != 0),
        ..Options::new(file)
    };
    Ok((options, path(given.packed_folder, "packed_folder")?.map(KeptPlace::in_folder)))
}

/// The number; `None` for 0.
fn some(number: u32) -> Option<usize> {
    (number != 0).then_some(number as usize)
}

fn unknown(field: &str, expected: &str, found: &str) -> Failure {
    Failure::usage(format!("{field} is `{found}`: expected {expected}, or NULL"))
}

fn tier(device: Option<&str>, isa: Option<&str>) -> Result<Option<Tier>, Failure> {
    const SETS: &str = "portable, neon, avx2, avx512, avx512bf16 or amx";
    match (device, isa) {
        (None | Some("cpu"), None) => Ok(None),
        (None | Some("cpu"), Some(name)) => match name.parse() {
            Ok(Tier::Reference | Tier::Cuda) | Err(_) => Err(unknown("isa", SETS, name)),
            Ok(tier) => Ok(Some(tier)),
        },
        (Some("cuda"), None) => Ok(Some(Tier::Cuda)),
        (Some("cuda"), Some(_)) => Err(Failure::usage(
            "isa is for the device `cpu`: a GPU has no instruction set to choose; leave it NULL",
        )),
        (Some(found), _) => Err(unknown("device", "cpu or cuda", found)),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, ptr};

    use super::*;
    use crate::status::Status;

    fn given() -> OpenOptions {
        OpenOptions {
            size: size_of::<OpenOptions>(),
            model: c"model.gguf".as_ptr(),
            plan: ptr::null(),
            drafter: ptr::null(),
            draft_model: ptr::null(),
            store: ptr::null(),
            device: ptr::null(),
            isa: ptr::null(),
            activations: ptr::null(),
            force_plan: 0,
            threads: 0,
            context: 0,
            reserved: 0,
            memory_limit: 0,
            cache: ptr::null(),
            resident: 0,
            packed_folder: ptr::null(),
        }
    }

    fn read(given: OpenOptions) -> Result<(Options, Option<KeptPlace>), Failure> {
        // SAFETY: the tests' texts end with a NUL.
        unsafe { options(&given) }
    }

    #[test]
    fn what_is_left_out_is_the_librarys_default() {
        let (found, kept) = read(given()).unwrap();
        let expected = Options::new("model.gguf");
        assert_eq!(found.model, expected.model);
        assert_eq!((found.drafter, found.tier, found.threads), (expected.drafter, None, None));
        assert_eq!((found.context, found.memory_limit, found.resident), (None, None, None));
        assert!(kept.is_none());
        assert!(found.plan.is_none() && found.store.is_none() && found.draft_model.is_none());
    }

    #[test]
    fn what_is_said_is_taken() {
        let found = read(OpenOptions {
            drafter: c"lookup".as_ptr(),
            store: c"a".as_ptr(),
            draft_model: c"b".as_ptr(),
            isa: c"portable".as_ptr(),
            activations: c"int8".as_ptr(),
            threads: 3,
            context: 64,
            memory_limit: 1 << 30,
            cache: c"q8".as_ptr(),
            resident: 1 << 20,
            packed_folder: c"kept".as_ptr(),
            ..given()
        });
        let (found, kept) = found.unwrap();
        assert_eq!((found.resident, kept.unwrap().folder), (Some(1 << 20), "kept".into()));
        assert_eq!(found.drafter, DrafterChoice::Forced("lookup".to_owned()));
        assert_eq!((found.tier, found.activations), (Some(Tier::Portable), Some(Activations::Int8)));
        assert_eq!(found.cache, KvFormat::Q8);
        assert_eq!((found.threads, found.context), (Some(3), Some(64)));
        assert_eq!(found.memory_limit, Some(1 << 30));
        assert_eq!((found.store, found.draft_model), (Some("a".into()), Some("b".into())));
        let (none, _) =
            read(OpenOptions { drafter: c"none".as_ptr(), device: c"cuda".as_ptr(), ..given() }).unwrap();
        assert_eq!((none.drafter, none.tier), (DrafterChoice::Plain, Some(Tier::Cuda)));
    }

    #[test]
    fn what_means_nothing_is_refused_with_what_was_expected() {
        let name = |name: &'static CStr| name.as_ptr();
        for (bad, expected) in [
            (OpenOptions { model: ptr::null(), ..given() }, "model is NULL"),
            (OpenOptions { device: name(c"tpu"), ..given() }, "cpu or cuda"),
            (OpenOptions { isa: name(c"reference"), ..given() }, "portable, neon"),
            (OpenOptions { isa: name(c"sse2"), ..given() }, "`sse2`"),
            (OpenOptions { isa: name(c"avx2"), device: name(c"cuda"), ..given() }, "leave it NULL"),
            (OpenOptions { activations: name(c"int4"), ..given() }, "native or int8"),
            (OpenOptions { cache: name(c"q4"), ..given() }, "f16 or q8"),
            (OpenOptions { reserved: 1, ..given() }, "expected 0"),
            (OpenOptions { size: 3, ..given() }, "sizeof(ygg_options)"),
        ] {
            let failure = read(bad).unwrap_err();
            assert_eq!(failure.status, Status::Usage, "{expected}");
            assert!(failure.text.contains(expected), "{}", failure.text);
        }
        let failure = read(OpenOptions { plan: name(c"/nowhere/a.plan"), ..given() }).unwrap_err();
        assert_eq!(failure.status, Status::Input);
        assert!(failure.text.contains("/nowhere/a.plan"), "{}", failure.text);
    }
}
