"""Whatever is handed in, it is read, or refused in words: no reader ends in a traceback."""

import io
import json
import shutil

import numpy as np
import pytest
from driftnet.campaign.journal import histories
from driftnet.causes import record
from driftnet.cli import defaults
from driftnet.cli.main import driftnet
from driftnet.findings import corpus
from driftnet.model import external_data
from driftnet.model.feeds import made_up, read_feeds
from driftnet.model.inspect import custom_operators, dtype_name, elements, nodes
from driftnet.targets import recipe
from driftnet.targets.environments import resolve
from driftnet.util.errors import UserError
from driftnet.util.files import json_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.models import grouped_conv_transpose_and_norm
from tests.support.mutated import WEIRD, edited, places, put, refilled, remodelled, small_cases

SAVED = small_cases(6)
MODEL = grouped_conv_transpose_and_norm()
RECORD = next(saved.cause for saved in SAVED if saved.cause)
SETTINGS = b'[tool.driftnet.fuzz]\nminutes = 3.5\ntarget = ["mnn"]\nsave = true\nseed = 7\n[tool.driftnet]\n'
quick = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def refuses_or_reads(read):
    """Reads what was handed in, or says why not; anything else but a UserError fails the test."""
    said = "read"
    try:
        read()
    except UserError as e:
        said = f"{e.message}{e.hint}"
    assert 0 < len(said) < 4000, f"{len(said)} characters are said"


def model_in(path):
    proto = corpus.read_onnx(path, entire=False)
    case = external_data.case(proto, path, (made_up(proto, {}),))
    return nodes(case), elements(case), custom_operators(proto), [dtype_name(v) for v in proto.graph.output]


@quick
@given(st.one_of(remodelled(MODEL.model), *[remodelled(saved.case.model) for saved in SAVED]))
def test_a_mutated_model_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    path.write_bytes(data)
    refuses_or_reads(lambda: model_in(path))


def case_in(folder):
    saved = corpus.load(folder)
    return recipe.validated(resolve(saved.target).target, saved.recipe)


@quick
@given(st.sampled_from(SAVED), st.data())
def test_a_mutated_case_is_read_or_refused(tmp_path_factory, saved, data):
    folder = tmp_path_factory.mktemp("corpus") / saved.id
    shutil.copytree(saved.path, folder)
    file = data.draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    file.write_bytes(data.draw(edited(file.read_bytes())))
    refuses_or_reads(lambda: case_in(folder))


@pytest.mark.parametrize("saved", SAVED[:2], ids=["one", "another"])
def test_every_field_of_a_case_may_hold_anything(tmp_path, saved):
    folder = tmp_path / saved.id
    shutil.copytree(saved.path, folder)
    fields = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    for path in places(fields):
        for value in WEIRD:
            text = json_text(put(fields, path, value))
            (folder / "case.json").write_bytes(text.encode())
            refuses_or_reads(lambda: case_in(folder))


@quick
@given(st.data())
def test_a_mutated_cause_is_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cause")
    fields = data.draw(refilled(json.loads(json_text(RECORD.as_json()))))
    (folder / record.FILE).write_bytes(
        data.draw(st.just(json_text(fields).encode()) | edited(json_text(fields).encode()))
    )
    refuses_or_reads(lambda: record.load(folder))


def archive():
    file = io.BytesIO()
    np.savez(file, **MODEL.feeds[0])
    return file.getvalue()


@quick
@given(edited(archive()))
def test_a_mutated_archive_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("feeds") / "x.npz"
    path.write_bytes(data)
    refuses_or_reads(lambda: read_feeds(path, MODEL.proto, "inputs"))


@quick
@given(edited(SETTINGS))
def test_mutated_settings_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("settings") / "pyproject.toml"
    path.write_bytes(data)
    refuses_or_reads(lambda: defaults.read(path, driftnet.commands))


@quick
@given(edited(b'{"event":"begun","seed":3,"cases":["a"]}\n{"event":"done","index":0}\n{"event":"done","index":1}\n'))
def test_of_a_mutated_journal_the_lines_that_are_whole_are_read(tmp_path_factory, data):
    report = tmp_path_factory.mktemp("report")
    (report / "journal").mkdir()
    (report / "journal" / "1.jsonl").write_bytes(data)
    assert len(histories(report)) == 1
