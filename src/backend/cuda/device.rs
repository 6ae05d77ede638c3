//! A GPU: its context, its kernels, its memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString, c_void},
    fmt,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::{
    driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream, DriverError, result, sys},
    nvrtc::{Ptx, sys as nvrtc},
};
use ygg_kernels::cuda;

use crate::backend::BackendError;

use super::{Way, compiled::Recipe};

/// Kernels made by `build.rs` for known architectures; empty where it found no nvcc.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// The first version of the driver's interface whose graphs are what captures need.
const OLDEST_DRIVER: i32 = 12_000;
/// The version of CUDA whose compiler made what is embedded: an older driver does not load it.
const EMBEDDED_VERSION: i32 = 13_000;
/// The first compute capability with the instructions that the kernels use: bf16 products.
const OLDEST_ARCH: i32 = 80;
/// The first version of the driver's interface whose captures keep that a kernel may begin while the one before it
/// runs.
const OVERLAPPING_DRIVER: i32 = 12_030;
/// The first architecture whose code can wait for the kernels before.
const OVERLAPPING_ARCH: i32 = 90;
/// Shared memory that a kernel may ask for without saying so first.
const PLAIN_SHARED: u32 = 48 << 10;

/// Whether kernels of this process may overlap where they can.
static MAY_OVERLAP: AtomicBool = AtomicBool::new(true);

/// From now on no opened model begins a kernel on a GPU while the one before it still runs: for drivers that do this
/// wrong.
pub fn keep_kernels_apart() {
    MAY_OVERLAP.store(false, Ordering::Relaxed);
}

/// What the driver refused.
pub(super) fn check<T>(what: &'static str, result: Result<T, DriverError>) -> Result<T, BackendError> {
    result.map_err(|error| BackendError::Cuda { what, reason: describe(error) })
}

/// Whether a stream still has work to do. A failure is found where that is waited for.
pub(super) fn is_busy(stream: &CudaStream) -> bool {
    // SAFETY: a stream that is borrowed exists.
    let found = unsafe { sys::cuStreamQuery(stream.cu_stream()) };
    found == sys::CUresult::CUDA_ERROR_NOT_READY
}

fn describe(error: DriverError) -> String {
    let text = |text: Result<&CStr, DriverError>| text.map(|t| t.to_string_lossy().into_owned());
    match (text(error.error_name()), text(error.error_string())) {
        (Ok(name), Ok(words)) => format!("{name}, {words}"),
        _ => format!("error {:?}", error.0),
    }
}

fn refused(reason: String) -> BackendError {
    BackendError::NoCuda { reason }
}

/// One GPU with the kernels loaded.
pub(super) struct Device {
    context: Arc<CudaContext>,
    module: Arc<CudaModule>,
    /// Those that were asked for, with the most shared memory that they were asked for with; their handles are good as
    /// long as the device.
    functions: Mutex<BTreeMap<String, (CudaFunction, u32)>>,
    /// Handles of those that have run.
    warm: Mutex<BTreeSet<usize>>,
    name: String,
    processors: u32,
    /// Whether a kernel may begin while the one before it still runs, in what is put on a stream from now on.
    overlaps: Arc<AtomicBool>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

impl Device {
    /// Opens the first GPU, with kernels for these layouts of weights. Those of a forward overlap where GPU, driver and
    /// code can and `way` is not to launch them one by one.
    ///
    /// # Errors
    /// [`BackendError::NoCuda`] that says what is missing: driver, device, architecture, compiler.
    pub(super) fn open(layouts: u32, way: Way) -> Result<Arc<Self>, BackendError> {
        let driver = driver()?;
        let context = check("open the device", CudaContext::new(0))?;
        // One arena, one stream: we order the work ourselves, and events of others cannot be waited for inside a
        // capture.
        // SAFETY: nothing has been allocated through the context yet.
        unsafe { context.disable_event_tracking() };
        let name = check("name the device", context.name())?;
        let (major, minor) = check("ask for the architecture", context.compute_capability())?;
        let arch = 10 * major + minor;
        if arch < OLDEST_ARCH {
            return Err(refused(format!(
                "{name} is of compute capability {major}.{minor}: expected at least {}.{}, which has bf16 products; \
                 use the processor",
                OLDEST_ARCH / 10,
                OLDEST_ARCH % 10
            )));
        }
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let processors = check("count multiprocessors", context.attribute(attribute))?.unsigned_abs().max(1);
        let image = if EMBEDDED.is_empty() || driver < EMBEDDED_VERSION {
            Ptx::from_binary(compile(arch, layouts)?)
        } else {
            Ptx::from_binary(EMBEDDED.to_vec())
        };
        let module = check("load the kernels", context.load_module(image))?;
        // Code that was compiled for older ones, and by the driver for this one, would not wait.
        let code = check("find a kernel", module.load_function("ygg_nothing"))?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        let code_arch = check("ask for the kernels' architecture", code.get_attribute(attribute))?;
        let overlaps = way == Way::Graph
            && driver >= OVERLAPPING_DRIVER
            && code_arch >= OVERLAPPING_ARCH
            && MAY_OVERLAP.load(Ordering::Relaxed);
        Ok(Arc::new(Self {
            context,
            module,
            functions: Mutex::default(),
            warm: Mutex::default(),
            name,
            processors,
            overlaps: Arc::new(AtomicBool::new(overlaps)),
        }))
    }

    /// Multiprocessors.
    pub(super) fn processors(&self) -> u32 {
        self.processors
    }

    /// Whether kernels overlap.
    pub(super) fn overlaps(&self) -> bool {
        self.overlaps.load(Ordering::Relaxed)
    }

    /// Makes kernels overlap no more; whether they did.
    pub(super) fn end_overlap(&self) -> bool {
        self.overlaps.swap(false, Ordering::Relaxed)
    }

    /// Makes the device's context current on this thread.
    pub(super) fn bind(&self) -> Result<(), BackendError> {
        check("bind the context", self.context.bind_to_thread())
    }

    /// A stream of its own: the default one cannot be captured.
    pub(super) fn stream(&self) -> Result<Arc<CudaStream>, BackendError> {
        check("make a stream", self.context.new_stream())
    }

    /// Something for one stream to wait for on another.
    pub(super) fn event(&self) -> Result<CudaEvent, BackendError> {
        check("make an event", self.context.new_event(None))
    }

    /// The kernel of that name, allowed as much shared memory as it will be launched with.
    pub(super) fn function(&self, name: &str, shared: u32) -> Result<sys::CUfunction, BackendError> {
        let mut functions = self.functions.lock().expect("no user of the functions panics");
        if !functions.contains_key(name) {
            let function = check("find a kernel", self.module.load_function(name))?;
            functions.insert(name.to_owned(), (function, PLAIN_SHARED));
        }
        let (function, most) = functions.get_mut(name).expect("just inserted");
        // The most of all launches: one that was made before must still be allowed.
        if shared > *most {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared).expect("shared memory is small");
            check("reserve shared memory", function.set_attribute(attribute, bytes))?;
            *most = shared;
        }
        // Good as long as the module lives, which this device holds.
        Ok(function.cu_function())
    }

    /// Blocks of a kernel that the device runs at a time, with so many threads and bytes of shared memory each.
    pub(super) fn blocks_at_once(
        &self,
        name: &str,
        threads: u32,
        shared: usize,
    ) -> Result<usize, BackendError> {
        let function = self.function(name, u32::try_from(shared).expect("shared memory is small"))?;
        let threads = i32::try_from(threads).expect("blocks are small");
        let mut of_processor = 0;
        // SAFETY: a function of the loaded module, and a place for the answer.
        let told = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut of_processor, function, threads, shared)
        };
        check("count the blocks of a multiprocessor", told.result())?;
        Ok(self.processors as usize * of_processor.unsigned_abs().max(1) as usize)
    }

    /// Whether one of the kernels has never run: drivers load code when it first does, which a capture cannot wait for.
    /// They count as run from now on.
    pub(super) fn is_cold<'l>(&self, launches: impl IntoIterator<Item = &'l Launch>) -> bool {
        let mut warm = self.warm.lock().expect("no user of the functions panics");
        let is_new = |launch: &Launch| warm.insert(launch.function.addr());
        launches.into_iter().map(is_new).fold(false, |any, is_new| any | is_new)
    }

    /// Bytes that are free, and all.
    pub(super) fn memory(&self) -> Result<(usize, usize), BackendError> {
        self.bind()?;
        check("ask for free memory", result::mem_get_info())
    }
}

/// Starts the driver; its version.
fn driver() -> Result<i32, BackendError> {
    // SAFETY: loads a system library, as every use of CUDA does.
    if !unsafe { sys::is_culib_present() } {
        return Err(refused(
            "no NVIDIA driver was found (libcuda.so.1, on Windows nvcuda.dll): expected one for this machine's GPU. \
             Install the driver, put the folder of libcuda.so.1 into LD_LIBRARY_PATH, or use the processor"
                .to_owned(),
        ));
    }
    result::init().map_err(|e| {
        refused(format!(
            "the NVIDIA driver does not start: {}; check nvidia-smi, or use the processor",
            describe(e)
        ))
    })?;
    if check("count devices", result::device::get_count())? == 0 {
        return Err(refused(
            "the NVIDIA driver sees no GPU: expected one. Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the \
             processor"
                .to_owned(),
        ));
    }
    let version = driver_version()?;
    if version < OLDEST_DRIVER {
        return Err(refused(format!(
            "the NVIDIA driver is too old: it offers CUDA {}, expected at least {}; install a newer driver, or use \
             the processor",
            version_text(version),
            version_text(OLDEST_DRIVER)
        )));
    }
    Ok(version)
}

/// Name of the first GPU, and the version of CUDA that the driver offers.
pub(super) fn probe() -> Result<(String, String), BackendError> {
    let version = driver()?;
    let device = check("find the device", result::device::get(0))?;
    Ok((check("name the device", result::device::get_name(device))?, version_text(version)))
}

/// Version of the driver's interface, as `1000 major + 10 minor`.
fn driver_version() -> Result<i32, BackendError> {
    let mut version = 0;
    // SAFETY: writes one integer.
    check("ask for the driver's version", unsafe { sys::cuDriverGetVersion(&mut version) }.result())?;
    Ok(version)
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The kernels for one architecture as the compiler that comes as a library makes them, or made them before.
fn compile(arch: i32, layouts: u32) -> Result<Vec<u8>, BackendError> {
    // SAFETY: loads a system library, as every use of NVRTC does.
    if !unsafe { nvrtc::is_culib_present() } {
        return Err(refused(
            "this yggc was built without compiled CUDA kernels, and no NVRTC was found to compile them now \
             (libnvrtc.so): build with CUDA_HOME pointing at a CUDA 13 toolkit, or put the folder of libnvrtc.so into \
             LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    let failed = |what: &'static str| move |e| BackendError::Cuda { what, reason: format!("{e:?}") };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) }
        .result()
        .map_err(failed("ask for the compiler's version"))?;
    let options = [
        format!("--gpu-architecture=sm_{arch}"),
        "-std=c++17".to_owned(),
        "-default-device".to_owned(),
        format!("-DYGG_LAYOUTS={layouts}"),
    ];
    let sources: Vec<_> = std::iter::once(cuda::SOURCE).chain(cuda::HEADERS).collect();
    let recipe = Recipe { compiler: (major, minor), options: &options, sources: &sources };
    recipe.kept_or(|| compile_now(&options))
}

fn compile_now(options: &[String]) -> Result<Vec<u8>, BackendError> {
    let text = |text: &str| CString::new(text).expect("sources have no zero byte");
    let (name, source) = (text(cuda::SOURCE.0), text(cuda::SOURCE.1));
    let names = cuda::HEADERS.map(|(name, _)| text(name));
    let headers = cuda::HEADERS.map(|(_, source)| text(source));
    let [names, headers] = [&names, &headers].map(|all| all.each_ref().map(|s| s.as_ptr()));
    let options: Vec<_> = options.iter().map(|option| text(option)).collect();
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let failed = |what: &'static str| move |e| BackendError::Cuda { what, reason: format!("{e:?}") };
    let mut program = std::ptr::null_mut();
    let count = i32::try_from(headers.len()).expect("few headers");
    // SAFETY: all strings live until the call returns; the program is destroyed below.
    unsafe {
        nvrtc::nvrtcCreateProgram(
            &mut program,
            source.as_ptr(),
            name.as_ptr(),
            count,
            headers.as_ptr(),
            names.as_ptr(),
        )
    }
    .result()
    .map_err(failed("prepare the kernels for compilation"))?;
    let count = i32::try_from(options.len()).expect("few options");
    // SAFETY: as above.
    let compiled = unsafe { nvrtc::nvrtcCompileProgram(program, count, options.as_ptr()) }.result();
    let image = match compiled {
        Ok(()) => {
            let mut bytes = 0;
            // SAFETY: the buffer is as large as the compiler says.
            unsafe { nvrtc::nvrtcGetCUBINSize(program, &mut bytes) }
                .result()
                .map_err(failed("size the kernels"))?;
            let mut image = vec![0_u8; bytes];
            // SAFETY: as above.
            unsafe { nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) }
                .result()
                .map_err(failed("get the kernels"))?;
            Ok(image)
        }
        Err(_) => Err(BackendError::Cuda { what: "compile the kernels", reason: compiler_log(program) }),
    };
    // SAFETY: made above and used no more.
    unsafe { nvrtc::nvrtcDestroyProgram(&mut program) }.result().map_err(failed("close the compiler"))?;
    image
}

fn compiler_log(program: nvrtc::nvrtcProgram) -> String {
    let mut bytes = 0;
    // SAFETY: the program lives; the buffer is as large as the compiler says.
    let mut log = match unsafe { nvrtc::nvrtcGetProgramLogSize(program, &mut bytes) }.result() {
        Ok(()) => vec![0_u8; bytes],
        Err(error) => return format!("without a word ({error:?})"),
    };
    // SAFETY: as above.
    let fetched = unsafe { nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()) }.result();
    fetched.map_or_else(
        |error| format!("without a word ({error:?})"),
        |()| String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned(),
    )
}

/// Device memory, freed when dropped.
#[derive(Debug)]
pub(super) struct DeviceBlock {
    device: Arc<Device>,
    start: u64,
    bytes: usize,
}

impl DeviceBlock {
    /// # Errors
    /// [`BackendError::DeviceMemory`] with what is free.
    pub(super) fn new(device: &Arc<Device>, bytes: usize, what: &'static str) -> Result<Self, BackendError> {
        device.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: the owner of the block writes or zeroes it before anything is read.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(start) => Ok(Self { device: Arc::clone(device), start, bytes }),
            Err(_) => {
                let (free, total) = device.memory()?;
                Err(BackendError::DeviceMemory { what, bytes, free, total, device: device.name.clone() })
            }
        }
    }

    /// Address of a part.
    ///
    /// # Panics
    /// If the part leaves the block.
    pub(super) fn at(&self, offset: usize, bytes: usize) -> u64 {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "a part of {bytes} bytes at {offset} of {}",
            self.bytes
        );
        self.start + offset as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: allocated in `new`. A device that fails now has nothing left to lose.
            let _lost = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Host memory that the device reads and writes by itself, as words; freed when dropped.
#[derive(Debug)]
pub(super) struct PinnedBlock {
    device: Arc<Device>,
    start: NonNull<u32>,
    words: usize,
}

// SAFETY: plain memory, owned by one block.
unsafe impl Send for PinnedBlock {}
// SAFETY: as above; it is changed through `&mut` only, or by copies that are awaited before it is read.
unsafe impl Sync for PinnedBlock {}

impl PinnedBlock {
    pub(super) fn new(device: &Arc<Device>, words: usize, what: &'static str) -> Result<Self, BackendError> {
        device.bind()?;
        let words = words.max(1);
        let bytes = words * size_of::<u32>();
        // SAFETY: zeroed below before anyone reads it. Flag 0: it is read by the host, too.
        let start = unsafe { result::malloc_host(bytes, 0) }.ok().and_then(|p| NonNull::new(p.cast::<u32>()));
        let start = start.ok_or(BackendError::Memory { what, bytes })?;
        // SAFETY: just allocated, with as many bytes.
        unsafe { start.write_bytes(0, words) };
        Ok(Self { device: Arc::clone(device), start, words })
    }

    pub(super) fn words(&self) -> &[u32] {
        // SAFETY: inside the block, initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above, and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.words) }
    }

    pub(super) fn floats(&self) -> &[f32] {
        // SAFETY: every word is a float.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }

    pub(super) fn floats_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.words) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: every word is four bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.words * size_of::<u32>()) }
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: allocated in `new`. A device that fails now has nothing left to lose.
            let _lost = unsafe { result::free_host(self.start.as_ptr().cast()) };
        }
    }
}

/// A kernel with everything that it is launched with.
pub(super) struct Launch {
    function: sys::CUfunction,
    grid: [u32; 3],
    threads: u32,
    shared: u32,
    /// The device's word on whether it may begin while the kernel before it on the stream still runs; none where it
    /// never may.
    overlaps: Option<Arc<AtomicBool>>,
    /// The structure of parameters, in words that keep its alignment.
    params: Box<[u64]>,
}

// SAFETY: a handle that any thread may launch, and numbers.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Launch({:?} x {}, {} bytes shared)", self.grid, self.threads, self.shared)
    }
}

impl Launch {
    /// Kernel `name` with `params`, which must be the structure that it takes. Where the device can, it begins while
    /// the kernel before it still runs, and waits by itself.
    pub(super) fn new<P: Copy>(
        device: &Device,
        name: &str,
        grid: [usize; 3],
        threads: u32,
        shared: usize,
        params: P,
    ) -> Result<Self, BackendError> {
        const { assert!(align_of::<P>() <= align_of::<u64>()) };
        let shared = u32::try_from(shared).expect("shared memory is small");
        let grid = grid.map(|n| u32::try_from(n).expect("grids are small"));
        let mut words = vec![0_u64; size_of::<P>().div_ceil(size_of::<u64>())].into_boxed_slice();
        // SAFETY: the words are at least as many bytes, and aligned enough.
        unsafe { words.as_mut_ptr().cast::<P>().write(params) };
        let function = device.function(name, shared)?;
        Ok(Self {
            function,
            grid,
            threads,
            shared,
            overlaps: Some(Arc::clone(&device.overlaps)),
            params: words,
        })
    }

    /// The same, begun when all before it on the stream has ended: for kernels that do not wait, or come after a copy.
    pub(super) fn alone(self) -> Self {
        Self { overlaps: None, ..self }
    }

    /// Changes the parameters of the next launch. Not for kernels in a graph: it has its own copy.
    ///
    /// # Safety
    /// `P` is the structure that it was made with.
    pub(super) unsafe fn params_mut<P: Copy>(&mut self) -> &mut P {
        // SAFETY: written by `new` as a `P`.
        unsafe { &mut *self.params.as_mut_ptr().cast::<P>() }
    }

    /// Puts it on a stream. Allocates nothing.
    pub(super) fn on(&self, stream: &CudaStream) -> Result<(), BackendError> {
        let mut params = [self.params.as_ptr().cast_mut().cast::<c_void>()];
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let [x, y, z] = self.grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream.cu_stream(),
            attrs: &mut overlap,
            numAttrs: u32::from(
                self.overlaps.as_ref().is_some_and(|overlaps| overlaps.load(Ordering::Relaxed)),
            ),
        };
        // SAFETY: the parameters are the kernel's own structure, whose addresses are in blocks that outlive the launch.
        let launched = unsafe {
            sys::cuLaunchKernelEx(&config, self.function, params.as_mut_ptr(), std::ptr::null_mut())
        };
        check("launch a kernel", launched.result())
    }
}
