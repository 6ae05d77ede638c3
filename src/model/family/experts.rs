//! Experts: MLPs of which a router chooses some for every row. What files say of them, their weights, and their part of
//! the graph.

use super::{
    Source,
    frame::{biased, linear},
    mlp::Mlp,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Elements, Graph, GroupId, Op, ValueId, WeightId},
    model::{
        Container, ModelError,
        config::{only, required},
    },
};
use ygg_kernels::{Gating, Nonlinearity, RouteVector, Routing};

/// How the folders of a family store the matrices of experts; GGUF files have one tensor for all experts' gates, one
/// for their ups and one for their downs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Tensors for each expert: what stands before its number, and what gate, up and down are called after it.
    Each { before: &'static str, parts: [&'static str; 3] },
    /// A tensor for all experts' gates and ups, each expert's gate first, and one for their downs; names as they
    /// stand.
    Fused { input: &'static str, output: &'static str },
    /// A tensor for all experts' gates and ups, whose rows are those of a gate and of an up in turn, and one for their
    /// downs; names as they stand. Where elements are single numbers, the rows and columns of each expert are swapped.
    /// Biases are stored alike.
    Turns { input: &'static str, output: &'static str },
}

impl Stored {
    /// As most folders have them.
    pub(super) const BY_NAME: Self =
        Self::Each { before: "mlp.experts", parts: ["gate_proj", "up_proj", "down_proj"] };
    /// As Mixtral's folders have them.
    pub(super) const BY_NUMBER: Self =
        Self::Each { before: "block_sparse_moe.experts", parts: ["w1", "w3", "w2"] };
}

/// The experts of a model.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    /// How many a layer has, `E`.
    pub(super) count: usize,
    /// Hidden size `F` of each.
    pub(super) feed_forward: usize,
    /// How rows choose among them.
    pub(super) routing: Routing,
    /// What folders call the router's matrix.
    pub(super) router: &'static str,
    /// What folders call a vector that decides with scores or scales weights, if the family has one.
    pub(super) vector: Option<RouteVector<&'static str>>,
    /// Whether all products have biases, the router's as well.
    pub(super) is_biased: bool,
    pub(super) stored: Stored,
    /// An MLP that all rows go through in addition.
    pub(super) shared: Option<Shared>,
    /// Whether layers have their own MLP as well, and what goes into and comes out of both is normalised by itself.
    pub(super) is_parallel: bool,
}

/// A shared MLP: all rows go through it, in addition to their experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    /// Hidden size.
    pub(super) feed_forward: usize,
    /// How folders store it.
    pub(super) stored: SharedStored,
    /// What folders call the vector whose product with a row, under a sigmoid, is the factor of what it adds; without
    /// it the factor is one.
    pub(super) gate: Option<&'static str>,
}

/// How the folders of a family store a shared MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedStored {
    /// Three tensors, with the usual names after this one.
    Each { before: &'static str },
    /// A tensor for gate and up, and one for down.
    Fused { input: &'static str, output: &'static str },
}

impl Shared {
    /// The hidden size of the shared MLP, `None` if there is none; in folders it is what `folder` says.
    ///
    /// # Errors
    /// [`ModelError`] for a size that cannot be.
    pub(super) fn size(source: &Source<'_>, folder: &str) -> Result<Option<usize>, ModelError> {
        let key = source.key("expert_shared_feed_forward_length", folder);
        let found = source.fields.count(&key)?.filter(|size| *size > 0);
        found.map(|size| within(&key, size, MOST_NEURONS).map(|()| size)).transpose()
    }
}

/// Most experts of a layer: above what any published model has.
const MOST: usize = 4_096;
/// Largest hidden size of one.
const MOST_NEURONS: usize = 1 << 20;

impl Experts {
    /// The experts that a file tells of, routed by the softmax of their scores, with normalised weights, and with the
    /// `shared` MLP, if the model has one; `None` if it has no experts.
    ///
    /// # Errors
    /// [`ModelError`] for numbers that cannot be.
    pub(super) fn read(
        source: &Source<'_>,
        stored: Stored,
        router: &'static str,
        shared: Option<Shared>,
    ) -> Result<Option<Self>, ModelError> {
        let Source { config, fields, .. } = *source;
        let count = |gguf: &str, folder: &[&str]| -> Result<(String, Option<usize>), ModelError> {
            let keys = match fields.container() {
                Container::Gguf => vec![source.key(gguf, "")],
                Container::Folder => folder.iter().map(|key| (*key).to_owned()).collect(),
            };
            for key in &keys {
                if let Some(found) = fields.count(key)? {
                    return Ok((key.clone(), Some(found)));
                }
            }
            Ok((keys[0].clone(), None))
        };
        let (key, experts) = count("expert_count", &["num_experts", "num_local_experts", "moe_num_experts"])?;
        let Some(experts) = experts.filter(|experts| *experts > 0) else { return Ok(None) };
        within(&key, experts, MOST)?;
        let (key, used) = count("expert_used_count", &["num_experts_per_tok", "moe_k", "top_k_experts"])?;
        let used = required(used, &key, "how many experts a token uses")?;
        within(&key, used, experts.min(Routing::MOST_USED))?;
        let (key, size) = count("expert_feed_forward_length", &["moe_intermediate_size"])?;
        let feed_forward = size.unwrap_or(config.feed_forward);
        within(&key, feed_forward, MOST_NEURONS)?;
        let is_alone = shared.is_none();
        for shared in ["expert_shared_count", "expert_shared_feed_forward_length"] {
            if fields.container() == Container::Gguf && is_alone {
                let key = source.key(shared, "");
                only(&key, fields.count(&key)?, 0, "no expert that all rows share")?;
            }
        }
        let routing = Routing { used, gating: Gating::Softmax, normalised: Some(0.0), scale: 1.0 };
        Ok(Some(Self {
            count: experts,
            feed_forward,
            routing,
            router,
            vector: None,
            is_biased: false,
            stored,
            shared,
            is_parallel: false,
        }))
    }

    /// As [`read`](Self::read), of a family whose models all have experts.
    ///
    /// # Errors
    /// As `read`, and if the file tells of none.
    pub(super) fn required(
        source: &Source<'_>,
        stored: Stored,
        router: &'static str,
        shared: Option<Shared>,
    ) -> Result<Self, ModelError> {
        let found = Self::read(source, stored, router, shared)?;
        let key = source.key("expert_count", "num_experts");
        required(found, &key, "how many experts a layer has, above 0")
    }

    /// The same, whose weights are divided by their sum only where a folder says so; GGUF files do not say it.
    ///
    /// # Errors
    /// [`ModelError`] for a value of another type.
    pub(super) fn normalised_by(
        self,
        source: &Source<'_>,
        key: &str,
        in_gguf: bool,
    ) -> Result<Self, ModelError> {
        let is_normalised = match source.fields.container() {
            Container::Gguf => in_gguf,
            Container::Folder => source.fields.flag(key)?.unwrap_or(false),
        };
        let normalised = is_normalised.then_some(0.0);
        Ok(Self { routing: Routing { normalised, ..self.routing }, ..self })
    }
}

fn within(key: &str, found: usize, most: usize) -> Result<(), ModelError> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(ModelError::invalid(format_args!("key `{key}`"), format_args!("1 to {most}"), found))
}

/// The weights of one layer's experts.
pub(super) struct ExpertWeights {
    router: WeightId,
    router_bias: Option<WeightId>,
    /// Decides with scores, or scales weights.
    vector: Option<RouteVector<WeightId>>,
    gates: OfExperts,
    ups: OfExperts,
    downs: OfExperts,
    shared: Option<SharedWeights>,
}

/// The weights of a shared MLP.
struct SharedWeights {
    mlp: Mlp,
    router: Option<WeightId>,
}

/// One of the matrices of every expert, and the biases of all of them or none.
struct OfExperts {
    matrices: Vec<WeightId>,
    biases: Vec<WeightId>,
}

impl From<Vec<WeightId>> for OfExperts {
    fn from(matrices: Vec<WeightId>) -> Self {
        Self { matrices, biases: Vec::new() }
    }
}

impl ExpertWeights {
    /// Looks up the experts of a layer.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        layer: usize,
        width: usize,
        experts: &Experts,
    ) -> Result<Self, ModelError> {
        let Experts {
            count,
            feed_forward,
            routing: _,
            router,
            vector,
            is_biased,
            stored,
            shared,
            is_parallel: _,
        } = *experts;
        let name = |gguf: &str, folder: &str| naming.layer_weight(layer, gguf, folder);
        let router_bias = match is_biased {
            true => {
                let name = naming.layer_bias(layer, "ffn_gate_inp", router);
                Some(list.vector(name, count, "a bias")?)
            }
            false => None,
        };
        let router = list.find(name("ffn_gate_inp", router), &[count, width])?;
        // Vectors without the suffix of weights.
        let vector = match vector {
            Some(RouteVector::Bias(folder)) => {
                let name = naming.layer_vector(layer, "exp_probs_b.bias", folder);
                Some(RouteVector::Bias(list.row(name, count, "a bias of experts")?))
            }
            Some(RouteVector::Factors(folder)) => {
                let name = naming.layer_vector(layer, "ffn_down_exps.scale", folder);
                Some(RouteVector::Factors(list.row(name, count, "factors of experts")?))
            }
            None => None,
        };
        let shared =
            shared.map(|shared| SharedWeights::find(list, naming, layer, width, &shared)).transpose()?;
        let (f, d) = (feed_forward, width);
        if naming.container == Container::Gguf {
            let both = name("ffn_gate_up_exps", "");
            let all = |list: &mut WeightList<'_>, stem, rows: usize, columns| -> Result<_, ModelError> {
                let matrices = list.parts(name(stem, ""), &[count, rows, columns], &vec![rows; count])?;
                let biases = match is_biased {
                    true => {
                        let each = |number| Elements { first: number * rows, ..Elements::in_order(rows) };
                        let name = naming.layer_bias(layer, stem, "");
                        list.spread(&name, &[count, rows], [1, rows], (0..count).map(each))?
                    }
                    false => Vec::new(),
                };
                Ok(OfExperts { matrices, biases })
            };
            let [gates, ups] = match list.has(&both) {
                true => gates_and_ups(list, both, [count, f, d])?,
                false => [all(list, "ffn_gate_exps", f, d)?, all(list, "ffn_up_exps", f, d)?],
            };
            let downs = all(list, "ffn_down_exps", d, f)?;
            return Ok(Self { router, router_bias, vector, gates, ups, downs, shared });
        }
        let [gates, ups, downs] = match stored {
            Stored::Turns { input, output } => {
                let [input, output] = [input, output].map(|name| naming.layer_vector(layer, "", name));
                let [gates, ups] =
                    [0, 1].map(|first| Turn { name: &input, of: 2, first, count, shape: [f, d] });
                let downs = Turn { name: &output, of: 1, first: 0, count, shape: [d, f] };
                [gates.find(list)?, ups.find(list)?, downs.find(list)?]
            }
            Stored::Fused { input, output } => {
                let [input, output] = [input, output].map(|name| naming.layer_vector(layer, "", name));
                let [gates, ups] = gates_and_ups(list, input, [count, f, d])?;
                let downs = list.parts(output, &[count, d, f], &vec![d; count])?;
                [gates, ups, downs.into()]
            }
            Stored::Each { before, parts } => {
                let mut of = |part: usize, shape: [usize; 2]| {
                    let name = |number| name("", &format!("{before}.{number}.{}", parts[part]));
                    (0..count).map(|number| list.find(name(number), &shape)).collect::<Result<Vec<_>, _>>()
                };
                [of(0, [f, d])?.into(), of(1, [f, d])?.into(), of(2, [d, f])?.into()]
            }
        };
        Ok(Self { router, router_bias, vector, gates, ups, downs, shared })
    }

    /// Adds the experts of the rows `n`, chosen by the rows `routed`; returns the sum of what those that each row uses
    /// give.
    ///
    /// # Errors
    /// None for weights that [`find`](Self::find) found.
    pub(super) fn add(
        &self,
        graph: &mut Graph,
        routing: Routing,
        function: Nonlinearity,
        [routed, n]: [ValueId; 2],
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        let Self { router, router_bias, vector, gates, ups, downs, shared } = self;
        let scores = graph.add(biased(*router, *router_bias), &[routed], group)?;
        let routes = graph.add(Op::Route { routing, vector: *vector }, &[scores], group)?;
        let both = |of: fn(&OfExperts) -> &Vec<WeightId>| [of(gates).clone(), of(ups).clone()].concat();
        let gated =
            Op::RoutedGated { function, experts: both(|of| &of.matrices), biases: both(|of| &of.biases) };
        let gated = graph.add(gated, &[n, routes], group)?;
        let OfExperts { matrices, biases } = downs;
        let joined = Op::RoutedLinear { experts: matrices.clone(), biases: biases.clone() };
        let sum = graph.add(joined, &[gated, routes], group)?;
        match shared {
            None => Ok(sum),
            Some(shared) => {
                let shared = shared.add(graph, function, n, group)?;
                Ok(graph.add(Op::Add, &[sum, shared], group)?)
            }
        }
    }
}

/// The gates and the ups of all experts, in a tensor of each one's gate and then its up.
fn gates_and_ups(
    list: &mut WeightList<'_>,
    name: String,
    [count, f, d]: [usize; 3],
) -> Result<[OfExperts; 2], ModelError> {
    let both = list.parts(name, &[count, 2 * f, d], &vec![f; 2 * count])?;
    Ok([0, 1].map(|first| both.iter().copied().skip(first).step_by(2).collect::<Vec<_>>().into()))
}

impl SharedWeights {
    fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        layer: usize,
        d: usize,
        shared: &Shared,
    ) -> Result<Self, ModelError> {
        let Shared { feed_forward: f, stored, gate: router } = *shared;
        let name = |gguf: &str, folder: &str| naming.layer_weight(layer, gguf, folder);
        let router = match router {
            Some(folder) => {
                Some(list.row(name("ffn_gate_inp_shexp", folder), d, "the gate of a shared MLP")?)
            }
            None => None,
        };
        let mlp = match stored {
            SharedStored::Fused { input, output } if naming.container == Container::Folder => {
                let both = list.parts(name("", input), &[2 * f, d], &[f, f])?;
                Mlp { gate: both[0], up: both[1], down: list.find(name("", output), &[d, f])? }
            }
            SharedStored::Fused { .. } => Self::each(list, &name, "", [f, d])?,
            SharedStored::Each { before } => Self::each(list, &name, before, [f, d])?,
        };
        Ok(Self { mlp, router })
    }

    /// Gate, up and down in a tensor each.
    fn each(
        list: &mut WeightList<'_>,
        name: &impl Fn(&str, &str) -> String,
        before: &str,
        [f, d]: [usize; 2],
    ) -> Result<Mlp, ModelError> {
        let mut find = |part: &str, shape: [usize; 2]| {
            list.find(name(&format!("ffn_{part}_shexp"), &format!("{before}.{part}_proj")), &shape)
        };
        Ok(Mlp { gate: find("gate", [f, d])?, up: find("up", [f, d])?, down: find("down", [d, f])? })
    }

    /// What the shared MLP gives for the rows `n`. With a gate, it is one expert, which all rows use with a weight of
    /// their own.
    fn add(
        &self,
        graph: &mut Graph,
        function: Nonlinearity,
        n: ValueId,
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        let Self { mlp, router } = *self;
        let Some(router) = router else { return mlp.add(graph, function, n, group) };
        let gated = mlp.gated(graph, function, n, group)?;
        let score = graph.add(linear(router), &[n], group)?;
        let routing = Routing { used: 1, gating: Gating::Sigmoid, normalised: None, scale: 1.0 };
        let routes = graph.add(Op::Route { routing, vector: None }, &[score], group)?;
        let down = Op::RoutedLinear { experts: vec![mlp.down], biases: Vec::new() };
        Ok(graph.add(down, &[gated, routes], group)?)
    }
}

/// A matrix `[N, K]` of every expert and its bias, in a tensor whose rows are those of several matrices in turn.
struct Turn<'a> {
    /// The tensor's name; with `_bias` that of the biases.
    name: &'a str,
    /// How many matrices take turns.
    of: usize,
    /// The first row.
    first: usize,
    /// How many experts there are.
    count: usize,
    shape: [usize; 2],
}

impl Turn<'_> {
    fn find(&self, list: &mut WeightList<'_>) -> Result<OfExperts, ModelError> {
        let Self { name, of, first, count, shape } = *self;
        let [rows, columns] = shape;
        let all = of * rows;
        let is_swapped = list.is_dense(name);
        let (stored, start, row_step, column_step) = match is_swapped {
            true => ([count, columns, all], first, of, all),
            false => ([count, all, columns], first * columns, of * columns, 1),
        };
        let each = |number| Elements { first: number * all * columns + start, row_step, column_step };
        let matrices = list.spread(name, &stored, shape, (0..count).map(each))?;
        let each = |number| Elements { first: number * all + first, row_step: all, column_step: of };
        let biases = list.spread(&format!("{name}_bias"), &[count, all], [1, rows], (0..count).map(each))?;
        Ok(OfExperts { matrices, biases })
    }
}
