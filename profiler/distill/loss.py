"""The loss of a drafter's head: the verifier's best tokens as a distribution, and the best of them alone, against logits.

Logits of a step's rows are the largest tensors of training, and their softmax and its gradient were over a third of a step's time, most
of it on memory that is touched once. So both are made together, for a few rows at a time, and the gradient takes the logits' place.
"""

import torch
from torch.nn import functional

ROWS = 64
"""Rows whose logits are numbers of 32 bits at a time: with 9,000 tokens 2 MB, which a second-level cache holds."""

MULTIPLE = 128
"""Products have a multiple of so many rows, the last of them zeros: else nearly every step has a shape that none had before."""


def head_loss(
    rows: torch.Tensor, matrix: torch.Tensor, correction: torch.Tensor, wanted: torch.Tensor, found: torch.Tensor, hard: float
) -> torch.Tensor:
    """The mean over rows [R, D] of the loss of their logits, products with `matrix` [K, D] in bfloat16, plus `correction` [K].

    `wanted` [R, T] are shares, which add up to 1, of the tokens of the columns `found` [R, T]; `hard` is the weight of the
    largest alone.
    """
    return _HeadLoss.apply(rows, matrix, correction, wanted, found, hard)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(context, rows, matrix, correction, wanted, found, hard):
        count = len(rows)
        rows, matrix = functional.pad(rows.bfloat16(), (0, 0, 0, -count % MULTIPLE)), matrix.bfloat16()
        gradient = rows @ matrix.T
        gradient[count:] = 0
        wanted = (1 - hard) * wanted + hard * torch.zeros_like(wanted).scatter_(1, wanted.argmax(-1, keepdim=True), 1.0)
        loss = torch.zeros((), device=rows.device)
        for first in range(0, count, ROWS):
            part = slice(first, min(first + ROWS, count))
            logits = gradient[part].float().add_(correction)
            total = logits.logsumexp(-1, keepdim=True)
            loss += (total[:, 0] - (wanted[part] * logits.gather(-1, found[part])).sum(-1)).sum()
            logits.sub_(total).exp_().scatter_add_(1, found[part], -wanted[part])
            gradient[part] = logits.mul_(1 / count)
        context.save_for_backward(gradient, rows, matrix)
        context.count = count
        return loss / max(count, 1)

    @staticmethod
    def backward(context, scale):
        gradient, rows, matrix = context.saved_tensors
        of_rows = (gradient @ matrix)[: context.count].float() * scale
        of_matrix = (gradient.T @ rows).float() * scale if context.needs_input_grad[1] else None
        return of_rows, of_matrix, None, None, None, None
