"""A compiled step is held against what the engine computes without it."""

import pytest
import torch

from benchmarks.dense import build_model, tiny_llama
from model.attention.base import IMPLEMENTATION, Step, register
from model.attention.cpu import CpuBackend
from model.compiled.probe import Probe
from model.runner import ModelShape
from model.self_check import plain_logits
from tests.support.native_kernels import native_ops


class ByEmbeddings:
    """Stands for a compiled step: the model's own modules, from embeddings on."""

    def __init__(self, model, windows, *, change=lambda logits: logits):
        self._model, self._windows, self._change = model, windows, change

    def run(self, embeddings, batch, plan, cache):
        output = self._model(
            inputs_embeds=embeddings[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.logits_rows,
            splice_step=Step(cache, batch, plan, self._windows),
        )
        return self._change(output.logits[0].float())


@pytest.fixture
def model():
    register()
    return build_model(tiny_llama(), IMPLEMENTATION)


def probe_of(model):
    shape = ModelShape.of(model)
    return Probe(model, shape.windows, shape.kv_shape(4, model.dtype), CpuBackend(native_ops()))


def test_the_models_own_answers_pass_and_are_told_apart_from_others(model):
    probe, windows = probe_of(model), (None,) * model.config.num_hidden_layers

    probe.check(ByEmbeddings(model, windows))
    assert probe.error(ByEmbeddings(model, windows)) < 1e-5
    assert probe.embedding_size == model.config.hidden_size
    for change in (
        lambda logits: logits.roll(1, -1),
        lambda logits: torch.where(torch.arange(len(logits))[:, None] == 2, -logits, logits),
        lambda logits: logits * torch.nan,
    ):
        with pytest.raises(ValueError, match="its answers are not the model's"):
            probe.check(ByEmbeddings(model, windows, change=change))


def test_what_it_is_held_against_are_the_models_answers_to_whole_texts(model):
    """Rounding makes other answers behind keys and values that no text has."""
    seen = []
    model.register_forward_pre_hook(
        lambda _module, _arguments, options: seen.append(options["input_ids"][0].tolist()),
        with_kwargs=True,
    )
    probe = probe_of(model)
    (history, row), (histories, rows), (before, chunks) = seen[-6:-4], seen[-4:-2], seen[-2:]
    texts = [history + row, rows[:1], histories[:9] + rows[1:2], histories[9:] + rows[2:]]
    texts += [chunks[:5], before[:20] + chunks[5:11], before[20:] + chunks[11:]]
    answers = torch.cat([sample.logits for sample in probe._samples])

    assert [len(text) for text in texts] == [6, 1, 10, 32, 5, 26, 4]
    for text, answer in zip(texts, answers, strict=True):
        torch.testing.assert_close(plain_logits(model, text)[-1], answer, rtol=1e-4, atol=1e-4)


def test_a_model_that_makes_more_of_its_ids_than_embeddings_is_told_apart(model):
    def add_what_ids_say(_module, _arguments, options, output):
        if options.get("input_ids") is not None:
            output.logits = output.logits + 5 * torch.randn(
                output.logits.shape, generator=torch.Generator().manual_seed(0)
            )
        return output

    windows = (None,) * model.config.num_hidden_layers
    model.register_forward_hook(add_what_ids_say, with_kwargs=True)

    with pytest.raises(ValueError, match="its answers are not the model's"):
        probe_of(model).check(ByEmbeddings(model, windows))
