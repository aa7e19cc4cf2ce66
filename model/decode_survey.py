"""What replies will be decoded with here, and why: packed weights, and the compiled step.

Asks what a start would ask, without loading or compiling anything.
"""

from dataclasses import dataclass
from pathlib import Path

from model.assembly import choose_attention, choose_device
from model.compiled import commission
from model.compiled.faults import faults_in
from model.config import AttentionName, CompileMode, EngineConfig, Quantization
from model.errors import ModelLoadError
from model.gguf import PACKED
from model.gguf_codes import has_codes
from model.native.build import find_compiler, library_path
from model.provision import ModelSource, SourceKind
from model.quantization import reason_against


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSurvey:
    """What `quantization` and the compiled step come to. A reason says why weights stay as they
    are, or why no step is compiled; None: they don't, or one is. `faults` tell of compiled steps
    that ended a process and are left alone."""

    quantization: Quantization
    quantization_reason: str | None
    compile: CompileMode
    compile_reason: str | None
    faults: tuple[Path, ...] = ()


def survey_decoding(source: ModelSource, config: EngineConfig) -> DecodeSurvey:
    """Look at one model. Raises ModelLoadError when what is asked for by name can't be."""
    has_kernels = library_path(config.native_dir).exists() or find_compiler() is not None
    compile_reason = _reason_against_compiling(config, has_kernels=has_kernels)
    return DecodeSurvey(
        quantization=config.quantization,
        quantization_reason=_reason_against_quantising(source, config, has_kernels=has_kernels),
        compile=config.compile,
        compile_reason=compile_reason,
        faults=faults_in(config.native_dir.expanduser()) if compile_reason is None else (),
    )


def _reason_against_quantising(
    source: ModelSource, config: EngineConfig, *, has_kernels: bool
) -> str | None:
    device = choose_device(config.device)
    reason = reason_against(config, device, has_packed=_has_packed(source))
    if reason is None and not has_kernels:
        if config.quantization is not Quantization.AUTO:
            raise ModelLoadError(
                f"quantization {config.quantization} needs compiled kernels: no C++ compiler is "
                "installed"
            )
        return "no C++ compiler is installed"
    return reason


def _has_packed(source: ModelSource) -> bool:
    if source.kind is SourceKind.FOLDER:
        return (source.path / PACKED).exists()
    try:
        return has_codes(source.path)
    except (OSError, ValueError) as exc:
        raise ModelLoadError(f"{source.path} can't be read: {exc}") from exc


def _reason_against_compiling(config: EngineConfig, *, has_kernels: bool) -> str | None:
    if config.compile is CompileMode.OFF:
        return "--compile off asks for none"
    attention = choose_attention(config, choose_device(config.device))
    if attention is AttentionName.CPU and not has_kernels:
        attention = AttentionName.BATCHED
    reason = commission.reason_against(config, attention)
    if reason is None and find_compiler() is None:
        return "no C++ compiler is installed"
    return reason
