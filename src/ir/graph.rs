//! The graph: an SSA dag of ops, symbolic in width, over petgraph.

use std::{borrow::Cow, fmt, sync::Arc};

use petgraph::{
    Direction,
    stable_graph::{NodeIndex, StableDiGraph},
    visit::EdgeRef,
};
use ygg_kernels::{RopePairing, StateShape, WeightFormat};

use super::{BlockRows, GraphError, Op, ReducedHead, Residence, Rows, TextRows, ValueType};

/// A value, which is the result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(super) NodeIndex);

impl ValueId {
    /// A dense number for tables; stable while passes rewrite the graph, free again once the value is removed.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0.index())
    }
}

/// A weight of the model, by number in [`Graph::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A rotary embedding, by number in [`Graph::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeId(pub u32);

/// A sub-layer that can be skipped: norm .. last linear + residual. Attention of layer `l`, or what it has instead, is
/// `2l`, its MLP `2l + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Its layer and what it is, `3.mlp`: of groups that are no MLP the `ops` decide, which are the group's own.
    pub(super) fn name<'a>(self, mut ops: impl Iterator<Item = &'a Op>) -> String {
        let kind = if !self.0.is_multiple_of(2) {
            "mlp"
        } else {
            let kind = ops.find_map(|op| match op {
                Op::ShortConv { .. } | Op::Recurrence { .. } => Some(op.name()),
                _ => None,
            });
            kind.unwrap_or("attention")
        };
        format!("{}.{kind}", self.0 / 2)
    }
}

/// A weight's name and shape `[rows, columns]`; a vector is one row.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSpec {
    /// Tensor name in the model file.
    pub name: String,
    /// Where in the tensor its elements are.
    pub elements: Elements,
    /// Outputs of the matrix.
    pub rows: usize,
    /// Inputs of the matrix, or elements of the vector.
    pub columns: usize,
    /// How the elements are stored.
    pub format: WeightFormat,
    /// Added to every stored element of a norm's gain: 1 where files store gains less one.
    pub offset: f32,
    /// Where it is while forwards run.
    pub residence: Residence,
}

impl WeightSpec {
    /// A whole tensor, as it is stored.
    pub fn new(name: impl Into<String>, rows: usize, columns: usize, format: WeightFormat) -> Self {
        let residence = Residence::Resident;
        let elements = Elements::in_order(columns);
        Self { name: name.into(), elements, rows, columns, format, offset: 0.0, residence }
    }
}

/// Where the elements of a weight are among those of its tensor: that of row `r` and column `c` is number
/// `first + r * row_step + c * column_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// The first: above 0 for a part of a tensor that holds several matrices.
    pub first: usize,
    /// From one row to the next. With `first` a whole number of blocks of the format, as long as columns are.
    pub row_step: usize,
    /// From one column to the next: above 1 only in tensors of single numbers.
    pub column_step: usize,
}

impl Elements {
    /// Row after row of `columns` elements, from the first element of the tensor on.
    pub const fn in_order(columns: usize) -> Self {
        Self { first: 0, row_step: columns, column_step: 1 }
    }

    /// What names of kept weights say of them, nothing of whole tensors.
    pub(crate) fn named(&self, columns: usize) -> String {
        let Self { first, row_step, column_step } = *self;
        match (row_step == columns && column_step == 1, first) {
            (true, 0) => String::new(),
            (true, first) => format!(" from row {}", first / columns),
            (false, first) => format!(" from element {first} by {row_step} and {column_step}"),
        }
    }
}

/// Lends the bytes of weights, row-major as the file stores them.
pub trait WeightSource: Send + Sync {
    /// Bytes of a weight: `rows * format.row_bytes(columns)` of them. Lent where the source has them; else made by
    /// every call, in memory as long as the caller keeps them.
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]>;

    /// The same bytes, to be read as long as forwards run: a share of the mapped file where the source has one, else a
    /// copy in memory.
    fn shared(&self, weight: WeightId) -> SharedBytes {
        SharedBytes(Arc::new(self.bytes(weight).into_owned()))
    }
}

/// Bytes of a weight that outlive their source.
#[derive(Clone)]
pub struct SharedBytes(pub Arc<dyn AsRef<[u8]> + Send + Sync>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({})", self.as_ref().len())
    }
}

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Head width `E`.
    pub head_dim: usize,
    /// Which two elements of a head form a pair.
    pub pairing: RopePairing,
    /// Angle per position of each pair of the first elements of a head: at most `[E / 2]`, scaling rules already
    /// applied.
    pub inv_freq: Arc<[f32]>,
    /// What turned elements are multiplied with; 1 as a rule.
    pub magnitude: f32,
    /// Other angles, for sessions with longer contexts.
    pub long: Option<LongRope>,
}

/// The angles of a rotary embedding in sessions whose context is longer than the one that a model was first trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// The longest context, in tokens, that has the usual angles.
    pub context: usize,
    /// Angle per position of each pair, as many as the usual ones.
    pub inv_freq: Arc<[f32]>,
}

impl RopeSpec {
    /// Usual angles, of a magnitude of 1.
    pub fn new(head_dim: usize, pairing: RopePairing, inv_freq: Arc<[f32]>) -> Self {
        Self { head_dim, pairing, inv_freq, magnitude: 1.0, long: None }
    }

    /// The angles in a session of this context.
    pub fn inv_freq_within(&self, context: usize) -> &[f32] {
        self.long.as_ref().filter(|long| context > long.context).map_or(&self.inv_freq, |long| &long.inv_freq)
    }
}

/// Shape of the cache the graph needs: keys and values, and what other ops keep of rows; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvSpec {
    /// Layers with keys and values of their own.
    pub layers: usize,
    /// Key/value heads `G`.
    pub kv_heads: usize,
    /// Head width `E`.
    pub head_dim: usize,
    /// Those of the layers, the last ones, whose heads are of another shape.
    pub others: OtherHeads,
    /// Short convolutions.
    pub conv: ConvSpec,
    /// States that follow rows.
    pub states: StateSpec,
}

/// Layers whose heads are of another shape than those of most; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherHeads {
    /// How many of the layers with keys and values.
    pub layers: usize,
    /// Key/value heads of each.
    pub kv_heads: usize,
    /// Head width.
    pub head_dim: usize,
}

impl KvSpec {
    /// Key/value heads of a layer, and their width: `[G, E]`.
    pub fn heads(&self, layer: usize) -> [usize; 2] {
        let Self { layers, kv_heads, head_dim, others, .. } = *self;
        if layer + others.layers < layers { [kv_heads, head_dim] } else { [others.kv_heads, others.head_dim] }
    }

    /// Layers of one shape and [`heads`](Self::heads) of each, in order of the layers; of both shapes, perhaps of none.
    pub fn shapes(&self) -> [(usize, [usize; 2]); 2] {
        let OtherHeads { layers, kv_heads, head_dim } = self.others;
        [(self.layers - layers, [self.kv_heads, self.head_dim]), (layers, [kv_heads, head_dim])]
    }
}

/// Shape of what recurrences keep; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSpec {
    /// Layers with one, counted by themselves.
    pub layers: usize,
    /// Sizes of each.
    pub shape: StateShape,
}

/// Shape of what short convolutions keep of every slot; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConvSpec {
    /// Layers with one, counted by themselves.
    pub layers: usize,
    /// Channels of each, `C`.
    pub channels: usize,
}

/// What the symbolic rows are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Binding {
    /// `W`: token rows of the forward.
    pub width: usize,
    /// `R`: rows that get logits, `1..=W`.
    pub outputs: usize,
}

/// One node: an op, the type of its value and the group it belongs to.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Type of the value it defines.
    pub value_type: ValueType,
    /// Skippable sub-layer, if any.
    pub group: Option<GroupId>,
}

/// The graph of one model. Operand `i` of a node is the edge of weight `i` that enters it.
#[derive(Clone, Debug)]
pub struct Graph {
    name: String,
    dag: StableDiGraph<Node, usize>,
    pub(super) weights: Arc<[WeightSpec]>,
    ropes: Vec<RopeSpec>,
    kv: KvSpec,
    pub(super) groups: u32,
    binding: Option<Binding>,
    shown: Option<ValueId>,
    pub(super) hidden: Option<ValueId>,
    /// Rows of the residual stream between layers that stay readable, in order of their layers.
    pub(super) inner: Vec<ValueId>,
    pub(super) text_rows: Option<TextRows>,
    pub(super) block_rows: Option<BlockRows>,
    pub(super) reduced: Option<ReducedHead>,
}

impl Graph {
    /// An empty graph over the given weights.
    pub fn new(name: impl Into<String>, weights: Vec<WeightSpec>, kv: KvSpec) -> Self {
        Self {
            name: name.into(),
            dag: StableDiGraph::new(),
            weights: weights.into(),
            ropes: Vec::new(),
            kv,
            groups: 0,
            binding: None,
            shown: None,
            hidden: None,
            inner: Vec::new(),
            text_rows: None,
            block_rows: None,
            reduced: None,
        }
    }

    /// Registers a rotary embedding.
    pub fn add_rope(&mut self, rope: RopeSpec) -> RopeId {
        let pairs = rope.inv_freq.len();
        assert!((1..=rope.head_dim / 2).contains(&pairs), "a frequency for each of some pairs of a head");
        let of_long = rope.long.as_ref().map(|long| long.inv_freq.len());
        assert!(of_long.is_none_or(|of_long| of_long == pairs), "as many frequencies in long contexts");
        self.ropes.push(rope);
        RopeId(u32::try_from(self.ropes.len() - 1).expect("few ropes"))
    }

    /// Registers a weight after those that are there.
    pub(super) fn add_weight(&mut self, spec: WeightSpec) -> WeightId {
        let id = u32::try_from(self.weights.len()).expect("few weights");
        self.weights = self.weights.iter().cloned().chain([spec]).collect();
        WeightId(id)
    }

    /// Adds a node and gives its value; the type is inferred.
    ///
    /// # Errors
    /// [`GraphError::Operands`] when the operands do not fit the op.
    pub fn add(
        &mut self,
        op: Op,
        operands: &[ValueId],
        group: Option<GroupId>,
    ) -> Result<ValueId, GraphError> {
        let types: Vec<_> = operands.iter().map(|v| self.node(*v).value_type).collect();
        let value_type = op.infer(self, &types)?;
        if let Some(GroupId(g)) = group {
            self.groups = self.groups.max(g + 1);
        }
        let index = self.dag.add_node(Node { op, value_type, group });
        for (i, operand) in operands.iter().enumerate() {
            self.dag.add_edge(operand.0, index, i);
        }
        Ok(ValueId(index))
    }

    /// Defines `value` anew by `op` over `operands`; its readers, group and number stay. The operands must not depend
    /// on `value`.
    ///
    /// # Errors
    /// [`GraphError`] when the operands do not fit the op, or the result has another type than `value`.
    pub fn rewrite(&mut self, value: ValueId, op: Op, operands: &[ValueId]) -> Result<(), GraphError> {
        let types: Vec<_> = operands.iter().map(|v| self.node(*v).value_type).collect();
        let (found, expected) = (op.infer(self, &types)?, self.node(value).value_type);
        if found != expected {
            return Err(GraphError::Law {
                place: value.to_string(),
                expected: format!("type {expected}"),
                found: format!("{found} from `{}`", op.name()),
            });
        }
        let edges: Vec<_> = self.dag.edges_directed(value.0, Direction::Incoming).map(|e| e.id()).collect();
        for edge in edges {
            self.dag.remove_edge(edge);
        }
        for (i, operand) in operands.iter().enumerate() {
            self.dag.add_edge(operand.0, value.0, i);
        }
        self.dag[value.0].op = op;
        Ok(())
    }

    /// Declares which value is the logits `[R, V]`; the graph shows them.
    pub fn set_logits(&mut self, value: ValueId) {
        self.shown = Some(value);
    }

    /// Declares the last hidden rows `[R, D]`, from which what is shown is made: they stay readable, too.
    pub fn set_hidden(&mut self, value: ValueId) {
        self.hidden = Some(value);
    }

    /// Makes a graph that shows logits show candidates among them, at most `most` of a row.
    ///
    /// # Errors
    /// [`GraphError`] if no logits are declared or no candidate is asked for.
    pub fn show_candidates(&mut self, most: usize) -> Result<(), GraphError> {
        let logits = self.shown.ok_or_else(|| GraphError::Law {
            place: "candidates".to_owned(),
            expected: "declared logits".to_owned(),
            found: "none".to_owned(),
        })?;
        let tokens = self.reduced.as_ref().map(|reduced| reduced.tokens.clone());
        let candidates = Op::Candidates { head: None, most, tokens };
        self.shown = Some(self.add(candidates, &[logits], None)?);
        Ok(())
    }

    /// Declares which value is shown.
    pub(super) fn show(&mut self, value: ValueId) {
        self.shown = Some(value);
    }

    /// Makes every reader of `old` read `new` instead, the declarations of what is kept included.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        let edges: Vec<_> = self
            .dag
            .edges_directed(old.0, Direction::Outgoing)
            .map(|e| (e.id(), e.target(), *e.weight()))
            .collect();
        for (edge, reader, operand) in edges {
            if reader != new.0 {
                self.dag.remove_edge(edge);
                self.dag.add_edge(new.0, reader, operand);
            }
        }
        let kept = [&mut self.shown, &mut self.hidden].into_iter().flatten().chain(&mut self.inner);
        kept.filter(|kept| **kept == old).for_each(|kept| *kept = new);
    }

    /// Removes a value that nothing reads.
    ///
    /// # Panics
    /// If something still reads it: a pass that removes a used value is wrong.
    pub fn remove(&mut self, value: ValueId) {
        assert!(self.readers(value).is_empty() && !self.is_kept(value), "{value} is still read");
        self.dag.remove_node(value.0);
    }

    /// Binds the symbolic rows and re-infers every type.
    ///
    /// # Errors
    /// [`GraphError`] if an op no longer fits, which a lawful graph excludes.
    pub fn bind(&mut self, binding: Binding) -> Result<(), GraphError> {
        self.binding = Some(binding);
        for value in self.topological() {
            let operands: Vec<_> = self.operands(value).iter().map(|v| self.node(*v).value_type).collect();
            let value_type = self.node(value).op.infer(self, &operands)?;
            self.dag[value.0].value_type = value_type;
        }
        Ok(())
    }

    /// All values, operands before readers; ties in order of creation.
    ///
    /// # Panics
    /// On a cycle, which only a wrong pass can make.
    pub fn topological(&self) -> Vec<ValueId> {
        // Not petgraph's `toposort`, which goes depth first: there one more node reorders the others, and with them
        // dumps and arenas.
        let mut waiting = vec![0usize; self.dag.node_indices().map(|n| n.index() + 1).max().unwrap_or(0)];
        let mut ready = std::collections::BTreeSet::new();
        for n in self.dag.node_indices() {
            waiting[n.index()] = self.dag.edges_directed(n, Direction::Incoming).count();
            if waiting[n.index()] == 0 {
                ready.insert(n);
            }
        }
        let mut order = Vec::with_capacity(self.dag.node_count());
        while let Some(n) = ready.pop_first() {
            order.push(ValueId(n));
            for edge in self.dag.edges_directed(n, Direction::Outgoing) {
                let left = &mut waiting[edge.target().index()];
                *left -= 1;
                if *left == 0 {
                    ready.insert(edge.target());
                }
            }
        }
        assert_eq!(order.len(), self.dag.node_count(), "the graph has a cycle");
        order
    }

    /// Operands of a value in order.
    pub fn operands(&self, value: ValueId) -> Vec<ValueId> {
        let mut edges: Vec<_> = self
            .dag
            .edges_directed(value.0, Direction::Incoming)
            .map(|e| (*e.weight(), ValueId(e.source())))
            .collect();
        edges.sort_unstable();
        edges.into_iter().map(|(_, v)| v).collect()
    }

    /// Values that read `value`, in order of creation, once per operand place.
    pub fn readers(&self, value: ValueId) -> Vec<ValueId> {
        let mut readers: Vec<_> =
            self.dag.edges_directed(value.0, Direction::Outgoing).map(|e| ValueId(e.target())).collect();
        readers.sort_unstable();
        readers
    }

    /// The reader of a value that nothing else reads and that is not kept.
    pub fn sole_reader(&self, value: ValueId) -> Option<ValueId> {
        match *self.readers(value) {
            [reader] if !self.is_kept(value) => Some(reader),
            _ => None,
        }
    }

    /// The node that defines a value.
    pub fn node(&self, value: ValueId) -> &Node {
        &self.dag[value.0]
    }

    /// Whether the value still exists.
    pub fn contains(&self, value: ValueId) -> bool {
        self.dag.contains_node(value.0)
    }

    /// Model name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All weights, by [`WeightId`].
    pub fn weights(&self) -> &Arc<[WeightSpec]> {
        &self.weights
    }

    /// One weight.
    pub fn weight(&self, id: WeightId) -> &WeightSpec {
        &self.weights[id.0 as usize]
    }

    /// Declares that a weight is stored in another format.
    ///
    /// # Panics
    /// If there is no such weight, or its rows are no whole number of the format's blocks.
    pub fn store_in(&mut self, id: WeightId, format: WeightFormat) {
        let spec = &mut Arc::make_mut(&mut self.weights)[id.0 as usize];
        assert!(format.row_bytes(spec.columns).is_some(), "{} columns in {format}", spec.columns);
        spec.format = format;
    }

    /// Declares where a weight is.
    pub(super) fn lay(&mut self, id: WeightId, residence: Residence) {
        Arc::make_mut(&mut self.weights)[id.0 as usize].residence = residence;
    }

    /// All rotary embeddings, by [`RopeId`].
    pub fn ropes(&self) -> &[RopeSpec] {
        &self.ropes
    }

    /// One rotary embedding.
    pub fn rope(&self, id: RopeId) -> &RopeSpec {
        &self.ropes[id.0 as usize]
    }

    /// Shape of the cache.
    pub fn kv(&self) -> KvSpec {
        self.kv
    }

    /// Number of skippable groups; group ids are below it.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Whether rows choose experts.
    pub fn routes(&self) -> bool {
        self.dag.node_weights().any(|node| matches!(node.op, Op::Route { .. }))
    }

    /// A group for people, as `3.attention`.
    pub fn group_name(&self, group: GroupId) -> String {
        group.name(self.dag.node_weights().filter(|node| node.group == Some(group)).map(|node| &node.op))
    }

    /// What the rows are bound to, after the pass that binds them.
    pub fn binding(&self) -> Option<Binding> {
        self.binding
    }

    /// What the graph is for, once declared: the logits, or candidates among them.
    pub fn shown(&self) -> Option<ValueId> {
        self.shown
    }

    /// The hidden rows that stay readable, if any are declared.
    pub fn hidden(&self) -> Option<ValueId> {
        self.hidden
    }

    /// What is read once a forward is over: what is shown, the hidden rows, and the inner rows.
    pub fn kept(&self) -> impl Iterator<Item = ValueId> {
        self.shown.into_iter().chain(self.hidden).chain(self.inner.iter().copied())
    }

    /// Whether a value is read once a forward is over.
    pub fn is_kept(&self, value: ValueId) -> bool {
        self.kept().any(|kept| kept == value)
    }

    /// `W` as it stands: symbolic or bound.
    pub fn width_rows(&self) -> Rows {
        self.binding.map_or(Rows::Width, |b| Rows::Fixed(b.width))
    }

    /// `R` as it stands: symbolic or bound.
    pub fn outputs_rows(&self) -> Rows {
        self.binding.map_or(Rows::Outputs, |b| Rows::Fixed(b.outputs))
    }
}
