"""A step as a graph: transformers' own modules traced once, attention as one operator.

Its input is what decides a step: embeddings `[T, E]`, positions `[T]`, the cache
`[N, L, 2, P, K, D]`, places `[2, T]`, tables end to end `[M]` and sequences `[B, 4]` as
`attention.cpu` lays them out, and the rows `[R]` whose logits are wanted. Its output is these,
float32 `[R, V]`. T, N, M, B and R vary from step to step. The embedding itself stays outside, so
that what enters it is counted as ever.
"""

from collections import defaultdict
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram

from model.attention.base import AttentionSpec
from model.compiled.order import LEAST_ROWS, BuildOrder
from model.native.operators import NativeOps

_EXAMPLE = {"T": LEAST_ROWS, "N": 6, "M": 7, "B": 3, "R": 2}


@dataclass(frozen=True, slots=True, eq=False)
class TracedStep:
    """What the attention function is called in, while a step is traced."""

    ops: NativeOps
    kv: torch.Tensor
    lists: tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # places, tables, sequences
    windows: tuple[int | None, ...]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        """See `attention.base.PagedStep`."""
        rows = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
        options = (spec.scaling, spec.window or 0, spec.softcap or 0.0, -1)
        return self.ops.attend_step(self.kv, *rows, *self.lists, layer, *options)


class WholeStep(nn.Module):
    """The module that is traced."""

    def __init__(self, model: nn.Module, ops: NativeOps, windows: tuple[int | None, ...]) -> None:
        super().__init__()
        self.model = model
        self._ops = ops
        self._windows = windows

    def forward(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        kv: torch.Tensor,
        places: torch.Tensor,
        tables: torch.Tensor,
        sequences: torch.Tensor,
        logits_rows: torch.Tensor,
    ) -> torch.Tensor:
        """The logits, float32 `[R, V]`."""
        step = TracedStep(self._ops, kv, (places, tables, sequences), self._windows)
        output = self.model(
            inputs_embeds=embeddings[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=logits_rows,
            splice_step=step,
        )
        logits: torch.Tensor = output.logits[0].float()
        return logits


def trace(order: BuildOrder, model: nn.Module, ops: NativeOps) -> ExportedProgram:
    """The graph. Raises whatever torch finds that it can't capture."""
    rows = Dim("T", min=1, max=order.max_rows)
    with torch.no_grad():
        program = torch.export.export(
            WholeStep(model, ops, order.windows).eval(),
            _example(order),
            dynamic_shapes=(
                {0: rows},
                {0: rows},
                {0: Dim("N", min=2)},
                {1: rows},
                {0: Dim("M", min=1)},
                {0: Dim("B", min=1)},
                {0: Dim("R", min=1, max=order.max_rows)},
            ),
            strict=False,
        )
    joinable: tuple[Any, ...] = (ops.linears, ops.linears_packed)
    join_linears(program.graph_module, [operator.default for operator in joinable])
    return program


def _example(order: BuildOrder) -> tuple[torch.Tensor, ...]:
    kv, rows = order.kv, _EXAMPLE["T"]
    blocks = (_EXAMPLE["N"], kv.num_layers, 2, kv.block_size, kv.num_kv_heads, kv.head_size)
    return (
        torch.zeros(rows, order.embedding_size, dtype=order.dtype),
        torch.zeros(rows, dtype=torch.long),
        torch.zeros(blocks, dtype=kv.dtype),
        torch.zeros(2, rows, dtype=torch.long),
        torch.zeros(_EXAMPLE["M"], dtype=torch.long),
        torch.zeros(_EXAMPLE["B"], 4, dtype=torch.long),
        torch.zeros(_EXAMPLE["R"], dtype=torch.long),
    )


def join_linears(module: fx.GraphModule, operators: Items[object]) -> int:
    """Let layers of the same input (query, key and value; gate and up) be one call, whose outputs
    lie side by side; how many calls that saved."""
    groups: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in operators:
            inputs, parameters, _, *rest = node.args
            groups[node.target, inputs, len(parameters), *rest].append(node)
    shared = [nodes for nodes in groups.values() if len(nodes) > 1]
    for nodes in shared:
        _join(module.graph, nodes)
    module.recompile()
    return sum(len(nodes) - 1 for nodes in shared)


def _join(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    first: Any = nodes[0]
    inputs, _, _, *rest = first.args
    # Each node has its weight, and a bias behind it or none: all weights come first.
    parameters = [item for items in zip(*(n.args[1] for n in nodes), strict=True) for item in items]
    sizes = [node.meta["val"].shape[-1] for node in nodes]
    with graph.inserting_before(first):
        joined = graph.call_function(first.target, (inputs, parameters, sizes, *rest))
        joined.meta["val"] = torch.cat([node.meta["val"] for node in nodes], dim=-1)
        ends = pairwise(accumulate(sizes, initial=0))
        for node, (begin, end) in zip(nodes, ends, strict=True):
            arguments = (joined, node.meta["val"].dim() - 1, begin, end)
            part = graph.call_function(torch.ops.aten.slice.Tensor, arguments)
            part.meta["val"] = part.target(joined.meta["val"], *arguments[1:])  # type: ignore[operator]
            node.replace_all_uses_with(part)
    for node in nodes:
        graph.erase_node(node)
