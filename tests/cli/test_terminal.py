"""What a campaign says on a terminal at its end: the known counted, the new whole, names that can be copied."""

import dataclasses
import io
import webbrowser
from pathlib import Path

import pytest
from driftnet.cli import main as cli
from driftnet.cli.report import campaign, progress, tables
from driftnet.commands import checking
from driftnet.findings import corpus
from rich.console import Console

from tests.support.paths import saved_case

LONG = "dtype of operand 1 one of " + ", ".join(f"type{k}" for k in range(60))


def finding(digits, *, status="new", target="mnn", times=1, **said):
    """An entry as `driftnet fuzz --json` has it."""
    id = f"test_{target}_execute_wrong-values_{'sequence' * 12}_{digits}"
    there = {"id": id, "target": target, "stage": "execute", "kind": "wrong-values", "status": status, "times": times}
    more = {"severity": "wrong", "nodes": 2, "message": "got 1, should be 2", "path": f"reports/r/cases/{target}/{id}"}
    return there | more | said


def shown(*findings, **how):
    """What is said of them on a terminal of 80 columns."""
    said = io.StringIO()
    campaign.ended(
        Console(file=said, width=80, soft_wrap=True), result_of(*findings), Path("reports/r"), status=1, **how
    )
    return said.getvalue().splitlines()


def result_of(*findings):
    """What a run that found them has counted."""
    counts = {"cases": 9, "models": 3, "wall_seconds": 1.0, "cpu_seconds": 2.0, "cpu_by": {}, "verdicts": {"fails": 9}}
    rest = {"recognized": 0, "verified": 0, "mistaken": 0, "unconfirmed": 0, "unexplained": [], "errors": []}
    return {**counts, **rest, "findings": [*findings]}


def test_known_findings_are_one_line_a_target():
    known = [finding(f"{k:08x}", status="known", times=k) for k in range(1, 41)]
    other = finding("aaaaaaaa", status="known", target="onnxruntime-quant")
    lines = shown(*known, other)
    assert [line for line in lines if ", seen " in line] == [
        "mnn: 40 known causes, seen 820 times; --all lists them, as the report does",
        "onnxruntime-quant: 1 known cause, seen 1 time; --all lists them, as the report does",
    ]
    assert not [line for line in lines if "00000002" in line], "what is known is counted only"


def test_where_nothing_is_new_the_run_ends_with_the_best_that_is_known():
    lines = shown(*(finding(f"{k:08x}", status="known", trigger=LONG) for k in range(1, 4)))
    (start,) = [k for k, line in enumerate(lines) if line.startswith("00000001")]
    assert lines[start] == "00000001  mnn, execute: silently wrong values (wrong-values), known"
    assert (lines[-1], len(lines) - start) == ("  its page: driftnet report 00000001 --open", 5), lines[start:]


def test_one_error_of_many_cases_is_told_once_and_short():
    said = io.StringIO()
    errors = [{"index": k, "message": "nothing is called so; " + "there are operators " * 99} for k in (2, 5, 8)]
    result = result_of() | {"errors": errors}
    campaign.ended(Console(file=said, width=80, soft_wrap=True), result, Path("reports/r"), status=2)
    (line,) = [line for line in said.getvalue().splitlines() if "error of driftnet in" in line]
    assert line.startswith("error of driftnet in case 2 and 2 others: nothing is called so"), f"got {line[:80]}"
    assert len(line) < 700, f"an exception that lists what there is: got {len(line)} characters, should be cut"


def test_a_run_that_was_interrupted_is_no_error():
    said = io.StringIO()
    result = result_of() | {"interrupted": True}
    campaign.ended(Console(file=said, width=80, soft_wrap=True), result, Path("reports/r"), status=2)
    assert "exit status 2: interrupted, and nothing new until then" in said.getvalue(), said.getvalue()


def test_with_all_each_known_finding_has_a_line():
    lines = shown(*(finding(f"{k:08x}", status="known", times=k) for k in range(1, 4)), every=True)
    assert [line.split()[:3] for line in lines if " x " in line] == [[f"{k:08x}", str(k), "x"] for k in range(1, 4)]


def test_new_findings_come_last_and_whole_on_80_columns():
    lines = shown(finding("aaaaaaaa", status="known"), finding("bbbbbbbb", trigger=LONG), finding("cccccccc"))
    new = lines.index("2 new findings, what matters most first:")
    assert max(map(len, lines[new:])) <= 80, "no line of a new finding is wider than the terminal"
    text = " ".join(line.strip() for line in lines[new:])
    assert f"when: {LONG}" in text, "the trigger is whole"
    assert text.count("got 1, should be 2") == 3, "each is told, and the best once more at the end"


@pytest.mark.parametrize("trigger", ["", "Relu", LONG])
def test_the_best_new_finding_ends_the_run_in_five_lines_with_the_command_of_its_page(trigger):
    lines = shown(finding("bbbbbbbb", trigger=trigger, message="m " * 200), finding("cccccccc"))
    start = max(k for k, line in enumerate(lines) if line.startswith("bbbbbbbb"))
    assert len(lines) - start <= 5, lines[start:]
    assert lines[-1] == "  its page: driftnet report bbbbbbbb --open"
    assert max(map(len, lines[start:])) <= 80, lines[start:]


def test_a_lone_new_finding_is_told_once():
    lines = shown(finding("bbbbbbbb"), finding("aaaaaaaa", status="known"))
    assert " ".join(lines).count("got 1, should be 2") == 1, lines
    assert lines[-2:] == ["bbbbbbbb, the new finding", "  its page: driftnet report bbbbbbbb --open"]


@pytest.mark.parametrize(
    ("renamed", "cause", "told"),
    [
        ("", "", ""),
        ("test_b_22222222", "", "  what is left is called test_b_22222222; not known"),
        ("test_b_22222222", "c_33333333", "  what is left is called test_b_22222222; known: c_33333333"),
    ],
)
def test_what_is_left_of_a_case_is_a_sentence_and_a_new_name_is_told(renamed, cause, told):
    counts = {"nodes": 1, "elements": 6, "target_runs": 65, "cpu_seconds": 3.15}
    rest = {"interrupted": False, "unfinished": False, "network_isolated": True, "renamed": renamed, "cause": cause}
    said = io.StringIO()
    where = {"path": "out/x", "of": "in/test_a_11111111", "target": "mnn==3.6.1"}
    tables.reduced(Console(file=said, width=80), {**where, **counts, **rest})
    head = ["reduced on mnn==3.6.1 to 1 node, 6 elements (65 runs, 3.1 CPU s): out/x", "  of in/test_a_11111111"]
    assert said.getvalue().splitlines() == head + [told] * bool(told)


def test_of_a_report_elsewhere_the_command_names_the_finding_in_its_folder(tmp_path):
    path = tmp_path / "run" / "cases" / "mnn" / "x_bbbbbbbb"
    (line,) = [line for line in shown(finding("bbbbbbbb", path=str(path))) if "its page" in line]
    assert line.endswith(f"driftnet report {tmp_path}/run/bbbbbbbb --open"), line


def test_names_that_one_copies_are_short_and_never_broken():
    rows = [
        {"id": f"test_mnn_execute_wrong-values_{'sequence-' * 12}{k}_{k:08x}", "status": "open", "message": ""}
        | {"outcome": "reproduces", "reproduced": 5, "runs": 5, "as_expected": True, "depends": ""}
        | {"target": "mnn", "release": "1"}
        for k in range(9)
    ]
    said = io.StringIO()
    tables.replay(
        Console(file=said, width=80), {"cases": rows, "left": 0, "interrupted": False, "absent": {"tract": 2}}
    )
    assert [line.split()[0] for line in said.getvalue().splitlines() if line.startswith("0")] == [
        f"{k:08x}" for k in range(9)
    ]
    assert "test_mnn" not in said.getvalue()
    assert "2 cases of tract left out: it is not installed here; --target tract==RELEASE" in said.getvalue()


def test_what_is_found_meanwhile_is_called_by_its_digits():
    assert progress.found("test_mnn_convert_crash_add_0123abcd") == "found 0123abcd: mnn convert crash add"


def test_a_finding_of_a_run_is_named_by_its_digits_and_its_page_opened(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved = dataclasses.replace(corpus.load(saved_case("c4a8227f")), id="test_mnn_execute_x_0123abcd")
    corpus.save(saved, tmp_path / "reports/fuzz-1/cases")
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with pytest.raises(SystemExit) as end:
        cli.main(["report", "0123abcd", "--open"])
    said = capsys.readouterr().err
    assert end.value.code == 0, said
    assert "no browser opens here; the page: reports/html/causes/mnn-0123abcd.html" in said
    (page,) = opened
    assert page == (tmp_path / "reports/html/causes/mnn-0123abcd.html").as_uri()


def test_what_lint_tells_can_be_copied_and_is_neither_cut_nor_broken():
    met = {"cause": "mnn_execute_wrong-values_conv_0123abcd", "severity": "wrong", "upstream": ""}
    met |= {"title": f"{LONG}: wrong", "when": LONG, "advice": f"anything but {LONG}"}
    met = [met | {"op_type": "Conv", "node": f"node{k}"} for k in range(5)]
    rest = {
        "causes": 7,
        "target": "mnn",
        "release": "1",
        "seconds": 0.1,
        "misdeclared": [],
        "custom": [],
        "refused": [],
        "may": [],
    }
    said = io.StringIO()
    tables.lint(Console(file=said, width=80), {**rest, "met": met})
    assert said.getvalue().splitlines() == [
        "1 known cause met, 0 more may be; of 7 of mnn 1 (0.10 CPU s)",
        "met:",
        "0123abcd wrong: Conv node0, Conv node1, Conv node2 and 2 more",
        f"  {LONG}: wrong",
        f"  may avoid it: anything but {LONG}",
    ]


def test_of_many_words_in_a_line_the_first_are_told():
    assert tables.several(["a", "b", "c"], 3) == "a, b, c"
    assert tables.several(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"


def test_more_than_a_few_verdicts_end_with_a_line_that_sums_them_up():
    one = {"target": "mnn", "release": "1", "stage": "execute", "kind": "wrong-values", "known": "", "message": ""}
    one |= {
        name: []
        for name in (
            "made_up",
            "vanishing",
            "joins_in_float",
            "misdeclared",
            "stages",
            "end_to_end",
            "kernels",
            "random",
            "culprits",
        )
    }
    one |= {name: [] for name in ("notes", "faults", "calibrated_elsewhere", "nan_in_reference")} | {
        "unquantized": "",
        "quantized_already": "",
        "accepted": "",
        "usable": True,
    }
    one |= {"vouched": 1.0, "doubtful": {}, "interrupted": False, "rule": "", "verdict": "agrees", "recipe": {}}
    one |= {"made_up": ["x"], "nan_in_reference": ["y"]}
    wrong = one | {
        "made_up": [],
        "verdict": "diverges",
        "recipe": {"threads": 4},
        "at_fault": "convert",
        "ignored": ["dims, ..."],
    }
    said = io.StringIO()
    tables.check(Console(file=said, width=120), {"targets": [one, one, one, wrong]})
    lines = said.getvalue().splitlines()
    assert lines[-1] == "of 4 runs: 3 agrees, 1 diverges: mnn threads=4"
    assert lines[2] == "  the reference is NaN on these made-up inputs, in 'y': give --inputs by which it is not"
    assert lines[-3:-1] == [
        "mnn==1 threads=4: diverges in convert (wrong-values, shows in execute)",
        "  without effect: dims, ...",
    ]


@pytest.mark.parametrize(("name", "called"), [("y", "output"), ("/bn2", "inner tensor")])
def test_only_an_output_of_the_model_is_called_one(name, called):
    said = checking._told_apart(f"output {name!r} at [0] is 1.0, should be 2.0", {"/bn2"})
    assert said == f"{called} {name!r} at [0] is 1.0, should be 2.0"
