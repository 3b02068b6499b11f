"""The options of ``PassContext(config={...})``: one registry of names with types, defaults and what they do.

TVM's newer prefixes ``tirx.`` and ``s_tir.`` name the same options as ``tir.``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from weft.error import InvalidArgument


class ConfigOption(NamedTuple):
    """An option: ``type`` is a class, the fields of a mapping with their classes, or a tuple of all values allowed."""

    type: Any
    default: Any
    doc: str


class UnknownOption(InvalidArgument, AttributeError):
    """No pass has an option of that name, or its value is no record. It is an AttributeError too, as in TVM."""


class ConfigRecord(dict[str, Any]):
    """The options of one pass: what was given, by key; as attributes, also the defaults of what was not."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._defaults = defaults

    def __getattr__(self, name: str) -> Any:
        found = self.get(name, self.__dict__.get("_defaults", {}).get(name))
        if found is None:
            raise AttributeError(f"no option '{name}'")
        return found


def own_option(name: str) -> str:
    """Return the name of an option here: TVM's newer prefixes ``tirx.`` and ``s_tir.`` mean ``tir.``."""
    prefix, _, rest = name.partition(".")
    return f"tir.{rest}" if prefix in ("tirx", "s_tir") and name not in _OPTIONS else name


class Config(dict[str, Any]):
    """The options of a context, found under TVM's newer names, too."""

    def __missing__(self, name: str) -> Any:
        own = own_option(str(name))
        if own == name:
            raise KeyError(name)
        return self[own]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(own_option(str(name)))

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option, or `default`."""
        return super().get(own_option(name), default)


_NOTHING = "accepted for TVM's programs; nothing here depends on it"
_OPTIONS = {
    **{
        name: ConfigOption({k: type(v) for k, v in defaults.items()}, defaults, f"options of {name[4:]}")
        for name, defaults in {
            "tir.LoopPartition": {
                "partition_const_loop": False,
                "no_unroll_loop_with_extent_one": False,
                "unroll_loop_with_partition_hint_no_interval": False,
            },
            "tir.InjectDoubleBuffer": {"split_loop": 1},
            "tir.UnrollLoop": {
                "auto_max_step": 0,
                "auto_max_depth": 8,
                "auto_max_extent": 0,
                "explicit_unroll": True,
                "unroll_local_access": False,
            },
        }.items()
    },
    "tir.add_lower_pass": ConfigOption(Collection, (), "pairs (phase, pass): passes of the user's, behind a phase"),
    "tir.disable_cse_tir": ConfigOption(bool, True, "whether CommonSubexprElim is left out"),
    "tir.disable_storage_rewrite": ConfigOption(bool, False, "whether StorageRewrite is left out"),
    "tir.disable_vectorize": ConfigOption(bool, False, "whether vector loops become serial ones"),
    "tir.instrument_bound_checkers": ConfigOption(bool, False, "whether kernels check their indices"),
    "relay.FuseOps.max_depth": ConfigOption(int, 256, "the most operators of a fused function"),
    "tir.noalias": ConfigOption(bool, True, "whether the buffers of a schedule's different parameters do not overlap"),
    "tune.database": ConfigOption(object, None, "a tuning database, or the path of one"),
    **{
        name: ConfigOption(kind, None, _NOTHING)
        for kind, names in {
            bool: """tir.detect_global_barrier tir.disable_assert tir.enable_debug tir.is_entry_func tir.ptx_ldg32
            tir.enable_equiv_terms_in_cse_tir tir.debug_keep_trivial_loop tir.use_async_copy tir.merge_static_smem
            tir.instrument_lwp tir.experimental_dma_bypass_cache tir.dma_bypass_cache tir.usmp.enable
            tir.usmp.use_workspace_io tir.enable_buffer_level_predication relay.backend.use_auto_scheduler
            relay.backend.use_meta_schedule relay.backend.disable_compile_engine_cache relay.frontend.fill_span
            relay.backend.disable_memory_plan relay.FuseOps.link_params relax.backend.use_cuda_graph
            relay.ToMixedPrecision.keep_orig_output_dtype relax.transform.apply_legalize_ops
            relax.lift_transform_params.consume_params testing.immutable_module tir.enable_fast_math
            tir.instr_siblings tir.lwp_disable_func_prof tir.reset_start_id tir.ptx.ldg32 te.keep_schedule_record
            relay.remove_standalone_reshapes.enable ir.enable_si_builder""",
            int: """tir.vtcm_capacity tir.lwp_max_depth tir.lwp_min_height relay.collage.byoc_max_depth
            relay.collage.tvm_max_depth relay.backend.use_meta_schedule_dispatch relay.fallback_device_type
            relax.fallback_device_type relax.FuseOps.max_depth""",
            str: "tir.usmp.algorithm relay.backend.tir_converter cuda.kernels_output_dir",
            Mapping: "tir.HoistIfThenElse tir.HoistExpression tir.RemoveNoOp tir.Simplify tir.StmtSimplify",
        }.items()
        for name in names.split()
    },
}


def register_config_option(name: str, type: type, default: object = None, doc: str = "") -> None:
    """Add an option, for passes of the user's own to read from ``PassContext.current().config``."""
    _OPTIONS[name] = ConfigOption(type, default, doc)


def config_options() -> Mapping[str, ConfigOption]:
    """Return all options by name."""
    return dict(_OPTIONS)


def checked_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a context's options under their names.

    Raises
    ------
    UnknownOption
        When there is no such option, with near names.
    InvalidArgument
        When a value is of another type.
    """
    found = Config()
    for given, value in (config or {}).items():
        name = own_option(str(given))
        if name not in _OPTIONS:
            raise UnknownOption(
                f"no pass has an option '{given}'",
                where="PassContext(config=...)",
                help=f"{near_names(str(name), _OPTIONS)}, or weft.ir.register_config_option('{given}', type)",
            )
        found[name] = _checked(str(given), _OPTIONS[name].type, value)
    return found


def _checked(name: str, wanted: Any, value: Any) -> Any:
    number = getattr(value, "value", value)  # of an IntImm, as TVM's programs may give
    number = number.item() if hasattr(number, "item") else number
    if isinstance(wanted, tuple):
        if number in wanted:
            return number
        raise InvalidArgument(
            f"'{name}' cannot be {value!r}", where="PassContext(config=...)", expected=", ".join(map(repr, wanted))
        )
    fields = wanted if isinstance(wanted, Mapping) else None
    kinds: tuple[Any, ...] = (Mapping,) if fields is not None else (bool, int) if wanted is bool else (wanted,)
    if wanted in (bool, int) and isinstance(number, kinds):
        return wanted(number)
    if not isinstance(value, kinds) or (wanted is Collection and isinstance(value, str)):
        raise (InvalidArgument if fields is None else UnknownOption)(
            f"the option '{name}' has a value of a wrong type",
            where="PassContext(config=...)",
            expected=kinds[0].__name__,
            found=repr(value),
        )
    for key in (fields and set(value) - set(fields)) or ():
        raise InvalidArgument(f"{name} has no option '{key}'", expected=", ".join(fields or ()))
    if fields is None:
        return value
    return ConfigRecord(
        {k: _checked(f"{name}.{k}", fields[k], v) for k, v in value.items()}, _OPTIONS[own_option(name)].default
    )


def near_names(name: str, names: Collection[str]) -> str:
    """Say which names are like one that is unknown."""
    lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), lower, 3, 0.5)
    return f"near names: {', '.join(lower[n] for n in found)}" if found else f"known: {', '.join(sorted(names))}"
