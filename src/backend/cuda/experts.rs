//! Routes of rows, and products with the matrices of the experts that they lead to.

use ygg_kernels::{
    Gating, Nonlinearity, RouteVector, Routing,
    cuda::{abi::*, packing::Layout},
};

use crate::ir::{Op, Program, Region, Step, WeightId};

use super::{
    super::BackendError,
    device::Launch,
    launches::{Launches, float, float_mut, function},
    layout::number,
    scratch::{TILE_W, row_tiles},
};

const _: () = assert!(Routing::MOST_USED == YGG_MOST_USED as usize, "as many as a kernel has room for");

/// Pieces that so many rows with `used` experts each make at most.
pub(super) fn most_pieces(rows: usize, used: usize, experts: usize) -> usize {
    // Each expert that is used has a first row; the others of a piece are less than a piece of their own.
    let parts = rows * used;
    let first = experts.min(parts);
    first + (parts - first) / TILE_W
}

/// Bytes of the pieces of an op: their number, then what they are.
pub(super) fn pieces_bytes(rows: usize, used: usize, experts: usize) -> usize {
    size_of::<u32>() + most_pieces(rows, used, experts) * size_of::<YggPiece>()
}

/// Products with experts: a pair for each, or one matrix.
pub(super) struct RoutedProducts<'a> {
    experts: &'a [WeightId],
    biases: &'a [WeightId],
    /// Of pairs.
    function: Option<Nonlinearity>,
}

impl<'a> RoutedProducts<'a> {
    pub(super) fn of(op: &'a Op) -> Option<Self> {
        match op {
            Op::RoutedGated { function, experts, biases } => {
                Some(Self { experts, biases, function: Some(*function) })
            }
            Op::RoutedLinear { experts, biases } => Some(Self { experts, biases, function: None }),
            _ => None,
        }
    }

    /// Experts, each with its pair or its matrix.
    pub(super) fn count(&self) -> usize {
        if self.function.is_some() { self.experts.len() / 2 } else { self.experts.len() }
    }

    /// Outputs of a matrix.
    pub(super) fn outputs(&self, program: &Program) -> usize {
        program.weights[self.experts[0].0 as usize].rows
    }

    /// Inputs of a matrix.
    pub(super) fn columns(&self, program: &Program) -> usize {
        program.weights[self.experts[0].0 as usize].columns
    }

    /// Rows that are multiplied, each with one matrix or more: those of the forward, or the parts of each.
    pub(super) fn prepared_rows(&self, rows: usize, used: usize) -> usize {
        if self.function.is_some() { rows } else { rows * used }
    }
}

impl Launches<'_> {
    pub(super) fn route(
        &self,
        step: YggStep,
        scores: YggRows,
        (routing, vector): (&Routing, Option<RouteVector<WeightId>>),
        out: YggRows,
    ) -> Result<Vec<Launch>, BackendError> {
        let [mut bias, mut factors] = [std::ptr::null(); 2];
        match vector {
            None => {}
            Some(RouteVector::Bias(id)) => bias = float(self.weights.vector(id)),
            Some(RouteVector::Factors(id)) => factors = float(self.weights.vector(id)),
        }
        let params = YggRoute {
            step,
            scores,
            bias,
            factors,
            used: number(routing.used),
            is_sigmoid: u32::from(routing.gating == Gating::Sigmoid),
            is_normalised: u32::from(routing.normalised.is_some()),
            least: routing.normalised.unwrap_or(0.0),
            scale: routing.scale,
            out,
        };
        Ok(vec![self.launch("ygg_route", [out.rows as usize, 1, 1], YGG_WARP, 0, params)?])
    }

    /// Products of the rows `operands[0]` with the experts that the routes `operands[1]` say.
    pub(super) fn routed(
        &mut self,
        in_step: YggStep,
        step: &Step,
        written: Option<Region>,
        next: YggFragments,
    ) -> Result<Vec<Launch>, BackendError> {
        let products = RoutedProducts::of(&step.op).expect("products with experts");
        let region = |i: usize| step.operands[i].region().expect("rows and routes have bytes");
        let (x, routes) = (region(0), region(1));
        let out = self.rows(&step.result.region().expect("the step has a result"));
        let (rows, used) = (x.rows, routes.columns / 2);
        let most = most_pieces(rows, used, products.count());
        let count = self.at.scratch.pieces as *mut u32;
        let pieces = (self.at.scratch.pieces + size_of::<u32>() as u64) as *mut YggPiece;
        let mut launches = Vec::new();
        // Routes that were grouped for the step before are so still.
        if self.grouped != Some(routes) {
            self.grouped = Some(routes);
            let routes = self.rows(&routes);
            let group = YggGroup { step: in_step, routes, count, pieces };
            launches.push(self.launch("ygg_group", [1, 1, 1], YGG_ROW_THREADS, 0, group)?);
        }

        let (weights, matrix_bytes) = self.weights.experts(products.experts);
        let is_gated = products.function.is_some();
        let sharing = if is_gated { used } else { 1 };
        let prepared = products.prepared_rows(rows, used);
        let tiles = row_tiles(prepared);
        let turn = if next.data.is_null() { self.turn } else { 1 - self.turn };
        let fragments = self.at.scratch.fragments[turn];
        if written != Some(x) {
            let part = YggRows { columns: number(weights.columns), ..self.rows(&x) };
            let to = (fragments, prepared / rows);
            launches.push(self.prepare(in_step, part, None, weights.layout, to)?);
        }

        // Parts are summed by a kernel of its own, since any expert may be the last of a row to be multiplied.
        let columns = number(weights.outputs);
        let parts = self.at.scratch.parts as *mut f32;
        let to = if is_gated {
            YggRows { columns, ..out }
        } else {
            YggRows { data: parts, rows: out.rows, columns, stride: columns * number(used) }
        };
        let linear = YggLinear {
            step: in_step,
            fragments: fragments as *const _,
            codes: weights.codes as *const _,
            scales: weights.scales as *const _,
            up_codes: std::ptr::null(),
            up_scales: std::ptr::null(),
            out: to,
            next,
            tiles_k: number(weights.columns.div_ceil(YGG_TILE_K as usize)),
            columns: number(weights.columns),
            residual: 0,
            function: function(products.function.unwrap_or(Nonlinearity::Silu)),
            projection: self.projection(None),
            bias: float(self.weights.biases(products.biases, None)),
            parts: float_mut(0),
        };
        let params = YggRouted {
            linear,
            matrix_bytes: matrix_bytes as u64,
            ups: if is_gated { number(products.count()) } else { 0 },
            used: number(used),
            sharing: number(sharing),
            row_tiles: number(tiles),
            count,
            pieces,
        };
        let kind = if is_gated && weights.layout != Layout::F32 { "routed_gated" } else { "routed" };
        let name = format!("ygg_{kind}_{}", weights.layout.name());
        let grid = if weights.layout == Layout::F32 {
            [weights.outputs.div_ceil(YGG_SPLIT_K as usize), most, 1]
        } else {
            let at_once = self.device.blocks_at_once(&name, YGG_LINEAR_THREADS, 0)?;
            [(most * weights.outputs.div_ceil(YGG_TILE_N as usize)).min(at_once), 1, 1]
        };
        launches.push(self.launch(&name, grid, YGG_LINEAR_THREADS, 0, params)?);
        if !is_gated {
            let params = YggRoutedJoin { step: in_step, routes: self.rows(&routes), products: parts, out };
            launches.extend(self.by_rows("ygg_routed_join", out.rows, params)?);
        }
        Ok(launches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_suffice_for_the_worst_routes() {
        // One row: a piece for each of its experts. Few experts: full pieces, and one that is not full of each.
        assert_eq!(most_pieces(1, 8, 128), 8);
        assert_eq!(most_pieces(64, 2, 8), 8 + (128 - 8) / 8);
        assert_eq!(most_pieces(64, 8, 128), 128 + (512 - 128) / 8);
        // Every expert has one row more than fills its pieces.
        assert_eq!(most_pieces(9, 4, 4), 4 * 2);
    }
}
