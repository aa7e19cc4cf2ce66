"""Every text-generating architecture of the installed transformers, listed or not: what gets past
the load is exact."""

import random
from collections import defaultdict

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.dense import VOCAB_SIZE, DenseOracle, build_model
from benchmarks.driver import Prompt, RawTokenizer, run, run_together
from benchmarks.tiny_configs import WINDOW, tiny_config
from model.assembly import build_core
from model.attention.base import IMPLEMENTATION, register
from model.attention.batched import BatchedBackend
from model.config import EngineConfig
from model.errors import ModelLoadError
from model.support import refuse_unsupported, refuse_unsupported_weights

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

# Sizes under names that only some architectures know.
SIZES = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "max_window_layers"), 2),
    **dict.fromkeys(("ffn_dim", "mlp_dim"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("hidden_size_per_layer_input", "global_head_dim", "kv_channels"), 8),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    "sliding_window": WINDOW,
    "use_sliding_window": True,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "word_embed_proj_dim": 48,
    "num_global_key_value_heads": 2,
    "rotary_dim": 4,
}
# Whose defaults no small sizes fit.
CANNOT_BE_MADE = (ValueError, TypeError, KeyError, AttributeError, StrictDataclassError)


def config_of(model_type: str) -> PreTrainedConfig:
    known = {*CONFIG_MAPPING[model_type]().to_dict(), "use_sliding_window"}
    return tiny_config(model_type, **{k: v for k, v in SIZES.items() if k in known})


def outcome_of(model_type: str) -> str:
    try:
        config = config_of(model_type)
        refuse_unsupported(config)
        oracle, model = DenseOracle(config), build_model(config, IMPLEMENTATION)
    except ModelLoadError:
        return "refused"
    except CANNOT_BE_MADE:
        return "cannot be made tiny"
    settings = EngineConfig(num_blocks=64, block_size=4, token_budget=16, poison_blocks=True)
    try:
        refuse_unsupported_weights(model, config.model_type)
        backend = BatchedBackend(torch.device("cpu"))
        core = build_core(settings, model, backend, RawTokenizer(), identity="tiny", eos=())
    except ModelLoadError:
        return "refused"
    ids = random.Random(5)
    first = Prompt(name="a", token_ids=[ids.randrange(VOCAB_SIZE) for _ in range(3 * WINDOW)])
    log = [*first.token_ids, *run(core, first, 5).token_ids]
    prompts = [
        Prompt(name="b", token_ids=[*log, 1, 2, 3], parent="a"),
        Prompt(name="c", token_ids=log[: 2 * WINDOW], conversation="d"),
    ]
    try:
        oracle.assert_greedy(first.token_ids, log[len(first.token_ids) :])
        for prompt, reply in zip(prompts, run_together(core, prompts, 5), strict=True):
            oracle.assert_greedy(prompt.token_ids, reply.token_ids)
    except AssertionError:
        return "differs"
    return "exact"


def test_every_architecture_that_is_not_refused_is_exact():
    register()
    outcomes = defaultdict(list)

    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        outcomes[outcome_of(model_type)].append(model_type)

    print(dict(outcomes))
    assert "differs" not in outcomes
    assert len(outcomes["exact"]) > 50
    assert len(outcomes["refused"]) > 80
    assert len(outcomes["cannot be made tiny"]) < 30
