"""The model and the device: is it there, whole and served, and is there memory for it?"""

from app.doctor.finding import Finding, Findings, size
from app.settings import Settings
from model import provision
from model.config import CompileMode, Quantization
from model.decode_survey import DecodeSurvey, survey_decoding
from model.errors import ModelLoadError
from model.provision import ModelSource
from model.survey import (
    DeviceSurvey,
    ModelSurvey,
    check_files,
    pool_bytes,
    survey_device,
    survey_model,
)

# Without either, products of matrices take many times as long.
_USUAL_FEATURES = {"avx2", "asimd"}
_WEIGHTS = {
    Quantization.AUTO: "those that the model's file has in 4 and 8 bits as they are there",
    Quantization.INT8: "8 bits, or the 4 that the model's file has",
    Quantization.INT4: "4 bits, the head in 8",
}
_WHEN = {
    CompileMode.AUTO: "while nobody computes",
    CompileMode.FIRST: "before the server is ready",
}


def check_engine(settings: Settings) -> list[Finding]:
    """Everything about the model and what it runs on."""
    device = Findings("device")
    surveyed = _look_at_device(device, settings)
    model = Findings("model")
    source = _find(model, settings)
    if source is not None and surveyed is not None:
        with model.failing(ModelLoadError):
            needs = survey_model(source, settings.engine_config())
            model.ok(
                f"{source.model_id} is of type {needs.model_type}, which is served, with up to "
                f"{needs.max_context_tokens:,} tokens of context"
            )
            _compare(device, settings, surveyed, needs)
            with device.failing(ModelLoadError):
                _look_at_decoding(device, survey_decoding(source, settings.engine_config()))
    return [*model.all, *device.all]


def _find(model: Findings, settings: Settings) -> ModelSource | None:
    with model.failing(ModelLoadError):
        source = provision.find(settings.model, settings.models_dir)
        if source is None:
            model.warn(
                f"the model {settings.model!r} is not on this machine yet",
                "the first start fetches it, or `splice models fetch` does now",
            )
            return None
        model.ok(check_files(source, settings.model))
        return source
    return None


def _look_at_device(device: Findings, settings: Settings) -> DeviceSurvey | None:
    with device.failing(ModelLoadError):
        found = survey_device(settings.engine_config())
        memory = f"{size(found.free_bytes)} of {size(found.total_bytes)} free"
        if found.is_cuda:
            device.ok(f"CUDA: {found.name}, computes in {found.dtype}, {memory}")
            return found
        features = ", ".join(found.cpu_features) or "features unknown"
        device.ok(
            f"CPU: {found.num_cpus} of {found.name} ({features}), {found.num_threads} threads, "
            f"computes in {found.dtype}, {memory}"
        )
        _look_at_cpu(device, found)
        return found
    return None


def _look_at_cpu(device: Findings, found: DeviceSurvey) -> None:
    if found.has_driver:
        device.warn(
            "there is a CUDA card, and it is not used",
            "install a CUDA build of torch (README, “torch for your machine”), or leave out "
            "--device cpu",
        )
    if found.cpu_features and not _USUAL_FEATURES & set(found.cpu_features):
        device.warn("the CPU lacks AVX2", "expect a few tokens a second, or use another machine")
    if not found.has_kernels:
        device.warn(
            "there is no C++ compiler, so attention will run in plain torch, several times slower",
            "install g++ or clang; the first start then compiles what it needs",
        )
    if found.num_threads > found.num_cpus:
        device.warn(
            f"{found.num_threads} threads on {found.num_cpus} CPUs slow each other down",
            f"lower --num-threads to {found.num_cpus}, or leave it out",
        )


def _compare(device: Findings, settings: Settings, found: DeviceSurvey, needs: ModelSurvey) -> None:
    pool = pool_bytes(settings.engine_config(), needs.block_bytes)
    text = f"{size(needs.weights_bytes)} of weights and {size(pool)} of cache"
    if needs.weights_bytes + pool > found.free_bytes:
        device.fail(
            f"{text} don't fit into the {size(found.free_bytes)} that are free",
            "free memory, lower --cache-bytes, or serve a smaller model",
        )
        return
    num_tokens = pool // needs.block_bytes * settings.block_size
    device.ok(f"{text} fit; the cache holds about {num_tokens:,} tokens")
    if num_tokens < needs.max_context_tokens:
        device.warn(
            "one conversation at full length would not fit into the cache",
            "raise --cache-bytes, or know that conversations end earlier",
        )


def _look_at_decoding(device: Findings, found: DecodeSurvey) -> None:
    if found.quantization_reason is None:
        device.ok(f"weights to decode with: {_WEIGHTS[found.quantization]}")
    else:
        device.ok(f"weights to decode with: no others, for {found.quantization_reason}")
    if found.compile_reason is None:
        when = _WHEN[found.compile]
        device.ok(f"compiled step: taken up, and compiled {when} where there is none yet")
    else:
        device.ok(f"compiled step: none, for {found.compile_reason}")
    for path in found.faults:
        device.warn(
            f"a compiled step, of this model or another, ended the engine, as {path} tells",
            "it is used no more; remove that file to try it again, or serve with --compile off",
        )
