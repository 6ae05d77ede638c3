//! The ops of a graph: what each takes and what it gives.

use ygg_kernels::{
    Nonlinearity, RouteVector, Routing, Scoring, ShortConv, StateForm, StateRule,
    candidates::candidate_columns,
};

use super::{ConvSpec, Dtype, Graph, HeadTokens, RopeId, Rows, StateSpec, ValueType, WeightId};

/// What the host supplies for every row of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// Token id of each row: `u32[W]`.
    Tokens,
    /// Position id of each row (prefix length + depth): `u32[W]`.
    Positions,
    /// Key/value slot each row writes: `u32[W]`.
    Slots,
    /// What each row attends to: its committed prefix length and the slots of its ancestors: `u32[W]`.
    Tails,
    /// Which rows get logits: `u32[R]`.
    OutputRows,
}

impl Input {
    /// The input's name in dumps.
    pub fn name(self) -> &'static str {
        match self {
            Input::Tokens => "tokens",
            Input::Positions => "positions",
            Input::Slots => "slots",
            Input::Tails => "tails",
            Input::OutputRows => "output_rows",
        }
    }
}

/// A fused RMS normalisation in front of a linear op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Gain `[D]`.
    pub weight: WeightId,
    /// Added to the mean square.
    pub eps: f32,
}

/// The product that makes logits, fused in front of the choice among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Matrices `[Nᵢ, K]`, concatenated by rows: `V = Σ Nᵢ`.
    pub weights: Vec<WeightId>,
    /// Normalisation fused in front.
    pub norm: Option<Norm>,
}

/// One operation. Operands are listed in order; `x -> y` gives types.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A row input; no operands.
    Input(Input),
    /// `() -> [W, columns]`: float rows that the host gives with every forward.
    GivenRows {
        /// Elements of a row.
        columns: usize,
    },
    /// `(tokens) -> [W, D]`: rows of the embedding matrix `[V, D]`.
    Embed {
        /// Embedding matrix `[V, D]`.
        weight: WeightId,
    },
    /// `(x [W, n * D]) -> [W, n * D]`: `x / sqrt(mean(x^2) + eps) * weight` of each group of `D` elements, as many as
    /// the gain has: of whole rows, or of every head by itself.
    RmsNorm(Norm),
    /// `(x [W, K] [, residual [W, N]]) -> [W, N]`: `norm(x) · concat(weights)ᵀ (+ concat(biases)) (+ residual)`.
    /// With a residual the result replaces it in place; then there are no biases.
    Linear {
        /// Matrices `[Nᵢ, K]`, concatenated by rows: `N = Σ Nᵢ`.
        weights: Vec<WeightId>,
        /// Vectors `[Nᵢ]`, one for each matrix; or none.
        biases: Vec<WeightId>,
        /// Normalisation fused in front.
        norm: Option<Norm>,
        /// Whether a second operand is added to the result.
        residual: bool,
    },
    /// `(x [W, K]) -> [W, F]`: `function(norm(x) · gateᵀ) * (norm(x) · upᵀ)`.
    GatedLinear {
        /// Function of the gate.
        function: Nonlinearity,
        /// Matrix `[F, K]` under the function.
        gate: WeightId,
        /// Matrix `[F, K]` whose products are multiplied by the gate's.
        up: WeightId,
        /// Normalisation fused in front.
        norm: Option<Norm>,
    },
    /// `(gate [W, F], up [W, F]) -> [W, F]`: `function(gate) * up`.
    Gate(Nonlinearity),
    /// `(x [W, heads * E], positions) -> [W, heads * E]`: rotary embedding of every head.
    Rope(RopeId),
    /// `(k [W, G * E], v [W, G * E], slots, positions) -> effect`: writes one slot per row.
    AppendKv {
        /// Cache layer.
        layer: usize,
        /// Rotation of `k` fused in front.
        rope: Option<RopeId>,
    },
    /// `(q [W, H * E], effect, tails, positions) -> [W, H * E]`: attention of each row to its committed prefix and
    /// its ancestors; head `h` reads key/value head `h * G / H`. The effect is that of the layer's append, which may be
    /// in another group: several ops may read the keys and values of one layer.
    Attention {
        /// Cache layer.
        layer: usize,
        /// Query heads.
        heads: usize,
        /// What scores are made of, and which positions have one.
        scoring: Scoring,
        /// Rotation of `q` fused in front.
        rope: Option<RopeId>,
        /// Vector `[H]`: of each head a score without a value, which takes its share of the weights.
        sinks: Option<WeightId>,
    },
    /// `(x [W, 3 C], slots, tails) -> [W, C]`: with `x = (b, c, v)`, writes `b * v` to one slot per row, and gives `c`
    /// times the sum of what each row and those before it in its sequence wrote, each times its tap.
    /// [`ygg_kernels::ShortConv`] says it in full.
    ShortConv {
        /// Layer of what convolutions keep.
        layer: usize,
        /// Vector `[C * T]`: the taps of channel after channel, that of the row itself last.
        taps: WeightId,
    },
    /// `(x [W, C], steps [W, H], rates [W, H], slots, tails) -> [W, H B]`, of a scan without rates: writes what goes in
    /// to one slot per row, and lets the states of all heads follow each row from the state of the row before it in its
    /// sequence, by the rule of the graph's [`StateSpec`]. [`ygg_kernels::Recurrence`] says it in full.
    Recurrence {
        /// Layer of what recurrences keep.
        layer: usize,
        /// Vectors: `[C * T]`, the taps of channel after channel, that of the row itself last; `[H]`, the decay of each
        /// head; `[H]`, what is added to what rows say of their steps. Of a scan then `[C]`, what is added to
        /// convolutions, and `[H]`, the factors of values in results.
        vectors: Vec<WeightId>,
        /// How heads and decays lie.
        form: StateForm,
    },
    /// `(scores [W, E]) -> [W, 2 k]`: which experts each row uses, and with what weights, as
    /// [`ygg_kernels::Routes`] says.
    Route {
        /// How they follow from scores.
        routing: Routing,
        /// Vector `[E]` that decides with scores, or scales weights.
        vector: Option<RouteVector<WeightId>>,
    },
    /// `(x [W, K], routes [W, 2 k]) -> [W, k * N]`: of each row and each of its experts
    /// `function(x · gateᵀ + b) * (x · upᵀ + b')`.
    RoutedGated {
        /// Function of the gates.
        function: Nonlinearity,
        /// Matrices `[N, K]`: the gate of each expert, then the up of each.
        experts: Vec<WeightId>,
        /// Vectors `[N]`, one for each matrix; or none.
        biases: Vec<WeightId>,
    },
    /// `(x [W, k * K], routes [W, 2 k]) -> [W, N]`: the sum, in order of experts, of the products of the k parts of a
    /// row with the matrices of its experts, plus their biases, times their weights.
    RoutedLinear {
        /// Matrices `[N, K]`, one for each expert.
        experts: Vec<WeightId>,
        /// Vectors `[N]`, one for each matrix; or none.
        biases: Vec<WeightId>,
    },
    /// `(a, b) -> a + b`, same types.
    Add,
    /// `(x) -> factor * x`.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// `(x) -> cap * tanh(x / cap)`.
    Softcap {
        /// The bound, above 0.
        cap: f32,
    },
    /// `(x [W, K]) -> [W, len]`: columns `start..start + len`; a view, costs nothing.
    Slice {
        /// First column.
        start: usize,
        /// Number of columns.
        len: usize,
    },
    /// `(x [W, D], output rows) -> [R, D]`: the rows that get logits.
    SelectRows,
    /// `(x [R, V], or with a head [R, K]) -> [R, 2 most + 1]`: of every row of logits, which with a head are its
    /// product with `x`, the best tokens and their values as [`ygg_kernels::candidates`] says. Which are wanted is told
    /// by every forward: [`RowInputs::choice`](super::RowInputs::choice).
    Candidates {
        /// Product fused in front.
        head: Option<Head>,
        /// Most tokens that a forward may want of a row.
        most: usize,
        /// What a trimmed head keeps: logit `i` is that of the `i`-th. Without it, of token `i`.
        tokens: Option<HeadTokens>,
    },
}

/// Why a graph is not lawful.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An op got operands it cannot take.
    #[error("op `{op}`: expected {expected}, found {found}")]
    Operands {
        /// The op's name.
        op: &'static str,
        /// What it takes.
        expected: String,
        /// What it got.
        found: String,
    },
    /// A law of the whole graph is broken.
    #[error("graph law broken at {place}: expected {expected}, found {found}")]
    Law {
        /// Value or layer concerned.
        place: String,
        /// The law.
        expected: String,
        /// The breach.
        found: String,
    },
}

impl Op {
    /// The op's name in dumps and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::GivenRows { .. } => "given_rows",
            Op::Embed { .. } => "embed",
            Op::RmsNorm(_) => "rms_norm",
            Op::Linear { .. } => "linear",
            Op::GatedLinear { .. } => "gated_linear",
            Op::Gate(_) => "gate",
            Op::Rope(_) => "rope",
            Op::AppendKv { .. } => "append_kv",
            Op::Attention { .. } => "attention",
            Op::ShortConv { .. } => "short_conv",
            Op::Recurrence { .. } => "recurrence",
            Op::Route { .. } => "route",
            Op::RoutedGated { .. } => "routed_gated",
            Op::RoutedLinear { .. } => "routed_linear",
            Op::Add => "add",
            Op::Scale { .. } => "scale",
            Op::Softcap { .. } => "softcap",
            Op::Slice { .. } => "slice",
            Op::SelectRows => "select_rows",
            Op::Candidates { .. } => "candidates",
        }
    }

    /// The type of the result for the given operand types: the typing rule of every op.
    ///
    /// # Errors
    /// [`GraphError::Operands`] when the operands do not fit.
    #[expect(clippy::too_many_lines, reason = "one exhaustive match over the ops")]
    pub fn infer(&self, graph: &Graph, operands: &[ValueType]) -> Result<ValueType, GraphError> {
        let name = self.name();
        let refuse = |expected: String| GraphError::Operands {
            op: name,
            expected,
            found: operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let is = |i: usize, dtype: Dtype| operands.get(i).is_some_and(|t| t.dtype == dtype);
        let count = |n: usize, what: &str| {
            if operands.len() == n { Ok(()) } else { Err(refuse(format!("{n} operands ({what})"))) }
        };
        let is_vector = |id: WeightId, elements: usize| {
            let spec = graph.weight(id);
            (spec.rows, spec.columns) == (1, elements)
        };
        let norm_fits = |norm: &Option<Norm>, columns: usize| match norm {
            Some(n) if !is_vector(n.weight, columns) => {
                Err(refuse(format!("a norm gain of {columns} elements")))
            }
            _ => Ok(()),
        };
        match self {
            Op::Input(input) => {
                count(0, "none")?;
                let rows =
                    if *input == Input::OutputRows { graph.outputs_rows() } else { graph.width_rows() };
                Ok(ValueType { rows, columns: 1, dtype: Dtype::U32 })
            }
            Op::GivenRows { columns } => {
                count(0, "none")?;
                if *columns == 0 {
                    return Err(refuse("rows of at least one element".into()));
                }
                Ok(ValueType::activation(graph.width_rows(), *columns))
            }
            Op::Embed { weight } => {
                count(1, "tokens")?;
                if !is(0, Dtype::U32) {
                    return Err(refuse("token ids".into()));
                }
                Ok(ValueType::activation(operands[0].rows, graph.weight(*weight).columns))
            }
            Op::RmsNorm(norm) => {
                count(1, "x")?;
                if !is(0, Dtype::F32) {
                    return Err(refuse("an activation".into()));
                }
                let gain = graph.weight(norm.weight);
                if gain.rows != 1 || !operands[0].columns.is_multiple_of(gain.columns) {
                    return Err(refuse(format!("groups of the {} elements of a norm gain", gain.columns)));
                }
                Ok(operands[0])
            }
            Op::Linear { weights, biases, norm, residual } => {
                count(1 + usize::from(*residual), "x and, if fused, the residual")?;
                let columns = operands[0].columns;
                if weights.is_empty() || !is(0, Dtype::F32) {
                    return Err(refuse("an activation and at least one matrix".into()));
                }
                for w in weights {
                    if graph.weight(*w).columns != columns {
                        return Err(refuse(format!(
                            "x with {} columns for `{}`",
                            graph.weight(*w).columns,
                            graph.weight(*w).name
                        )));
                    }
                }
                norm_fits(norm, columns)?;
                let fits =
                    |(bias, weight): (&WeightId, &WeightId)| is_vector(*bias, graph.weight(*weight).rows);
                let paired = biases.len() == weights.len() && !residual;
                let fit = biases.is_empty() || (paired && biases.iter().zip(weights).all(fits));
                if !fit {
                    return Err(refuse("a bias of the outputs of every matrix, and no residual".into()));
                }
                let out = weights.iter().map(|w| graph.weight(*w).rows).sum();
                let result = ValueType::activation(operands[0].rows, out);
                if *residual && operands[1] != result {
                    return Err(refuse(format!("a residual of type {result}")));
                }
                Ok(result)
            }
            Op::GatedLinear { gate, up, norm, .. } => {
                count(1, "x")?;
                let (g, u) = (graph.weight(*gate), graph.weight(*up));
                if !is(0, Dtype::F32)
                    || g.columns != operands[0].columns
                    || (g.rows, g.columns) != (u.rows, u.columns)
                {
                    return Err(refuse(format!("x and two matrices of [{}, {}]", g.rows, g.columns)));
                }
                norm_fits(norm, operands[0].columns)?;
                Ok(ValueType::activation(operands[0].rows, g.rows))
            }
            Op::Gate(_) | Op::Add => {
                count(2, "two activations")?;
                if operands[0] != operands[1] || !is(0, Dtype::F32) {
                    return Err(refuse("two activations of one type".into()));
                }
                Ok(operands[0])
            }
            Op::Rope(rope) => {
                count(2, "x, positions")?;
                let head = graph.rope(*rope).head_dim;
                if !is(0, Dtype::F32) || !is(1, Dtype::U32) || !operands[0].columns.is_multiple_of(head) {
                    return Err(refuse(format!("heads of width {head} and positions")));
                }
                Ok(operands[0])
            }
            Op::AppendKv { layer, rope } => {
                count(4, "k, v, slots, positions")?;
                let kv = graph.kv();
                let [kv_heads, head_dim] = kv.heads(*layer);
                let columns = kv_heads * head_dim;
                let fits = operands[0] == operands[1] && operands[0].columns == columns && is(0, Dtype::F32);
                if !fits || !is(2, Dtype::U32) || !is(3, Dtype::U32) || *layer >= kv.layers {
                    return Err(refuse(format!(
                        "k and v of {columns} columns in a layer below {}",
                        kv.layers
                    )));
                }
                if rope.is_some_and(|r| graph.rope(r).head_dim != head_dim) {
                    return Err(refuse(format!("a rotation of heads of width {head_dim}")));
                }
                Ok(ValueType { rows: Rows::Fixed(0), columns: 0, dtype: Dtype::Effect })
            }
            Op::Attention { layer, heads, rope, scoring, sinks } => {
                count(4, "q, appended, tails, positions")?;
                let kv = graph.kv();
                let [kv_heads, head_dim] = kv.heads(*layer);
                let fits =
                    operands[0].columns == heads * head_dim && is(0, Dtype::F32) && is(1, Dtype::Effect);
                if !fits || !is(2, Dtype::U32) || !is(3, Dtype::U32) || *layer >= kv.layers {
                    return Err(refuse(format!(
                        "q of {heads} heads of width {head_dim}, an append, tails, positions"
                    )));
                }
                let capped = scoring.softcap.is_none_or(|cap| cap.is_finite() && cap > 0.0);
                if !scoring.scale.is_finite() || !capped || scoring.window == Some(0) {
                    return Err(refuse("a finite scale, a bound above 0 and a window of at least 1".into()));
                }
                if *heads == 0 || !heads.is_multiple_of(kv_heads) {
                    return Err(refuse(format!("query heads in multiples of {kv_heads}")));
                }
                if !sinks.is_none_or(|sinks| is_vector(sinks, *heads)) {
                    return Err(refuse(format!("a sink for each of {heads} heads")));
                }
                if rope.is_some_and(|r| graph.rope(r).head_dim != head_dim) {
                    return Err(refuse(format!("a rotation of heads of width {head_dim}")));
                }
                Ok(operands[0])
            }
            Op::ShortConv { layer, taps } => {
                count(3, "x, slots, tails")?;
                let (conv, taps) = (graph.kv().conv, graph.weight(*taps));
                let fits = operands[0].columns == 3 * conv.channels && is(0, Dtype::F32);
                if !fits || !is(1, Dtype::U32) || !is(2, Dtype::U32) || *layer >= conv.layers {
                    let ConvSpec { layers, channels } = conv;
                    return Err(refuse(format!(
                        "gates and values of {channels} channels, slots, tails, in a layer below {layers}"
                    )));
                }
                let is_whole = taps.rows == 1 && taps.columns.is_multiple_of(conv.channels);
                if !is_whole || !(1..=ShortConv::MOST_TAPS).contains(&(taps.columns / conv.channels)) {
                    return Err(refuse(format!(
                        "1 to {} taps for each of {} channels",
                        ShortConv::MOST_TAPS,
                        conv.channels
                    )));
                }
                Ok(ValueType::activation(operands[0].rows, conv.channels))
            }
            Op::Recurrence { layer, vectors, form } => {
                let StateSpec { layers, shape } = graph.kv().states;
                let (channels, heads, said) = (shape.channels(), shape.value_heads, shape.said());
                let (is_scan, lens) =
                    (shape.rule == StateRule::Scan, [channels * shape.taps, heads, heads, channels, heads]);
                count(
                    3 + said,
                    if is_scan { "x, steps, slots, tails" } else { "x, steps, rates, slots, tails" },
                )?;
                let columns = [&[channels][..], &vec![heads; said]].concat();
                let fits =
                    |(i, columns): (usize, &usize)| is(i, Dtype::F32) && operands[i].columns == *columns;
                let is_lawful = columns.iter().enumerate().all(fits)
                    && is(1 + said, Dtype::U32)
                    && is(2 + said, Dtype::U32);
                if !shape.is_lawful() || !form.is_lawful() || !is_lawful || *layer >= layers {
                    return Err(refuse(format!(
                        "columns {columns:?}, slots, tails, in a layer below {layers}, of a shape that kernels take"
                    )));
                }
                let lens = if is_scan { &lens[..] } else { &lens[..3] };
                let is_of = |(id, len): (&WeightId, &usize)| is_vector(*id, *len);
                if vectors.len() != lens.len() || !vectors.iter().zip(lens).all(is_of) {
                    return Err(refuse(format!("vectors of {lens:?} elements")));
                }
                Ok(ValueType::activation(operands[0].rows, shape.values()))
            }
            Op::Route { routing, vector } => {
                count(1, "scores")?;
                let experts = operands[0].columns;
                if !is(0, Dtype::F32) || !(1..=experts.min(Routing::MOST_USED)).contains(&routing.used) {
                    let most = Routing::MOST_USED;
                    return Err(refuse(format!(
                        "scores of {} experts or more, of which at most {most} are used",
                        routing.used
                    )));
                }
                let divisor = routing.normalised.is_none_or(|least| least.is_finite() && least >= 0.0);
                if !divisor || !routing.scale.is_finite() {
                    return Err(refuse("a finite factor, and a divisor above 0".into()));
                }
                if !vector.is_none_or(|vector| is_vector(*vector.place(), experts)) {
                    return Err(refuse(format!("a number for each of {experts} experts")));
                }
                Ok(ValueType::activation(operands[0].rows, routing.columns()))
            }
            Op::RoutedGated { experts, biases, .. } | Op::RoutedLinear { experts, biases } => {
                count(2, "x, routes")?;
                let is_gated = matches!(self, Op::RoutedGated { .. });
                let [x, routes] = [operands[0], operands[1]];
                let Some(matrix) = experts.first().map(|id| graph.weight(*id)) else {
                    return Err(refuse("at least one expert".into()));
                };
                let (rows, columns, used) = (matrix.rows, matrix.columns, routes.columns / 2);
                let (most, parts) =
                    if is_gated { (experts.len() / 2, [1, used]) } else { (experts.len(), [used, 1]) };
                let is_lawful = is(0, Dtype::F32) && is(1, Dtype::F32) && x.rows == routes.rows;
                if !is_lawful || x.columns != parts[0] * columns || !(1..=most).contains(&used) {
                    return Err(refuse(format!(
                        "x of {} columns and a route for each row",
                        parts[0] * columns
                    )));
                }
                let is_like = |id: &WeightId| {
                    let spec = graph.weight(*id);
                    (spec.rows, spec.columns) == (rows, columns)
                };
                if !experts.iter().all(is_like) || is_gated && !experts.len().is_multiple_of(2) {
                    return Err(refuse(format!("as many of each kind of matrices, all [{rows}, {columns}]")));
                }
                let fits = |bias: &WeightId| is_vector(*bias, rows);
                let is_paired = biases.len() == experts.len() && biases.iter().all(fits);
                if !is_paired && !biases.is_empty() {
                    return Err(refuse(format!("no biases, or one of {rows} for each matrix")));
                }
                Ok(ValueType::activation(x.rows, parts[1] * rows))
            }
            Op::Scale { factor } => {
                count(1, "x")?;
                if !is(0, Dtype::F32) || !factor.is_finite() {
                    return Err(refuse("an activation and a finite factor".into()));
                }
                Ok(operands[0])
            }
            Op::Softcap { cap } => {
                count(1, "x")?;
                if !is(0, Dtype::F32) || !cap.is_finite() || *cap <= 0.0 {
                    return Err(refuse("an activation and a finite bound above 0".into()));
                }
                Ok(operands[0])
            }
            Op::Slice { start, len } => {
                count(1, "x")?;
                let end = start.checked_add(*len);
                if !is(0, Dtype::F32) || *len == 0 || end.is_none_or(|e| e > operands[0].columns) {
                    return Err(refuse(format!("an activation with columns {start}..{start}+{len}")));
                }
                Ok(ValueType::activation(operands[0].rows, *len))
            }
            Op::SelectRows => {
                count(2, "x, output rows")?;
                if !is(0, Dtype::F32) || !is(1, Dtype::U32) {
                    return Err(refuse("an activation and row numbers".into()));
                }
                Ok(ValueType::activation(operands[1].rows, operands[0].columns))
            }
            Op::Candidates { head, most, tokens } => {
                count(1, "logits or, if the head is fused, x")?;
                if !is(0, Dtype::F32) || *most == 0 {
                    return Err(refuse("an activation and at least one candidate".into()));
                }
                let mut logits = operands[0].columns;
                if let Some(Head { weights, norm }) = head {
                    let columns = operands[0].columns;
                    if weights.is_empty() || weights.iter().any(|w| graph.weight(*w).columns != columns) {
                        return Err(refuse(format!("matrices of {columns} columns")));
                    }
                    norm_fits(norm, columns)?;
                    logits = weights.iter().map(|w| graph.weight(*w).rows).sum();
                }
                if let Some(tokens) = tokens.as_ref().filter(|tokens| tokens.len() != logits) {
                    return Err(refuse(format!("a logit for each of {} tokens", tokens.len())));
                }
                Ok(ValueType::activation(operands[0].rows, candidate_columns(*most)))
            }
        }
    }
}
