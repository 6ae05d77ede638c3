//! Which kernel computes a value: by rule from its op and the format of its matrices.

use ygg_kernels::{KernelId, OpKind, WeightFormat};

use super::CompileError;
use crate::ir::{Graph, KernelChoice, Op, ValueId, WeightId};

/// The kernel of a value; none for row inputs and views, which are no steps.
///
/// # Errors
/// [`CompileError::Kernel`] if one op has matrices of several formats.
pub(super) fn select_kernel(
    graph: &Graph,
    value: ValueId,
    choice: &KernelChoice,
) -> Result<Option<KernelId>, CompileError> {
    let op = &graph.node(value).op;
    let one_format = |weights: &[WeightId]| -> Result<Option<WeightFormat>, CompileError> {
        let formats: Vec<_> = weights.iter().map(|w| graph.weight(*w).format).collect();
        if formats.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(formats.first().copied());
        }
        Err(CompileError::Kernel {
            value: value.to_string(),
            op: op.name(),
            expected: "matrices of one format",
            found: format!("{formats:?}"),
        })
    };
    let (kind, format) = match op {
        Op::Input(_) | Op::Slice { .. } => return Ok(None),
        Op::Embed { weight } => (OpKind::Embed, one_format(&[*weight])?),
        Op::Linear { weights, .. } => (OpKind::Linear, one_format(weights)?),
        Op::GatedLinear { gate, up, .. } => (OpKind::LinearGated, one_format(&[*gate, *up])?),
        Op::RmsNorm(_) => (OpKind::RmsNorm, None),
        Op::Gate(_) => (OpKind::Gate, None),
        Op::Rope(_) => (OpKind::Rope, None),
        Op::AppendKv { .. } => (OpKind::AppendKv, None),
        Op::Attention { .. } => (OpKind::Attention, None),
        Op::ShortConv { .. } => (OpKind::ShortConv, None),
        Op::Recurrence { .. } => (OpKind::Recurrence, None),
        Op::Route { .. } => (OpKind::Route, None),
        Op::RoutedGated { experts, .. } => (OpKind::RoutedGated, one_format(experts)?),
        Op::RoutedLinear { experts, .. } => (OpKind::RoutedLinear, one_format(experts)?),
        Op::Add => (OpKind::Add, None),
        Op::Scale { .. } => (OpKind::Scale, None),
        Op::Softcap { .. } => (OpKind::Softcap, None),
        Op::SelectRows | Op::GivenRows { .. } => (OpKind::SelectRows, None),
        Op::Candidates { head, .. } => {
            let format = head.as_ref().map(|head| one_format(&head.weights)).transpose()?;
            (OpKind::Candidates, format.flatten())
        }
    };
    Ok(Some(choice.kernel(kind, format)))
}
