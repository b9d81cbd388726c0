"""Saved cases: folders in the layout of ONNX's backend tests, with a case.json beside the model.

    <target>/<cause>/test_<slug>_<hash8>/
        model.onnx
        test_data_set_<k>/input_<i>.pb, output_<i>.pb     one a feed; outputs are the reference's
        calibration_<k>/input_<i>.pb
        case.json

A case in the folder of a cause (`driftnet.causes.record`) is a variant of it; one that lies loose below its target, as
in a run's report, is a cause of its own, of which no trigger is known.

Cases are data: nothing in them is executed or unpickled. A folder appears whole or not at all.
"""

import dataclasses
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from driftnet.causes import record
from driftnet.causes.record import CauseRecord, Options, Status
from driftnet.causes.words import in_a_line
from driftnet.model import external_data
from driftnet.model.declared import only_tensors, settle_bodies, settle_order, settle_shapes
from driftnet.model.inspect import Case, Feed, all_nodes, elements, graph_inputs, no_text, nodes, validate_feed
from driftnet.model.verdict import Verdict
from driftnet.targets.environments import NAME
from driftnet.util.errors import UserError
from driftnet.util.files import disk_error, json_number, json_text, replace_text, sync
from driftnet.util.records import read
from onnx import numpy_helper

SCHEMA = 1
MOST_NODES = 200_000
"""Of a model, subgraphs included: ten times what the largest language models have. Of 3 million nodes without anything
in them, 6 MB of a file, an interpreter makes 3 GiB."""
COMMITTED = next(
    folder for folder in (parent / "corpus" for parent in Path(__file__).resolve().parents[1:]) if folder.is_dir()
)
"""The cases that come with this code: in the package where it was installed, beside it in a clone."""
MOST_NAMED = 4
FIRST_SEEN = "first seen as: "
"""How a note begins that nobody has written."""
OWN = Path("corpus")
"""Where a project keeps its own cases."""
_HINT = "restore the folder from version control, or remove it and let driftnet fuzz find the case again"


@dataclass(frozen=True, eq=False)
class SavedCase:
    """One folder of the corpus: case.json is these fields, but for the folder's own name and what stands beside it.

    id         the folder's name
    coarse, fine   its signature
    verdict    the verdict when it was saved
    expected   the reference's outputs, one {name: array} a feed
    seen, not_seen   releases of the target that showed it and that did not
    machine    {"arch": ..., "cpu_features": [...]} where it was seen; whatever else it holds is kept
    runs, reproduced   how often the saved case was run in fresh workers, and failed
    answer     digest of what the target answered when it was saved (`Observation.digest`); "" where that is not known
    rule       for status "expected": the documented rule that explains it
    remedy     options under which the bug is gone, found by hand: what goes away under them is this bug (`known`)
    unfinished   its reduction was ended before it was done: it may get smaller, and show to be a case that is saved
    depends    what it was measured to depend on: what lies on the heap, or the CPU; "" where it shows everywhere
    cause      the record of the cause that it is a variant of, None where it lies loose
    """

    id: str
    case: Case
    expected: tuple[Feed, ...]
    target: str
    recipe: Options
    coarse: str
    fine: str
    verdict: Verdict
    status: Status = Status.OPEN
    seen: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 5
    reproduced: int = 5
    answer: str = ""
    upstream: str = ""
    note: str = ""
    rule: str = ""
    remedy: Options = field(default_factory=dict)
    unfinished: bool = False
    depends: Literal["", "cpu", "heap"] = ""
    cause: CauseRecord | None = None
    path: Path | None = None

    @property
    def size(self) -> tuple[int, int, str]:
        """By which cases are ordered, the smallest first: nodes, elements, id."""
        return nodes(self.case), elements(self.case), self.id

    @property
    def stage(self) -> str:
        return self.verdict.stage

    @property
    def kind(self) -> str:
        return self.verdict.kind

    @property
    def operators(self) -> list[str]:
        return [*dict.fromkeys(node.op_type for node in self.case.proto.graph.node)]

    @property
    def summed_up(self) -> str:
        """In a few words: its operators, what is wrong, and when it shows."""
        operators = ", ".join(self.operators[:MOST_NAMED]) or "a model without operators"
        return in_a_line(operators, self.kind, self.stage)

    @property
    def title(self) -> str:
        """In a line: what somebody said of it, or the title of its cause; else it is summed up."""
        said = "" if self.note.startswith(FIRST_SEEN) else self.note
        said = said or (self.cause.title if self.cause else "")
        return said.splitlines()[0] if said else self.summed_up


_UNLESS_SAID: Mapping[str, Any] = {"remedy": {}, "answer": "", "unfinished": False, "depends": ""}
_BESIDE = ("id", "case", "expected", "cause", "path")
_IN_JSON = tuple(f.name for f in dataclasses.fields(SavedCase) if f.name not in _BESIDE)


def save(saved: SavedCase, root: Path) -> Path:
    """Write `saved` below `root`, whole or not at all; a case that already stands there, loose or as a variant of a
    cause, is left alone.

    Returns its folder. Raises UserError: kind "disk" when the folder cannot be written, "case" when its target or id
    cannot be the name of one.
    """
    for name in (saved.target, saved.id):
        if not NAME.fullmatch(name):
            raise UserError(
                f"{name!r} cannot name a folder of saved cases",
                hint="names of targets and cases are letters, digits, '_', '-' and single dots",
                kind="case",
            )
    if not saved.id.startswith("test_"):
        raise UserError(
            f"{saved.id!r} would not be found again: a folder of a saved case is called test_...",
            hint=f"rename it: test_{saved.id}",
            kind="case",
        )
    folder = Path(root) / saved.target / saved.id
    if there := standing(saved, Path(root)):
        return there
    if not folder.exists():
        with whole(folder) as draft:
            write(saved, draft)
    return folder


def write(saved: SavedCase, folder: Path) -> None:
    """Write what `load` reads into `folder`, which is a draft."""
    write_model(saved.case, saved.expected, folder)
    (folder / "case.json").write_text(_as_json(saved), encoding="utf-8")


def standing(saved: SavedCase, root: Path) -> Path | None:
    """The folder below `root` in which the case stands, loose or as a variant of a cause."""
    places = (root / saved.target).glob(f"*/{saved.id}/case.json")
    return next(
        (path.parent for path in (root / saved.target / saved.id / "case.json", *places) if path.exists()), None
    )


@contextmanager
def whole(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """A draft to write into: it becomes `folder` when the block ends, and is gone when the block fails.

    replace  put it in the place of what stands there; otherwise a folder that another process made meanwhile stays
    Raises UserError (kind "disk") when the draft cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as scratch:
            draft = Path(scratch) / "new"
            draft.mkdir()
            yield draft
            for path in (*draft.rglob("*"), draft):
                sync(path)
            if replace and folder.exists():
                folder.rename(Path(scratch) / "old")
            try:
                draft.rename(folder)
                sync(folder.parent)
            except OSError as e:
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    except OSError as e:
        raise disk_error(folder, e) from e


def remove(folder: Path) -> None:
    """Remove a folder at once for whoever reads it: it has another name before anything of it goes."""
    gone = folder.with_name(f".{folder.name}.{os.getpid()}")
    with suppress(FileNotFoundError):  # somebody else has
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove the drafts below `root` of processes that were killed. Nobody may be writing there."""
    for draft in [*root.glob(".test_*.*"), *root.glob("*/.*_*.*"), *root.glob("*/*/.test_*.*")]:
        shutil.rmtree(draft, ignore_errors=True)


def write_model(case: Case, expected: Sequence[Feed], folder: Path) -> None:
    """model.onnx with its feeds, expected outputs and calibration feeds, as an ONNX backend test in `folder`."""
    external_data.write(case, folder / "model.onnx")
    inputs = [v.name for v in graph_inputs(case.proto)]
    outputs = [v.name for v in case.proto.graph.output]
    for k, feed in enumerate(case.feeds):
        _write_arrays(folder / f"test_data_set_{k}", "input", inputs, feed)
        if expected:
            _write_arrays(folder / f"test_data_set_{k}", "output", outputs, expected[k])
    for k, feed in enumerate(case.calibration):
        _write_arrays(folder / f"calibration_{k}", "input", inputs, feed)


def update(saved: SavedCase, **changes: Any) -> SavedCase:
    """Change fields of case.json in place, atomically, and return the case as it now stands."""
    if saved.path is None:
        raise ValueError("only a case that was loaded from a folder can be updated")
    changed = dataclasses.replace(saved, **changes)
    replace_text(saved.path / "case.json", _as_json(changed))
    return changed


def load(folder: Path) -> SavedCase:
    """The case saved in `folder`. Raises UserError (kind "case") that says what is wrong with it."""
    folder = Path(folder)
    path = folder / "case.json"
    try:
        fields = read(json.loads(path.read_text(encoding="utf-8"), parse_float=json_number), dict[str, Any], "case")
        if fields.get("schema", SCHEMA) != SCHEMA:
            what = f"{path}: schema {fields['schema']!r:.80}, this driftnet reads {SCHEMA}"
            raise UserError(what, hint="use the driftnet release that wrote it", kind="case")
        origin = read(fields.get("origin"), dict[str, Any], "case.origin")
        whole = folder.resolve()
        beside = {"id": whole.name, "case": Case(b"", (), origin=origin), "expected": ()}
        beside |= {"cause": None, "path": folder}
        saved = read(fields | beside, SavedCase, "case")
        _check(saved)
    except FileNotFoundError:
        raise _no_case_json(folder) from None
    except OSError as e:
        raise UserError(f"cannot read {path}: {e.strerror}", hint=_HINT, kind="case") from None
    except (ValueError, RecursionError) as e:
        raise UserError(f"{path}: not a whole case.json: {e}", hint=_HINT, kind="case") from None
    case, expected = read_model(folder, origin)
    return dataclasses.replace(saved, case=case, expected=expected, cause=_cause_below(whole.parent))


def _cause_below(above: Path) -> CauseRecord | None:
    """The record of the cause of which the folder `above`, if it is one, holds the variants."""
    try:
        written = (above / record.FILE).stat()
    except FileNotFoundError:
        return None
    return _record(above, (written.st_ino, written.st_mtime_ns, written.st_size))


@lru_cache(maxsize=1)
def _record(folder: Path, written: tuple[int, ...]) -> CauseRecord:
    """The record in `folder` as it was `written`: variants of one cause are loaded one after the other."""
    return record.load(folder)


def _check(saved: SavedCase) -> None:
    """Raise ValueError for what `save` does not write. A case is anybody's file, so its target must be a plain name: a
    path would lead out of the corpus, and "module:attribute" would import, that is run, code of its choice."""
    if not NAME.fullmatch(saved.target):
        raise ValueError(f"target {saved.target!r:.80} is not the plain name of a registered target")
    if not 0 <= saved.reproduced <= saved.runs:
        raise ValueError(f"{saved.reproduced} of {saved.runs} runs cannot have reproduced it")


def _no_case_json(folder: Path) -> UserError:
    if not (folder / "model.onnx").exists():
        return UserError(f"{folder}: no case.json", hint=_HINT, kind="case")
    return UserError(
        f"{folder} is a generated or foreign backend test, not a saved case: it has no case.json",
        hint=f"check its model: driftnet check {folder}/model.onnx --inputs {folder}/test_data_set_0",
        kind="case",
    )


def read_model(folder: Path, origin: Mapping[str, Any] | None = None) -> tuple[Case, tuple[Feed, ...]]:
    """The model, feeds and expected outputs of an ONNX backend-test folder. origin: of the case, if not the folder.
    Raises UserError (kind "case")."""
    path = folder / "model.onnx"
    model = read_onnx(path, entire=False)
    inputs = [v.name for v in graph_inputs(model)]
    feeds, expected, names = [], [], list[str]()
    with suppress(FileNotFoundError):  # another shard has moved it meanwhile
        names += os.listdir(folder)
    for data_set in _numbered(folder, names, "test_data_set_"):
        feeds.append(_read_arrays(data_set, "input", inputs))
        expected.append(_read_arrays(data_set, "output", [v.name for v in model.graph.output]))
        validate_feed(model, feeds[-1], str(data_set))
    calibration = [_read_arrays(data_set, "input", inputs) for data_set in _numbered(folder, names, "calibration_")]
    if not feeds:
        raise UserError(f"{folder}: no test_data_set_0 with the inputs", hint=_HINT, kind="case")
    case = external_data.case(model, path, feeds, calibration, {"folder": folder.name} if origin is None else origin)
    return case, tuple(expected)


def read_given(path: Path, *, entire: bool = True, tell: Callable[[str], None] = lambda text: None) -> onnx.ModelProto:
    """`read_onnx` of a model that somebody gave: shapes that are declared wrongly are put right, nodes in order, and
    tensors in the place of outputs that are none; `tell` hears which."""
    model = read_onnx(path, entire=entire)
    for said in (*settle_order(model), *settle_bodies(model), *settle_shapes(model), *only_tensors(model)):
        tell(said)
    return model


def read_onnx(path: Path, *, entire: bool = True) -> onnx.ModelProto:
    """The model in `path`, external data of its own folder included, those of a large model only if it is to be
    `entire`. Raises UserError (kind "model")."""
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe may never end
        raise UserError(f"{path} is no regular file", hint="give the path of an .onnx file", kind="model")
    try:
        model = onnx.load(path, load_external_data=False)
        if not model.graph.node and not model.graph.output:
            raise ValueError("no graph in it")
        if any(True for _ in islice(all_nodes(model.graph), MOST_NODES, None)):
            raise ValueError(f"it has more than {MOST_NODES} nodes")
        if (name := no_text(model.graph)) is not None:
            raise ValueError(f"the name {name!r:.80} is no text (UTF-8)")
    except FileNotFoundError as e:
        raise UserError(f"no such file: {path}", hint="give the path of an .onnx file", kind="model") from e
    except IsADirectoryError as e:
        raise UserError(f"{path} is a folder", hint="give the path of an .onnx file", kind="model") from e
    except Exception as e:  # protobuf and onnx raise many types for bytes that are no model
        raise UserError(
            f"{path} is not an ONNX model: {str(e).splitlines()[0] if str(e) else type(e).__name__}",
            hint=f"it has {path.stat().st_size if path.exists() else 0} bytes: was the download or export complete?",
            kind="model",
        ) from e
    external_data.settle(model, path, entire=entire)
    return model


def known(folder: Path) -> tuple[Path, ...]:
    """The folders of known cases, where `folder` is named: that alone, but what a project keeps in OWN adds to what
    came with this code. Of what both have, that of the first holds."""
    is_own = folder.resolve() == OWN.resolve() != COMMITTED.resolve()
    return (folder, COMMITTED) if is_own else (folder,)


def known_folders(folder: Path) -> list[Path]:
    """The case folders below `known`, each case once."""
    found = [path for root in known(folder) if root.is_dir() for path in folders([root])]
    return list({path.name: path for path in reversed(found)}.values())[::-1]


def folders(paths: Sequence[Path]) -> list[Path]:
    """Every case folder at or below `paths`, in name order. Raises UserError when a path holds none."""
    found = []
    for path in map(Path, paths):
        here = [path] if (path / "model.onnx").exists() else sorted(p.parent for p in path.rglob("test_*/case.json"))
        here += sorted({p.parent for p in path.rglob("test_*/model.onnx")} - {*here}) if here != [path] else []
        if not here and not path.is_dir():
            raise UserError(
                f"{path} is no case and no folder of cases", hint="name a case, a run or a corpus", kind="case"
            )
        found += [p for p in here if not p.name.startswith(".")]
    return found


def case_folders(root: Path) -> list[Path]:
    """The cases saved below `root`, loose ones and the variants of causes."""
    try:
        return sorted(path.parent for depth in ("*", "*/*") for path in root.glob(f"{depth}/test_*/case.json"))
    except FileNotFoundError:  # one got its cause, and so another folder, while it was looked at
        return case_folders(root)


def load_all(root: Path) -> list[SavedCase]:
    """Every case below `root`; none where `root` does not exist."""
    return [load(folder) for folder in folders([root])] if Path(root).is_dir() else []


def _numbered(folder: Path, names: Sequence[str], prefix: str) -> list[Path]:
    found = [name for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
    return [folder / name for name in sorted(found, key=lambda name: int(name[len(prefix) :]))]


def _write_arrays(folder: Path, stem: str, names: Sequence[str], arrays: Feed) -> None:
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(names):
        tensor = numpy_helper.from_array(np.asarray(arrays[name]), name)
        (folder / f"{stem}_{i}.pb").write_bytes(tensor.SerializeToString())


def _read_arrays(folder: Path, stem: str, names: Sequence[str]) -> Feed:
    arrays = {}
    for i, name in enumerate(names):
        path = folder / f"{stem}_{i}.pb"
        try:
            arrays[name] = numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
        except FileNotFoundError:
            raise UserError(f"{path} is missing: the {stem} {name!r} of the model", hint=_HINT, kind="case") from None
        except Exception as e:  # protobuf's DecodeError, numpy's ValueError
            raise UserError(f"{path} is not a whole tensor: {e}", hint=_HINT, kind="case") from e
    return arrays


def _as_json(saved: SavedCase) -> str:
    said = {name: value for name in _IN_JSON if (value := getattr(saved, name)) != _UNLESS_SAID.get(name)}
    fields = {"schema": SCHEMA, **said, "verdict": saved.verdict.as_json(), "origin": saved.case.origin}
    return json_text(fields, indent=1) + "\n"
