//! Lowers the steps of a program to kernel launches with all parameters and addresses.

use std::ffi::c_void;

use ygg_kernels::{
    ConvLayer, KvFormat, Nonlinearity, RopePairing, WeightFormat,
    cuda::{abi::*, packing::Layout},
};

use crate::ir::{self, ConvSpec, Op, Program, Region, RopeId, Step, WeightId};

use super::{
    super::BackendError,
    cache::keys_and_values,
    candidates::Decider,
    device::{Device, Launch},
    layout::{InputWords, kernel_rows, number},
    products::{WideProduct, is_wide},
    projection::Projection,
    scratch::{Scratch, TILE_W, row_tiles},
    states::{States, has_states},
    weights::{Packed, Weights},
};

/// Addresses of what the steps of one program touch.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    pub(super) arena: u64,
    pub(super) inputs: u64,
    pub(super) words: InputWords,
    pub(super) cache: u64,
    /// What convolutions keep.
    pub(super) kept: u64,
    pub(super) states: States,
    pub(super) slots: usize,
    pub(super) context: usize,
    /// Of every rope: cosines, then sines.
    pub(super) ropes: &'a [u64],
    pub(super) scratch: Scratch,
}

pub(super) const fn float(at: u64) -> *const f32 {
    at as *const f32
}

pub(super) const fn float_mut(at: u64) -> *mut f32 {
    at as *mut f32
}

/// Operands and variants of a product, without its rows.
struct Product {
    norm: Option<ir::Norm>,
    weights: Packed,
    /// Of a gated pair.
    up: Option<Packed>,
    bias: u64,
    /// Of a gated pair.
    function: Nonlinearity,
    residual: bool,
    projection: Option<Projection>,
}

impl Product {
    /// A product without a second matrix, bias or residual.
    fn plain(norm: Option<ir::Norm>, weights: Packed) -> Self {
        let function = Nonlinearity::Silu;
        Self { norm, weights, up: None, bias: 0, function, residual: false, projection: None }
    }
}

/// Sentinel: the step prepares no input for a following product.
const NO_FRAGMENTS: YggFragments =
    YggFragments { data: std::ptr::null_mut(), format: YGG_FRAGMENT_BF16, row_tiles: 0 };

fn fragment_format(layout: Layout) -> u32 {
    match layout {
        Layout::F32 => YGG_FRAGMENT_F32,
        Layout::F16 => YGG_FRAGMENT_F16,
        Layout::Bf16
        | Layout::Centred
        | Layout::Nibbles
        | Layout::NibblesWide
        | Layout::FivesWide
        | Layout::Twos
        | Layout::Floats
        | Layout::Steps
        | Layout::Bytes
        | Layout::BytesWide => YGG_FRAGMENT_BF16,
    }
}

/// Makes the launches of one program's steps, in order.
pub(super) struct Launches<'a> {
    pub(super) device: &'a Device,
    pub(super) weights: &'a Weights,
    pub(super) kv_format: KvFormat,
    pub(super) program: &'a Program,
    /// What candidates are ranked by.
    pub(super) decider: Decider,
    pub(super) at: &'a Addresses<'a>,
    /// Which buffer of fragments the next product reads, and what is in it already, if its producer wrote it.
    pub(super) turn: usize,
    written: Option<Region>,
    /// Routes whose pieces are in the scratch.
    pub(super) grouped: Option<Region>,
}

impl<'a> Launches<'a> {
    pub(super) fn new(
        device: &'a Device,
        weights: &'a Weights,
        kv_format: KvFormat,
        (program, decider): (&'a Program, Decider),
        at: &'a Addresses<'a>,
    ) -> Self {
        Self { device, weights, kv_format, program, decider, at, turn: 0, written: None, grouped: None }
    }

    /// Those of all steps, by step; the first begins when all before it has ended.
    pub(super) fn all(mut self) -> Result<Vec<Vec<Launch>>, BackendError> {
        let program = self.program;
        // Of no group, so that it is there for layers that are not left out.
        let order = has_states(program).then(|| self.state_order()).transpose()?;
        let all = (0..program.steps.len()).map(|number| self.of(number));
        let mut all = all.collect::<Result<Vec<Vec<Launch>>, _>>()?;
        // What comes before a forward is a copy, or the growth of a tree.
        if let Some(first) = all.first_mut() {
            *first = first.drain(..).map(Launch::alone).collect();
            first.extend(order);
        }
        Ok(all)
    }

    /// Those of a step. If the next step is a product, this one also writes its result as that product reads it.
    #[expect(clippy::too_many_lines, reason = "one exhaustive match over the ops")]
    fn of(&mut self, place: usize) -> Result<Vec<Launch>, BackendError> {
        let program = self.program;
        let step = &program.steps[place];
        let projection_at = |before: usize| Projection::of(program, place.checked_sub(before)?);
        let written = self.written.take();
        let next = self.next_fragments(step, program.steps.get(place + 1));
        if next.is_some() {
            self.written = step.result.region();
        }
        let fragments = next.unwrap_or(NO_FRAGMENTS);
        let operand =
            |i: usize| self.rows(&step.operands[i].region().expect("the program's operand has bytes"));
        let out = || self.rows(&step.result.region().expect("the step has a result"));
        let in_step = self.step(step);
        match &step.op {
            Op::Input(_) | Op::Slice { .. } => unreachable!("inputs and views are no steps"),
            Op::Embed { weight } => self.embed(in_step, *weight, out()),
            Op::RmsNorm(norm) => {
                let gain = float(self.weights.vector(norm.weight));
                let columns = self.program.weights[norm.weight.0 as usize].columns;
                let params = YggNormRows {
                    step: in_step,
                    x: operand(0),
                    gain,
                    eps: norm.eps,
                    columns: number(columns),
                    out: out(),
                };
                let grid = [out().rows as usize, out().columns as usize / columns, 1];
                Ok(vec![self.launch("ygg_rms_norm", grid, YGG_ROW_THREADS, 0, params)?])
            }
            Op::Linear { weights, biases, norm, residual } => {
                let projection = projection_at(0);
                let order = projection.and_then(|p| p.order);
                let bias = self.weights.biases(biases, order);
                let weights = self.weights.stack(weights, order);
                let product =
                    Product { bias, residual: *residual, projection, ..Product::plain(*norm, weights) };
                self.product(in_step, step, written, &product, out(), fragments)
            }
            Op::GatedLinear { function, gate, up, norm } => {
                let [weights, up] = [gate, up].map(|id| self.weights.stack(&[*id], None));
                let function = *function;
                let product = Product { up: Some(up), function, ..Product::plain(*norm, weights) };
                self.product(in_step, step, written, &product, out(), fragments)
            }
            Op::Route { routing, vector } => {
                let launches = self.route(in_step, operand(0), (routing, *vector), out());
                // Others may have been where these routes are.
                self.grouped = None;
                launches
            }
            Op::RoutedGated { .. } | Op::RoutedLinear { .. } => {
                self.routed(in_step, step, written, fragments)
            }
            Op::Recurrence { layer, vectors, form } => {
                self.recurrence(in_step, step, (*layer, vectors, *form))
            }
            Op::Add => self.elementwise(in_step, [operand(0), operand(1), out()], YGG_ADD),
            Op::Gate(of) => self.elementwise(in_step, [operand(0), operand(1), out()], function(*of)),
            Op::Softcap { cap } => {
                let params = YggScale { step: in_step, x: operand(0), out: out(), factor: *cap };
                self.by_rows("ygg_softcap", out().rows, params)
            }
            Op::Scale { factor } => {
                let params = YggScale { step: in_step, x: operand(0), out: out(), factor: *factor };
                self.by_rows("ygg_scale", out().rows, params)
            }
            Op::Rope(id) => {
                let params = YggRopeRows {
                    step: in_step,
                    x: operand(0),
                    out: out(),
                    positions: self.input(self.at.words.positions),
                    rope: self.rope(Some(*id)),
                    head_dim: number(self.program.ropes[id.0 as usize].head_dim),
                };
                self.by_rows("ygg_rope", out().rows, params)
            }
            Op::GivenRows { columns } => {
                let data = self.input(self.at.words.given).cast_mut().cast();
                let given =
                    YggRows { data, rows: out().rows, columns: number(*columns), stride: number(*columns) };
                // Times one is the same bits.
                let params = YggScale { step: in_step, x: given, out: out(), factor: 1.0 };
                self.by_rows("ygg_scale", out().rows, params)
            }
            Op::SelectRows => {
                let indices = self.input(self.at.words.output_rows);
                let params = YggSelectRows { step: in_step, x: operand(0), indices, out: out() };
                self.by_rows("ygg_select_rows", out().rows, params)
            }
            // The product before has stored them.
            Op::AppendKv { .. } if projection_at(1).is_some() => Ok(Vec::new()),
            Op::AppendKv { layer, rope } => {
                self.append(in_step, [operand(0), operand(1)], self.rope(*rope), *layer)
            }
            Op::Attention { layer, heads, scoring, rope, sinks } => {
                let rope = self.rope(rope.filter(|_| projection_at(2).is_none()));
                let sinks = sinks.map_or(std::ptr::null(), |sinks| float(self.weights.vector(sinks)));
                let of = (*layer, *heads, *scoring, sinks);
                self.attention(in_step, operand(0), of, rope, out(), fragments)
            }
            Op::ShortConv { layer, taps } => self.short_conv(in_step, operand(0), (*layer, *taps), out()),
            Op::Candidates { head: None, most, tokens } => {
                self.candidates(in_step, operand(0), *most, tokens.as_ref(), out())
            }
            Op::Candidates { head: Some(ir::Head { weights, norm }), most, tokens } => {
                let weights = self.weights.stack(weights, None);
                let logits = self.logits_of(operand(0).rows, weights.outputs);
                let product = Product::plain(*norm, weights);
                let mut launches = self.product(in_step, step, written, &product, logits, NO_FRAGMENTS)?;
                launches.extend(self.candidates(in_step, logits, *most, tokens.as_ref(), out())?);
                Ok(launches)
            }
        }
    }

    fn embed(&self, step: YggStep, weight: WeightId, out: YggRows) -> Result<Vec<Launch>, BackendError> {
        let spec = &self.program.weights[weight.0 as usize];
        let format = Layout::of_rows(spec.format);
        let row_bytes = format.row_bytes(spec.columns).expect("the model's loader has checked sizes");
        let params = YggEmbed {
            step,
            tokens: self.input(self.at.words.tokens),
            matrix: self.weights.rows(weight) as *const u8,
            row_bytes: row_bytes as u64,
            format: embedding_format(format),
            out,
        };
        self.by_rows("ygg_embed", out.rows, params)
    }

    fn append(
        &self,
        step: YggStep,
        [keys, values]: [YggRows; 2],
        rope: YggRope,
        layer: usize,
    ) -> Result<Vec<Launch>, BackendError> {
        let params = YggAppend {
            step,
            keys,
            values,
            positions: self.input(self.at.words.positions),
            slots: self.input(self.at.words.slots),
            rope,
            kv: self.kv(layer),
        };
        let [kv_heads, head_dim] = self.program.kv.heads(layer);
        let grid = [kv_heads, keys.rows as usize, 1];
        let threads = number(head_dim.next_multiple_of(32)).min(YGG_ROW_THREADS);
        Ok(vec![self.launch(&format!("ygg_append_{}", self.kv_format.name()), grid, threads, 0, params)?])
    }

    fn short_conv(
        &self,
        step: YggStep,
        x: YggRows,
        (layer, taps): (usize, WeightId),
        out: YggRows,
    ) -> Result<Vec<Launch>, BackendError> {
        let ConvSpec { channels, .. } = self.program.kv.conv;
        let params = YggShortConv {
            step,
            x,
            taps: float(self.weights.vector(taps)),
            slots: self.input(self.at.words.slots),
            prefix: self.input(self.at.words.prefix),
            tail_len: self.input(self.at.words.tail_len),
            tails: self.input(self.at.words.tails),
            tail_capacity: number(self.at.words.tail_capacity),
            tap_count: number(self.program.weights[taps.0 as usize].columns / channels),
            kept: float_mut(self.at.kept + (layer * ConvLayer::bytes(self.at.slots, channels)) as u64),
            out,
        };
        let blocks = channels.div_ceil(YGG_ROW_THREADS as usize);
        Ok(vec![self.launch("ygg_short_conv", [blocks, 1, 1], YGG_ROW_THREADS, 0, params)?])
    }

    /// The address of a word of the inputs.
    pub(super) fn input(&self, word: usize) -> *const u32 {
        (self.at.inputs + (word * size_of::<u32>()) as u64) as *const u32
    }

    fn step(&self, step: &Step) -> YggStep {
        let skipped = self.input(self.at.words.skipped);
        YggStep { skipped, group: step.group.map_or(YGG_NO_GROUP, |group| group.0) }
    }

    pub(super) fn rows(&self, region: &Region) -> YggRows {
        kernel_rows(self.at.arena, region)
    }

    fn rope(&self, id: Option<RopeId>) -> YggRope {
        let Some(id) = id else {
            return YggRope { cosines: std::ptr::null(), sines: std::ptr::null(), rotated: 0, adjacent: 0 };
        };
        let spec = &self.program.ropes[id.0 as usize];
        let pairs = spec.inv_freq.len();
        let cosines = self.at.ropes[id.0 as usize];
        YggRope {
            cosines: float(cosines),
            sines: float(cosines + (self.at.context * pairs * size_of::<f32>()) as u64),
            rotated: number(2 * pairs),
            adjacent: u32::from(spec.pairing == RopePairing::Adjacent),
        }
    }

    pub(super) fn kv(&self, layer: usize) -> YggKv {
        let kv = &self.program.kv;
        let [kv_heads, head_dim] = kv.heads(layer);
        let [keys, to_values] = keys_and_values(kv, layer, self.at.slots, self.kv_format);
        let keys = self.at.cache + keys as u64;
        YggKv {
            keys: keys as *mut c_void,
            values: (keys + to_values as u64) as *mut c_void,
            heads: number(kv_heads),
            slots: number(self.at.slots),
            head_dim: number(head_dim),
        }
    }

    pub(super) fn projection(&self, projection: Option<Projection>) -> YggProjection {
        let halves = u32::from(self.kv_format == KvFormat::F16);
        match projection {
            Some(Projection { layer, heads, rope, order: _ }) => YggProjection {
                positions: self.input(self.at.words.positions),
                slots: self.input(self.at.words.slots),
                heads: number(heads),
                halves,
                rope: self.rope(rope),
                kv: self.kv(layer),
            },
            None => YggProjection {
                positions: std::ptr::null(),
                slots: std::ptr::null(),
                heads: 0,
                halves,
                rope: self.rope(None),
                kv: self.kv(0),
            },
        }
    }

    /// Fragments that a step leaves for the product that follows, if that reads the result as it is.
    fn next_fragments(&mut self, step: &Step, next: Option<&Step>) -> Option<YggFragments> {
        let layout = |weight: WeightId| Layout::of(self.program.weights[weight.0 as usize].format);
        // Of what the step multiplies by itself, if that is what it does.
        let own = match &step.op {
            Op::Attention { .. } => None,
            Op::Linear { weights, .. } => Some(layout(weights[0])),
            Op::GatedLinear { gate, .. } => Some(layout(*gate)),
            Op::RoutedGated { experts, .. } => Some(layout(experts[0])),
            _ => return None,
        };
        let next = next?;
        // Each part of a row is a row of products with experts.
        let (weight, parts) = match (&step.op, &next.op) {
            (Op::RoutedGated { .. }, Op::RoutedLinear { experts, .. }) => {
                (experts[0], next.operands[1].region()?.columns / 2)
            }
            (Op::RoutedGated { .. }, _) => return None,
            (_, Op::Linear { weights, norm: None, .. }) => (weights[0], 1),
            (_, Op::GatedLinear { gate, norm: None, .. }) => (*gate, 1),
            _ => return None,
        };
        let result = step.result.region()?;
        let is_read = next.operands[0].region() == Some(result);
        // Inputs past the last would be whatever was there.
        let is_whole = (result.columns / parts).is_multiple_of(YGG_TILE_K as usize);
        let format = fragment_format(layout(weight));
        let writes = own != Some(Layout::F32) && format != YGG_FRAGMENT_F32;
        if !is_read || !is_whole || !writes || step.group != next.group {
            return None;
        }
        // What the step itself reads is in the other one.
        self.turn = (self.turn + usize::from(own.is_some())) % 2;
        Some(self.fragments(format, result.rows * parts))
    }

    /// The buffer that is written next.
    fn fragments(&self, format: u32, rows: usize) -> YggFragments {
        let data = self.at.scratch.fragments[self.turn] as *mut c_void;
        YggFragments { data, format, row_tiles: number(row_tiles(rows)) }
    }

    fn product(
        &self,
        in_step: YggStep,
        step: &Step,
        written: Option<Region>,
        product: &Product,
        out: YggRows,
        next: YggFragments,
    ) -> Result<Vec<Launch>, BackendError> {
        let Product { norm, weights, up, bias, function, residual, projection } = product;
        let region = step.operands[0].region().expect("a product has a left side");
        let x = self.rows(&region);
        let tiles = row_tiles(region.rows);
        // Where the next product's inputs are written, its own are in the other buffer.
        let turn = if next.data.is_null() { self.turn } else { 1 - self.turn };
        let fragments = self.at.scratch.fragments[turn];
        let linear = YggLinear {
            step: in_step,
            fragments: fragments as *const c_void,
            codes: weights.codes as *const c_void,
            scales: weights.scales as *const c_void,
            up_codes: up.map_or(0, |up| up.codes) as *const c_void,
            up_scales: up.map_or(0, |up| up.scales) as *const c_void,
            out,
            next,
            tiles_k: number(weights.columns.div_ceil(YGG_TILE_K as usize)),
            columns: number(weights.columns),
            residual: u32::from(*residual),
            function: super::launches::function(*function),
            projection: self.projection(*projection),
            bias: float(*bias),
            parts: float_mut(self.at.scratch.parts),
        };
        let mut launches = self.linear(weights, linear, tiles)?;
        if written != Some(region) {
            launches.insert(0, self.prepare(in_step, x, *norm, weights.layout, (fragments, 1))?);
        }
        Ok(launches)
    }

    /// The rows of x, or the `parts` of each, as products by a layout read them, to an address.
    pub(super) fn prepare(
        &self,
        step: YggStep,
        x: YggRows,
        norm: Option<ir::Norm>,
        layout: Layout,
        (to, parts): (u64, usize),
    ) -> Result<Launch, BackendError> {
        let rows = x.rows as usize * parts;
        let tiles = row_tiles(rows);
        let params = YggPrepare {
            step,
            x,
            gain: norm.map_or(std::ptr::null(), |n| float(self.weights.vector(n.weight))),
            eps: norm.map_or(0.0, |n| n.eps),
            out: YggFragments {
                data: to as *mut c_void,
                format: fragment_format(layout),
                row_tiles: number(tiles),
            },
            parts: number(parts),
        };
        let blocks = if layout == Layout::F32 { rows } else { tiles * TILE_W };
        self.launch("ygg_prepare", [blocks, 1, 1], YGG_ROW_THREADS, 0, params)
    }

    /// A product of `row_tiles` tiles of prepared rows.
    fn linear(
        &self,
        weights: &Packed,
        mut params: YggLinear,
        row_tiles: usize,
    ) -> Result<Vec<Launch>, BackendError> {
        if weights.layout == Layout::F32 {
            let blocks = [weights.outputs.div_ceil(YGG_SPLIT_K as usize), 1, 1];
            return Ok(vec![self.launch("ygg_linear_f32", blocks, YGG_LINEAR_THREADS, 0, params)?]);
        }
        let is_gated = !params.up_codes.is_null();
        let kind = if is_gated { "gated" } else { "linear" };
        let name = format!("ygg_{kind}_{}_w{}", weights.layout.name(), row_tiles * TILE_W);
        let tiles = weights.outputs.div_ceil(YGG_TILE_N as usize);
        let wide = WideProduct { tiles, is_gated, row_tiles };
        let is_wide = is_wide(weights.layout, is_gated, row_tiles);
        let is_joined = is_wide && wide.is_joined();
        if !is_joined {
            params.parts = std::ptr::null_mut();
        }
        let (parts, shared) = if is_wide { (wide.stretches(), wide.shared()) } else { (tiles, 0) };
        // A block takes one part of the work after the other, so that it need not wait for weights in between.
        let at_once = self.device.blocks_at_once(&name, YGG_LINEAR_THREADS, shared)?;
        let launch = |name: &str, grid, shared| self.launch(name, grid, YGG_LINEAR_THREADS, shared, params);
        let mut launches = vec![launch(&name, [parts.min(at_once), 1, 1], shared)?];
        if is_joined {
            launches.push(launch(&format!("ygg_{kind}_join"), [wide.blocks(), row_tiles, 1], 0)?);
        }
        Ok(launches)
    }

    fn elementwise(
        &self,
        step: YggStep,
        [a, b, out]: [YggRows; 3],
        function: u32,
    ) -> Result<Vec<Launch>, BackendError> {
        self.by_rows("ygg_elementwise", out.rows, YggElementwise { step, a, b, out, function })
    }

    pub(super) fn by_rows<P: Copy>(
        &self,
        name: &str,
        rows: u32,
        params: P,
    ) -> Result<Vec<Launch>, BackendError> {
        Ok(vec![self.launch(name, [rows as usize, 1, 1], YGG_ROW_THREADS, 0, params)?])
    }

    pub(super) fn launch<P: Copy>(
        &self,
        name: &str,
        grid: [usize; 3],
        threads: u32,
        shared: usize,
        params: P,
    ) -> Result<Launch, BackendError> {
        Launch::new(self.device, name, grid, threads, shared, params)
    }
}

/// The function of a gate, as kernels know it.
pub(super) const fn function(of: Nonlinearity) -> u32 {
    match of {
        Nonlinearity::Silu => YGG_SILU,
        Nonlinearity::GeluTanh => YGG_GELU,
        Nonlinearity::ClampedSilu => YGG_CLAMPED_SILU,
        Nonlinearity::Sigmoid => YGG_SIGMOID,
    }
}

fn embedding_format(format: WeightFormat) -> u32 {
    match format {
        WeightFormat::F32 => YGG_EMBEDDING_F32,
        WeightFormat::F16 => YGG_EMBEDDING_F16,
        WeightFormat::BF16 => YGG_EMBEDDING_BF16,
        WeightFormat::Q8_0 => YGG_EMBEDDING_Q8_0,
        WeightFormat::Q5_0 => YGG_EMBEDDING_Q5_0,
        WeightFormat::Q4_0 => YGG_EMBEDDING_Q4_0,
        WeightFormat::Q4_1 => YGG_EMBEDDING_Q4_1,
        WeightFormat::Q4_K => YGG_EMBEDDING_Q4_K,
        WeightFormat::Q5_K => YGG_EMBEDDING_Q5_K,
        WeightFormat::Q6_K => YGG_EMBEDDING_Q6_K,
        other => unreachable!("rows of {other} are uploaded as f32"),
    }
}
