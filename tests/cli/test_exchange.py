"""What a run found in the formats of others, and issues of a night: no text becomes a command, and nothing is lost."""

import json
import os
import subprocess
from xml.etree import ElementTree

import pytest
from driftnet.campaign.events import Failed
from driftnet.campaign.ledger import RED, Status, What
from driftnet.campaign.summary import Happened, Summary, Tonight, described
from driftnet.causes.impact import Severity
from driftnet.cli.report import exchange, issues
from driftnet.findings import corpus
from driftnet.model.verdict import Verdict, Word
from msgspec import structs

from tests.findings.test_corpus import saved_relu

EVIL = "y is wrong\n::add-mask::x\x1b[31m <b>, 50% & `$(id)`"

GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$SENT"
case "$1 $2" in
  "issue list") cat "$KNOWN" ;;
  "issue view") cat "$SAID" "$SAID.$3" 2> /dev/null; [ "$3" != "$BROKEN" ] ;;
  "issue create") number=$(($(wc -l < "$KNOWN") + 100)); echo "$number OPEN $6" >> "$KNOWN"; cp "$8" "$SAID.$number" ;;
  "issue comment") cat "$5" >> "$SAID.$3" ;;
esac
"""


def happened(what, cause, title="Relu: wrong values", path="", status=None):
    return Happened(
        status=status or (Status.OPEN if what in RED else Status.FIXED),
        cause=cause,
        target="mnn",
        what=what,
        release="3.6.1",
        title=title,
        severity=Severity.WRONG,
        since="2026-11-23",
        path=str(path),
        releases={"3.6.0": "agrees", "3.6.1": "reproduces"},
    )


@pytest.fixture
def run(tmp_path):
    """A night: two new findings, one that came back without being met, one fixed, one that waits, one of the corpus."""
    verdict = Verdict(Word.DIVERGES, stage="execute", kind="wrong-values", message=EVIL)
    ids = {name: f"test_relu_{name * 8}" for name in "abc"}
    folders = {name: corpus.save(saved_relu(id=id, verdict=verdict), tmp_path) for name, id in ids.items()}
    findings = [
        described(corpus.load(folder), "3.6.1", "known" if name == "c" else "new") for name, folder in folders.items()
    ]
    (folders["a"] / "ISSUE.md").write_text("# For maintainers\n")
    changes = [happened(What.NEW, f.cause, EVIL, f.path) for f in findings[:2]]
    changes += [happened(What.BACK, "mnn_relu_dddddddd"), happened(What.FIXED, "mnn_relu_eeeeeeee")]
    waiting = [happened(What.NEW, "mnn_relu_ffffffff", path=folders["b"])]
    night = Tonight(
        id="20261123T021700-abcdef", number=3, changes=changes, waiting=waiting, open=5, fixed=1, asked=4, unasked=0
    )
    return Summary(cases=7, models=2, seed=3, wall_seconds=60.0, findings=findings, night=night)


def test_a_cause_is_told_once_with_what_happened_to_it_and_red_ones_come_first(run):
    told = {one.cause[-1]: one.what for one in exchange.told(run)}
    assert told == {"a": "new", "b": "new", "c": "known", "d": "back", "e": "fixed", "f": "known"}
    reds = [one.red for one in exchange.told(run)]
    assert reds == sorted(reds, reverse=True)


def test_sarif_has_a_rule_and_a_result_for_each_cause_that_is_open(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run.errors.append(Failed(-1, "a case is not whole", "restore it", "case"))
    log = json.loads(json.dumps(exchange.sarif(run)))["runs"][0]
    rules = [rule["id"] for rule in log["tool"]["driver"]["rules"]]
    assert [result["ruleId"] for result in log["results"]] == rules
    assert sorted(rule[-1] for rule in rules) == list("abcdf"), "what is fixed is no result"
    levels = {result["ruleId"][-1]: (result["level"], result["baselineState"]) for result in log["results"]}
    new, known = ("error", "new"), ("note", "unchanged")
    assert levels == {"a": new, "b": new, "d": new, "c": known, "f": known}
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in log["results"]]
    assert "mnn/test_relu_aaaaaaaa/case.json" in places, f"relative to where the run began, got {places}"
    assert log["invocations"][0]["executionSuccessful"] is False
    assert log["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "a case is not whole"


def test_junit_counts_what_it_holds(run):
    run.errors.append(Failed(-1, "a case is not whole", "restore it", "case"))
    suite = ElementTree.fromstring(exchange.junit(run)).find("testsuite")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases.pop("the run itself") == ["error"]
    red, known = ["failure"], ["skipped"]
    said = {name[-1]: tags for name, tags in cases.items()}
    assert said == {"a": red, "b": red, "c": known, "d": red, "e": [], "f": known}
    counted = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert counted == {"tests": 7, "failures": 3, "errors": 1, "skipped": 2}


def test_an_annotation_is_one_line_whatever_a_system_says(run):
    *errors, notice = list(exchange.annotated(run))
    assert [line.partition("=")[0] for line in errors] == ["::error title"] * 3
    assert all(len(line.splitlines()) == 1 for line in errors), f"a line of its own is a command: {errors}"
    assert "50%25" in errors[0], f"a percent sign is escaped, got {errors[0]}"
    assert "%0A" not in errors[0], f"a message is one line, got {errors[0]}"
    assert notice == "::notice title=driftnet::2 known causes, 1 fixed, 7 cases"


def test_a_trigger_is_told_beside_the_line_and_not_in_it(run):
    run.findings = [structs.replace(run.findings[0], trigger="Relu, rank one of 1, 2 and 3")]
    one = next(told for told in exchange.told(run) if told.cause == run.findings[0].cause)
    assert "rank one of" not in one.sentence
    rules = {rule["id"]: rule for rule in exchange.sarif(run)["runs"][0]["tool"]["driver"]["rules"]}
    assert "(when: Relu, rank one of 1, 2 and 3)" in rules[one.cause]["fullDescription"]["text"]


def test_more_annotations_than_are_shown_are_counted(run):
    changes = [happened(What.WORSE, f"mnn_relu_{n:08x}") for n in range(30)]
    run.night = structs.replace(run.night, changes=changes)
    run.findings = []
    *errors, notice = list(exchange.annotated(run))
    assert (len(errors), notice.partition("::notice title=driftnet::")[2][:11]) == (10, "20 more red")


def test_what_makes_a_run_red_without_being_a_finding_is_told_in_every_format(run):
    run.errors.append(Failed(-1, "", "restore it", "case"))
    run.night, run.findings, run.unexplained = None, [], [3, 8]
    assert [line.partition("::error title=driftnet::")[2][:14] for line in exchange.annotated(run)][:2] == [
        "an error witho",
        "2 failed of wh",
    ]
    notes = exchange.sarif(run)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert "for want of effort: cases 3, 8" in notes[1]["message"]["text"]
    suite = ElementTree.fromstring(exchange.junit(run)).find("testsuite")
    assert (suite.get("errors"), suite.find("testcase/error").get("message")) == ("1", "an error without a message")


def test_a_cause_was_met_as_often_as_its_findings_together(run):
    one = structs.replace(run.findings[0], times=2)
    run.findings = [one, structs.replace(one, id="another", times=3)]
    assert [told.times for told in exchange.told(run) if told.cause == one.cause] == [5]


def test_a_cause_is_fixed_in_every_text_only_where_it_is_not_open(run, tmp_path):
    cause, reopened = "mnn_relu_dddddddd", "mnn_relu_ffffffff"
    night = [happened(what, cause, status=Status.OPEN) for what in (What.BACK, What.FIXED)]
    waiting = [happened(What.FIXED, reopened, status=Status.OPEN)]
    for changes in (night, night[::-1]):
        run.night = structs.replace(run.night, changes=changes, waiting=waiting)
        told = {one.cause: one.what for one in exchange.told(run)}
        assert (told[cause], told[reopened]) == ("back", "known")
        script = issues.write(run.night, run.findings, tmp_path / "issues").read_text()
        assert "tell dddddddd open '[driftnet dddddddd]" in script
        assert "tell ffffffff open '[driftnet ffffffff]" in script
        assert "It is open now." in (tmp_path / "issues" / "dddddddd-update.md").read_text()


def test_a_folder_of_somebody_keeps_what_no_night_has_written(run, tmp_path):
    folder = tmp_path / "issues"
    folder.mkdir()
    for name in ("notes.md", "01234567.md", "01234567-update.md", "01234567.txt"):
        (folder / name).write_text("text")
    issues.write(run.night, run.findings, folder)
    assert {path.name for path in folder.iterdir() if path.read_text() == "text"} == {"notes.md", "01234567.txt"}
    assert list(folder.glob("01234567*.md")) == [], "what another night has written stayed"


@pytest.fixture
def send(run, tmp_path):
    """What the script of the night sends, where these issues are known and this was said in them."""
    script = issues.write(run.night, run.findings, tmp_path / "issues")
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)

    def sent(*words, known="", said="", broken="", status=0):
        files = {name: tmp_path / name for name in ("SENT", "KNOWN", "SAID")}
        for path, text in zip(files.values(), ("", known, said)):
            if text is not None:
                path.write_text(text)
        told = os.environ | {name: str(path) for name, path in files.items()} | {"BROKEN": broken}
        told["PATH"] = f"{tmp_path}{os.pathsep}{told['PATH']}"
        done = subprocess.run(["sh", script, *words], env=told, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{script} ended with {done.returncode}: {done.stderr}"
        return [line for line in files["SENT"].read_text().splitlines() if "label create" not in line]

    return sent


def of(sent, word):
    return [line for line in sent if line.startswith(f"issue {word}")]


def test_a_new_cause_opens_an_issue_and_one_that_waits_too_when_all_are_asked_for(send):
    assert len(of(send(), "create")) == 3, "new, new and back; what is fixed needs no issue"
    assert len(of(send("all"), "create")) == 4
    assert not [*of(send(), "comment"), *of(send(), "close")], "there was no issue before"


def test_an_issue_that_there_is_is_told_once_closed_when_fixed_and_opened_again_when_back(send):
    known = (
        "7 OPEN [driftnet eeeeeeee] mnn: it\n8 CLOSED [driftnet dddddddd] mnn: it\n9 OPEN [driftnet aaaaaaaa] mnn: it\n"
    )
    sent = send(known=known)
    assert (of(sent, "close"), of(sent, "reopen")) == (["issue close 7"], ["issue reopen 8"])
    assert len(of(sent, "create")) == 1, "only bbbbbbbb has none"
    assert {line.split()[2] for line in of(sent, "comment")} == {"7", "8", "9"}
    assert not of(send(known=known, said="<sub>night 20261123T021700-abcdef</sub>\n"), "comment"), "said twice"


def test_a_night_that_is_sent_twice_says_nothing_twice(send):
    assert len(of(send("all"), "create")) == 4
    again = send("all", known=None)
    assert not [*of(again, "create"), *of(again, "comment")], f"what opened them is said again: {again}"


def test_an_issue_that_cannot_be_read_ends_the_script_and_is_told_nothing(send):
    sent = send(known="9 OPEN [driftnet aaaaaaaa] mnn: it\n", broken="9", status=1)
    assert of(sent, "comment") == [], "whether it was told this night is not known"


def test_the_texts_hold_what_is_known_and_nothing_of_a_model_is_a_command(send, tmp_path):
    opened, waiting = ((tmp_path / "issues" / f"{digit * 8}.md").read_text() for digit in "af")
    assert "# For maintainers" in opened
    assert "* 3.6.0: agrees" in opened
    assert "```text" in waiting, "of a cause that waits, the model"
    assert "driftnet replay" in waiting
    title = next(line for line in of(send(), "create") if "aaaaaaaa" in line)
    assert "$(id)" in title, f"the title is text, got {title}"
    assert "\x1b" not in title
