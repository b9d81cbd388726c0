"""tract: its ONNX loader, its NNEF files, its CPU runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from driftnet.targets.interface import STAGES, Answers, Feed, Option, Options, Rule, StageError, Target, unquantized
from driftnet.targets.snippet import FEEDS

T = TypeVar("T")


def preload() -> None:
    """Import tract, so that forked workers have it."""
    import tract  # noqa: F401


def convert(model: str, folder: str, options: Options) -> str:
    """The ONNX file as it is, or what tract makes of it, as `folder`/model.nnef.tar."""
    if options["format"] == "onnx":
        return model
    path = os.path.join(folder, "model.nnef.tar")
    _said(lambda: _nnef().write_model_to_tar(_typed(model, {}, options), path))
    return path


def execute(artifact: str, feeds: Sequence[Feed], outputs: Mapping[str, str], options: Options) -> Answers:
    """Run all feeds in one plan or, where shapes are those of the feed, in one for all of its shapes."""
    return _said(lambda: _executed(artifact, feeds, list(outputs), options))


def commands(options: Options) -> str:
    """The package's own functions, for each feed anew."""
    lines = [
        "model = tract.onnx().load('model.onnx')",
        "names = [model.input_name(k) for k in range(model.input_count())]",
    ]
    if options.get("shapes") == "static":
        lines += ["for k, x in enumerate(map(feed.get, names)):", f"    model.set_input_fact(k, {_FACT})"]
    if options["output_facts"] == "inferred":
        lines += ["for k in range(model.output_count()):", "    model.set_output_fact(k, None)"]
    lines.append("model = model.into_model()")
    if options["format"] == "nnef":
        lines += [
            "nnef = tract.nnef().with_tract_extra().with_onnx()",
            "nnef.write_model_to_tar(model, 'model.nnef.tar')",
            "model = nnef.load('model.nnef.tar')",
        ]
    lines += ["made = model.into_runnable().run([feed[name] for name in names])", "print([y.to_numpy() for y in made])"]
    body = ["import tract", "for feed in tests:", *(f"    {line}" for line in lines)]
    return "\n".join(["python - <<'END'", FEEDS, *body, "END"])


_FACT = "','.join([*map(str, x.shape), 'bool' if x.dtype == bool else f'{x.dtype.kind}{8 * x.itemsize}'])"


def _nnef() -> Any:
    """What reads and writes NNEF, with all that it can say of ONNX operators."""
    import tract

    return tract.nnef().with_tract_extra().with_onnx()


def _typed(path: str, feed: Feed, options: Options) -> Any:
    """The ONNX model with every shape inferred, from those of `feed` where it has any."""
    import tract

    model = tract.onnx().load(path)
    for k in range(model.input_count() if feed else 0):
        x = feed[model.input_name(k)]
        model.set_input_fact(k, ",".join([*map(str, x.shape), _mnemonic(x.dtype)]))
    if options["output_facts"] == "inferred":
        for k in range(model.output_count()):
            model.set_output_fact(k, None)
    return model.into_model()


def _mnemonic(dtype: np.dtype) -> str:
    """What tract calls a type: f32, i64, bool."""
    return "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"


def _executed(artifact: str, feeds: Sequence[Feed], names: Sequence[str], options: Options) -> Answers:
    plans: dict[Any, Any] = {}
    answers = []
    for feed in feeds:
        static = options.get("shapes") == "static"
        shapes = tuple((name, x.shape) for name, x in feed.items()) if static else None
        if shapes not in plans:
            of_onnx = options["format"] == "onnx"
            model = _typed(artifact, feed if static else {}, options) if of_onnx else _nnef().load(artifact)
            order = [model.input_name(k) for k in range(model.input_count())]
            plans[shapes] = order, model.into_runnable()
        order, plan = plans[shapes]
        if missing := [name for name in order if name not in feed]:
            raise StageError(f"the model has inputs that the ONNX model has not: {', '.join(missing)}")
        made = plan.run([np.array(feed[name], order="C") for name in order])
        if len(made) != len(names):
            raise StageError(f"it gave {len(made)} of {len(names)} outputs")
        answers.append({name: np.array(tensor.to_numpy()) for name, tensor in zip(names, made)})
    return answers


def _said(call: Callable[[], T]) -> T:
    """What `call` returns; its error as one line, without the stack behind it."""
    import tract

    try:
        return call()
    except tract.TractError as e:
        said = str(e).partition("Stack backtrace")[0]
        raise StageError("; ".join(line.strip() for line in said.splitlines() if line.strip())) from None


_ONNX = "https://github.com/sonos/tract/blob/main/onnx/README.md"
_NNEF = "https://github.com/sonos/tract/blob/main/doc/nnef.md"
_OPERATORS = "https://github.com/sonos/tract/blob/main/onnx/src/ops/mod.rs"

# Models are loaded in either stage. A pattern takes the operators that it names: they are left out then.
REFUSED = (
    ("operator not supported", r"Unimplemented\(\w+.*|Operator can not be made a TypedOp", _OPERATORS),
    (
        "operand that has to be constant",
        r"Non constant \w+ is not supported|Params are not const|[Ee]xpect(ed)? constant|to be determined, got|"
        r"can not be typed|as a constant|to be a constant|expects a constant|[Oo]nly constant|is variable",
        _ONNX,
    ),
    (
        "shape that has to be known",
        r"Undetermined symbol|unify .*Sym\(|square of symbols|known dimension|concrete dim|TDim is not a number|"
        r"Can not compute output shape|symbolic dimension not supported|"
        # Of one type, and the first dims that differ do so in a symbol.
        r"rewiring expansion.*expected ((?:[^\s,]+,)*)([^\s,]*[a-z][^\s,]*,)(?:[^\s,]+,)*(\w+) got "
        r"\1(?!\2)(?:[^\s,]+,)+\3(?![\w,])",
        _ONNX,
    ),
    (
        "type not supported",
        r"Unknown DatumType|Unsupported DatumType|does not support F64|No super type for|unsupported \S+ output type|"
        r"Impossible to unify [FIU]\d+ with [FIU]\d+",
        _ONNX,
    ),
    ("form of an operator not supported", r"[Uu]nsupported mode|is not supported", _OPERATORS),
    ("operator without a form in NNEF", r"No serializer found for|Unsupported padding scheme", _NNEF),
)

TRACT = Target(
    name="tract",
    distribution="tract",
    convert=convert,
    quantize=unquantized,
    execute=execute,
    commands=commands,
    options=(
        Option("format", "convert", ("onnx", "nnef"), "what is run: the ONNX model, or the file that tract makes"),
        Option("output_facts", "convert", ("inferred", "declared"), "where shapes and types of outputs are from"),
        Option(
            "shapes",
            "execute",
            ("static", "declared"),
            "shapes of inputs: those of the feed, as the model declares them",
            {"format": ("onnx",)},
        ),
    ),
    # Against float64, in [-30, 30]: 6e-7, 1.6e-6, 4.8e-7, 9.9e-7 and 5.5e-7 were measured of tract 0.23.9, of
    # results beyond 1 as a share of them.
    approximations={"Tanh": 8e-7, "Erf": 2e-6, "Sigmoid": 6e-7, "Mish": 1.2e-6, "Gelu": 7e-7},
    complaint=r"panicked at .*",
    features={"float": {}},
    natives=(
        "tract.Onnx.load",
        "tract.InferenceModel.set_input_fact",
        "tract.InferenceModel.set_output_fact",
        "tract.InferenceModel.into_model",
        "tract.Nnef.with_tract_extra",
        "tract.Nnef.with_onnx",
        "tract.Nnef.write_model_to_tar",
        "tract.Nnef.load",
        "tract.Model.into_runnable",
        "tract.Runnable.run",
    ),
    refusals=tuple(Rule(name, stage, said, source) for name, said, source in REFUSED for stage in STAGES),
)
