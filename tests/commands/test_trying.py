"""`driftnet targets --try`: a plug-in that is broken itself is told from a system that fails."""

import json
from dataclasses import replace

import numpy as np
import pytest
from driftnet import api
from driftnet.cli import main as cli
from driftnet.util.errors import UserError

from tests.support.toy_target import TOY, keep


def misspelt(model, folder, options):
    return shutil.copy(model, folder)  # noqa: F821


def without_options(artifact, feeds, outputs):
    return [{} for _ in feeds]


def failing_system(model, folder, options):
    return np.load(f"{folder}/nothing.npy")


MISSPELT = replace(TOY, convert=misspelt)
TAKES_LESS = replace(TOY, execute=without_options)
SYSTEM_FAILS = replace(TOY, convert=failing_system)
KEEPS = replace(TOY, quantize=keep)


def test_the_easiest_model_goes_through_every_value_of_every_option():
    tried = api.attempt(f"{__name__}:KEEPS")["tried"]
    assert [row["recipe"] for row in tried] == [{}, {"offset": "one"}]
    assert [row["verdict"] for row in tried] == ["agrees", "diverges"], "one is added where that is asked for"


@pytest.mark.parametrize(
    ("name", "said"),
    [("MISSPELT", "test_trying.py, misspelt: NameError"), ("TAKES_LESS", "execute: TypeError")],
)
def test_a_plug_in_that_is_broken_is_a_mistake_of_its_author(name, said):
    with pytest.raises(UserError, match=f"plug-in of target toy is broken: .*{said}") as caught:
        api.attempt(f"{__name__}:{name}")
    assert caught.value.kind == "target"


def test_what_the_system_raises_is_a_failure_of_the_system():
    verdicts = {row["verdict"] for row in api.attempt(f"{__name__}:SYSTEM_FAILS")["tried"]}
    assert verdicts == {"fails"}


def test_the_command_ends_with_status_2(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["targets", "--try", f"{__name__}:MISSPELT", "--json"])
    assert end.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "target"
