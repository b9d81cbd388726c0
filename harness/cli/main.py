"""The command line: options in, one function of driftnet.api, its result as a table or as JSON, an exit status."""

from __future__ import annotations

import math
import sys
import time
import traceback
import webbrowser
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from driftnet import api
from driftnet.cli import defaults, options
from driftnet.cli.options import MONTH, PATH, Amount
from driftnet.cli.report import tables
from driftnet.cli.telling import ERR, Commands, Told, fail, open_streams, terminated_like_interrupted
from driftnet.run import health
from driftnet.run.share import GENERATED_SECONDS, REAL_SECONDS, SAVED_SECONDS
from driftnet.util import misfits
from driftnet.util.errors import UserError
from driftnet.util.files import RUNS, make_folder
from rich.markup import escape


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="driftnet")
def driftnet() -> None:
    """Differential fuzz testing for ONNX deployment toolchains: convert, quantize, execute, compare, minimize.

    Exit status: 0 clean, 1 a new finding, 2 bad usage or an error of driftnet, 3 only known findings.

    \b
    Examples: driftnet fuzz --minutes 3
              driftnet check model.onnx --target mnn
              driftnet report 19604402 --open
    """


@driftnet.command(short_help="Generate graphs and save what diverges.")
@options.target
@click.option(
    "--minutes",
    type=Amount(min=0, min_open=True, max=MONTH / 60),
    metavar="M",
    help="Stop after M minutes.  [default: 2]",
)
@click.option("--cases", type=click.IntRange(min=1), metavar="N", help="Stop after N cases (model x target x recipe).")
@click.option(
    "--seed",
    type=int,
    help="Same seed, one worker, --no-steer: same cases in the same order.  "
    "[default: 0; with --state one that no night had]",
)
@options.workers("auto")
@click.option(
    "--cluster",
    default="",
    metavar="ADDRESS",
    help="Examine on the workers of the Dask scheduler there, tcp://HOST:8786, instead of here.",
)
@click.option("--focus", multiple=True, metavar="NAME", help="Only graphs with this operator, family or motif.")
@options.seeds
@options.corpus(options.there)
@click.option("--save", is_flag=True, is_eager=True, help="Save new findings in the corpus too.")
@click.option(
    "--state",
    type=PATH,
    metavar="DIR",
    help="What goes from one night to the next: open causes are asked again first, each is announced once.",
)
@click.option(
    "--only-new", is_flag=True, help="Tell new findings alone; exit status 0 where there are only known ones."
)
@click.option(
    "--report", type=PATH, metavar="DIR", help="Where to write findings and summary.  [default: reports/<run>]"
)
@click.option("--no-steer", is_flag=True, help="Draw operators of known issues as often as others.")
@click.option("--resume", is_flag=True, help="Continue the run in --report, for as many minutes or cases more.")
@options.python
@options.timeout(GENERATED_SECONDS)
@options.memory
@click.option("--all", "every", is_flag=True, help="List what is known too, instead of counting it.")
@options.hide_files
def fuzz(report: Path | None, no_steer: bool, only_new: bool, every: bool, **given: Any) -> Told:
    """Generate graphs, push them through the targets, save what diverges.

    With --state the exit status is 1 only where a cause is new, comes back or gets worse; 3 where some are open.

    \b
    Examples: driftnet fuzz --minutes 10 --target mnn
              driftnet fuzz --minutes 60 --state nightly        every night: what is new, worse, fixed, open
              driftnet fuzz --minutes 5 --only-new              for a pull request
    """
    if given["resume"] and report is None:
        raise UserError(
            "--resume needs the --report of the run to go on with", hint="driftnet fuzz --resume --report DIR"
        )
    from driftnet.cli.report import campaign, progress

    if given["seed"] is None:
        given["seed"] = api.next_seed(given["state"]) if given["state"] else 0
    folder = report or RUNS / time.strftime(f"fuzz-%Y%m%d-%H%M%S-seed{given['seed']}")
    plan = api.Plan(report=folder, steer=not no_steer, **given)
    with progress.shown(ERR, quiet=click.get_current_context().meta["as_json"]) as show:
        summary = api.fuzz(plan, listeners=[progress.written(folder), show])
    result = summary.as_json()
    if only_new:
        result["findings"] = [finding for finding in result["findings"] if finding["status"] == "new"]
    status = summary.status_of_new if only_new else summary.exit_status
    return Told(result, partial(campaign.ended, folder=folder, status=status, every=every), status)


@driftnet.command(short_help="What nights know of each cause; merge states.")
@click.argument("folder", type=PATH, metavar="DIR")
@click.option("--merge", "others", multiple=True, type=PATH, metavar="OTHER", help="Take in what this state knows.")
def state(folder: Path, others: Sequence[Path]) -> Told:
    """What the nights of `fuzz --state DIR` know: each cause that one announced, and whether it is open or fixed.

    --merge takes in other states, of jobs that ran beside each other or of another machine, in any order and as often
    as one likes: nothing is lost, nothing counts twice.

    \b
    Examples: driftnet state nightly
              driftnet state nightly --merge nightly-of-mnn --merge nightly-of-onnxruntime
    """
    from driftnet.cli.report import nightly

    return Told(api.merge_states(folder, others), nightly.state)


@driftnet.command(short_help="Run saved cases again.")
@click.argument("paths", nargs=-1, type=PATH, metavar="[CASE|DIR]...")
@click.option(
    "--target", multiple=True, metavar="T[==RELEASE]", help="Replay on this release instead; repeat it for a table."
)
@click.option("--runs", type=click.IntRange(min=1), default=5, help="Fresh processes each case is run in.")
@options.budget(math.inf, "Wall time after which no other case is begun.")
@options.python
@options.timeout(SAVED_SECONDS)
@options.hide_files
def replay(paths: Sequence[Path], **given: Any) -> Told:
    """Run saved cases again, and say whether each behaves as its status says.  [default: corpus]

    Exit status: 0 each case behaves as its status says; 3 so, and an open one reproduced; 1 one does not; 2 it was
    interrupted: what it had come to is told.

    \b
    Examples: driftnet replay corpus
              driftnet replay 19604402 --target mnn==3.4.1 --target mnn     a table of cases and releases
    """
    from driftnet.cli.report import progress

    with progress.told(ERR, "replaying") as tell:
        result = api.replay(paths or (Path("corpus"),), **given, tell=tell)
    _warn_of_the_network(result)
    return Told(result, tables.replay, api.replay_status(result))


def _list(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


@driftnet.command(short_help="Which release broke it, which mended it?")
@click.argument("path", required=False, type=PATH, metavar="[CAUSE|CASE]")
@click.option("--all", "every", is_flag=True, help="The causes of the corpus that have no history, by impact.")
@click.option("--target", default="", metavar="T", help="With --all: causes of this target only.")
@click.option("--releases", callback=_list, metavar="A,B,C", help="These.  [default: what the package index offers]")
@options.budget(math.inf, "With --all: time after which no other cause is begun.")
@options.corpus(None)
@options.hide_files
def bisect(corpus: Path, **given: Any) -> Told:
    """Run a case on the releases of its target, each in an environment made for it once: first bad, last good.

    Of a cause, its smallest case is run. What a release is too old for, or refuses, counts neither as good nor as bad.
    The cause says from then on what each release did. Of more than eight releases not all are run: the ends and the
    quarters, then halves of what lies between two that differ.

    \b
    Examples: driftnet bisect 19604402
              driftnet bisect 19604402 --releases 3.0.0,3.4.1,3.6.1
              driftnet bisect --all --target mnn --budget 3600
    """

    def tell(case: str, release: str, state: str) -> None:
        ERR.print(f"{case} {release}: {state}", markup=False)

    return Told(api.bisect(**given, root=corpus, tell=tell), tables.bisect)


@driftnet.command(short_help="Which operators work, of which types?")
@click.option("--target", required=True, metavar="T", help="mnn, mnn==3.4.1, onnxruntime-quant, ...")
@click.option("--against", default="", metavar="T==RELEASE", help="Another release: what it did otherwise.")
@options.several("--option", "options", "K=V", help="One option of the target.  [default: nothing is quantized]")
@options.operators
@options.budget(120.0, "CPU time, shared by operators.", least=0.1)
@click.option("--seed", type=int, default=0, help="Same seed: the same models in the same order.")
@click.option("--out", type=PATH, metavar="DIR", help="Where to write support.html, support.md and support.json.")
@options.corpus(options.there)
@options.hide_files
def support(corpus: Path, out: Path | None, **given: Any) -> Told:
    """Which operators does a target have, of which types, ranks and attributes? Runs models of one operator each.

    Works, diverges, crashes, errors or refused, with the causes that are known. What is between operators (fusions)
    is not in it: driftnet lint MODEL.onnx tells that of a model. What was done when it was interrupted is written, and
    says so; exit status 2 then.

    \b
    Example: driftnet support --target mnn --against mnn==3.4.1 --out support/
    """
    if out:
        make_folder(out)
    from driftnet.cli.report import progress

    with progress.told(ERR, f"running models of one operator on {given['target']}") as tell:
        result = api.support(**given, root=corpus, tell=tell)
    if out:
        from driftnet.cli.report import pages

        result["page"] = str(pages.write_support(result, out))
    return Told(result, tables.support, 2 if result["interrupted"] else 0)


@driftnet.command(short_help="What was asked of a target, and what never?")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="STATE|RUN...")
@click.option("--target", "targets", multiple=True, metavar="T", help="Only this one; repeat it for several.")
@options.operators
@click.option("--out", type=PATH, metavar="DIR", help="Where to write coverage.html and coverage.json.")
@click.option("--all", "every", is_flag=True, help="Every operator, not only those of which most was never asked.")
def coverage(out: Path | None, every: bool, **given: Any) -> Told:
    """What have nights or a run asked of each target: operators by types, ranks, opsets, attributes, options of
    recipes; by what it was judged; and what was never asked.

    A case counts for each of its operators. Types are those that onnxruntime has, attributes those that are stated.
    A state grows with each night; fuzz draws first what it has never asked, unless --no-steer.

    \b
    Examples: driftnet coverage nightly --target mnn
              driftnet coverage reports/RUN --operator Conv --json
              driftnet coverage nightly --out coverage/
    """
    if out:
        make_folder(out)
    result = api.coverage(**given)
    if out:
        from driftnet.cli.report import pages

        result["page"] = str(pages.write_coverage(result, out))
    return Told(result, partial(tables.coverage, every=every))


@driftnet.command(short_help="One real model: verdict, fault, reduced case.")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@options.target
@options.inputs
@options.calibration
@click.option(
    "--recipe", metavar="JSON", callback=options.recipe, help="The whole recipe, e.g. '{\"optimize_level\": 0}'."
)
@click.option("--quantize", metavar="Q", help="The target's quantization method; short for --option quantize=Q.")
@options.option
@click.option("--sweep", is_flag=True, help="Try each value of each option, one at a time.")
@options.dims
@click.option(
    "--budget",
    type=Amount(min=0, max=options.MONTH),
    metavar="SECONDS",
    help="CPU time for one target and recipe, after which nothing is run; nor after three times that.  [default: "
    "27 for a model of up to 5 MiB, 115 up to 20, else 290]",
)
@click.option("--atol", type=Amount(min=0), default=0.0, metavar="A", help="Accept outputs within A + R |y| of y.")
@click.option("--rtol", type=Amount(min=0), default=0.0, metavar="R", help="See --atol.")
@click.option("--accept", default="", metavar="NOTE", help="Why that is accepted, whatever the verdict is.")
@click.option(
    "--anonymize",
    "--anonymise",
    is_flag=True,
    help="Keep out of --out every name, text, weight and input that the failure does not need.",
)
@click.option("--out", type=PATH, metavar="DIR", help="Where to write the reduced case.")
@options.corpus(options.there)
@options.python
@options.timeout(REAL_SECONDS)
@options.memory
@options.hide_files
def check(model: Path, quantize: str | None, **given: Any) -> Told:
    """One real model: does each target do what onnxruntime does, and if not, which nodes show it?

    Exit status: 0 agrees, is accepted, or is known to be off by one rounding step; 1 diverges, fails, crashes or hangs
    (3 when known); 2 rejects, invalid, abstains, or a mistake in what was given, as calibration on other data than the
    inputs by which an output is lost. Of a sweep, what a target does not support is passed over where it agrees under
    other options.

    \b
    Examples: driftnet check model.onnx --target mnn
              driftnet check model.onnx --target onnxruntime-quant --quantize static --calibration samples/
              driftnet check model.onnx --sweep --dim batch=1 --json
    """
    chosen = given["options"] | ({"quantize": quantize} if quantize else {})
    settings = api.CheckSettings(**given | {"options": chosen})
    if sum([settings.sweep, settings.recipe is not None, bool(chosen)]) > 1:
        raise UserError("--recipe, --sweep and --quantize/--option exclude each other", hint="driftnet check --help")
    if settings.anonymize and not settings.out:
        raise UserError("--anonymize says how to write a reduced case, not where", hint="give --out DIR too")
    from driftnet.cli.report import progress

    with progress.told(ERR, f"checking {model}") as tell:
        result = api.check(model, settings, tell=tell)
    _warn_of_the_network(result)
    if settings.out:
        from driftnet.cli.report import pages

        out = Path(settings.out)
        result["page"] = str(_write_check(result, model, out, settings))
        if earlier := pages.earlier(result, out):
            said = f"{out} holds cases that this check did not write: {', '.join(earlier)}"
            ERR.print(f"[yellow]{escape(said)}[/]")
    return Told(result, tables.check, api.check_status(result))


def _write_check(result: dict[str, Any], model: Path, out: Path, settings: api.CheckSettings) -> Path:
    """The page of a check."""
    from driftnet.cli.report import pages

    if settings.anonymize:
        return pages.write_check(pages.nameless(result), Path("model.onnx"), out)
    fed = [("--inputs", settings.inputs), ("--calibration", settings.calibration)]
    words = [str(word) for name, path in fed if path for word in (name, path)]
    words += [word for name, size in settings.dims.items() for word in ("--dim", f"{name}={size}")]
    return pages.write_check(result, model, out, given=words)


@driftnet.command(short_help="Which known causes does a model meet?")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@click.option("--target", required=True, metavar="T", help="mnn, mnn==3.4.1, onnxruntime-quant, ...")
@click.option("--recipe", metavar="JSON", callback=options.recipe, help="The recipe that the model is meant for.")
@options.several("--option", "options", "K=V", help="One option of the target, as in --option quantize=offline.")
@click.option("--confirm", is_flag=True, help="Run what is met or may be: each place cut out, on made-up inputs.")
@options.dims
@options.corpus(options.there)
@options.python
@options.hide_files
def lint(model: Path, **given: Any) -> Told:
    """Which known causes of failure does a model meet on a target, by their triggers alone? Nothing is run.

    For each place: the node, how severe it is, and what may help. What nobody knows without a run is taken to be as
    usual: numbers that are fed finite, not all equal, nor all zero; a size that no --dim tells 2 or more; what is
    resized of another size; some results 1 or more, where they may be. What depends on no more is met. What depends on
    more, or on a trigger that is known to err or was measured on fewer than three places, is told apart, as what may
    be met.

    Which nodes the release is known to refuse is said too.

    Exit status: 0 none is met; 1 some are, or a place that --confirm ran fails otherwise, or an operator is refused or
    nobody registered it; 2 a mistake in what was given.

    \b
    Examples: driftnet lint model.onnx --target mnn --option quantize=offline
              driftnet lint model.onnx --target mnn --dim batch=1 --confirm
    """
    if given["recipe"] is not None and given["options"]:
        raise UserError("--recipe and --option exclude each other", hint="driftnet lint --help")
    result = api.lint(model, **given)
    return Told(result, tables.lint, api.lint_status(result))


@driftnet.command(short_help="A quantized model against its float model.")
@click.argument("model", type=PATH, metavar="FLOAT.onnx")
@click.argument("quantized", type=PATH, metavar="QUANTIZED.onnx")
@options.inputs
@options.timeout(REAL_SECONDS)
@options.memory
@options.hide_files
def audit(model: Path, quantized: Path, **given: Any) -> Told:
    """Is the quantized model a right quantization of the float model, whatever tool made it, and executed as written?

    Exit status: 0 yes; 1 no, and what is wrong; 2 less than 95 % of the float model's nodes could be compared, or a
    mistake in what was given.

    \b
    Example: driftnet audit float.onnx quantized.onnx --inputs samples/
    """
    with ERR.status(f"auditing {quantized}"):
        result = api.audit(model, quantized, **given)
    _warn_of_the_network(result)
    return Told(result, tables.audit, api.audit_status(result))


@driftnet.command(short_help="Make a failing case or model small.")
@click.argument("path", type=PATH, metavar="CASE|MODEL.onnx")
@click.option("--target", default="", metavar="T", help="The target it fails on; a saved case names its own.")
@options.inputs
@options.calibration
@options.option
@options.dims
@options.budget(60.0, "CPU time for it.")
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Where to write the reduced case.")
@options.python
@options.timeout(SAVED_SECONDS)
@options.hide_files
def reduce(path: Path, **given: Any) -> Told:
    """Make a failing case or model as small as its failure allows.

    \b
    Examples: driftnet reduce 19604402 --out smaller/
              driftnet reduce model.onnx --target mnn --dim batch=1 --budget 300 --out reduced/
    """
    from driftnet.cli.report import progress

    of_model = api.Given(**{name: given.pop(name) for name in ("inputs", "calibration", "options", "dims")})
    with progress.told(ERR, f"reducing {path}") as tell:
        result = api.reduce(path, given=of_model, **given, tell=tell)
    _warn_of_the_network(result)
    return Told(result, tables.reduced, 2 if result["interrupted"] else 0)


@driftnet.command(short_help="Set the status of a cause or case.")
@click.argument("path", type=PATH, metavar="CAUSE|CASE")
@click.option("--status", default="", metavar="S", help="open, fixed, flaky or expected.")
@click.option("--upstream", default="", metavar="URL", help="Where it was reported.")
@click.option("--note", default="", metavar="TEXT", help="One line for the next reader; for expected, the rule.")
@options.several("--remedy", "remedy", "K=V", help="An option under which the bug is gone.")
@click.option("--merge", type=PATH, metavar="CAUSE", help="Another cause that is the same: its cases join this one.")
@click.option("--split", type=PATH, metavar="CASE", help="A case of this cause that is another one.")
@options.corpus(None)
@options.hide_files
def triage(path: Path, corpus: Path, **given: Any) -> Told:
    """Set the status of a cause with all its cases, or of one case; what stands in a report is brought into the corpus,
    where it gets a cause if it had none.

    Both are named by their folder, their id, or the 8 hex digits at its end. With --remedy, failures that go away under
    the same option are from then on taken for this cause. What --merge and --split say lasts.

    \b
    Examples: driftnet triage 19604402 --status fixed --upstream https://example.org/7
              driftnet triage 19604402 --merge 65ff9490
    """
    return Told(api.triage(path, root=corpus, **given), tables.fields)


@driftnet.command(short_help="HTML pages of runs and of saved cases.")
@click.argument("paths", nargs=-1, type=PATH, metavar="[RUN|CORPUS|CAUSE]...")
@click.option(
    "--out", type=PATH, default=RUNS / "html", metavar="DIR", help="Where to write index.html and a page a case."
)
@click.option("--open", "opened", is_flag=True, help="Show it in a browser: of one finding, its own page.")
@options.hide_files
def report(paths: Sequence[Path], out: Path, opened: bool) -> Told:
    """HTML pages of the findings of runs and of saved cases.  [default: corpus]

    \b
    Examples: driftnet report reports/RUN corpus --out pages/
              driftnet report 19604402 --open
    """
    from driftnet.cli.report import overview

    result = api.report(paths or (Path("corpus"),), out=out)
    with ERR.status("running the cases, to show what they answer"):
        answers = api.answers(result)
    result["page"] = str(overview.write_report(result, out, answers))
    if opened:
        own = {overview.page_of(row) for row in result["cases"]}
        page = out / (own.pop() if len(own) == 1 else "index.html")
        if not webbrowser.open(page.resolve().as_uri()):
            ERR.print(f"no browser opens here; the page: {page}", markup=False)
    return Told(result, tables.report)


@driftnet.command(short_help="Write just the graphs, as ONNX tests.")
@click.option("--cases", type=click.IntRange(min=1), required=True, metavar="N", help="How many.")
@click.option("--seed", type=int, default=0, help="Same seed: same cases.")
@click.option("--focus", multiple=True, metavar="NAME", help="Only graphs with this operator, family or motif.")
@click.option("--target", default="", metavar="NAME", help="Only what this target takes, where that is little.")
@options.seeds
@click.option("--out", type=PATH, required=True, metavar="DIR")
def generate(**given: Any) -> Told:
    """Write just the graphs, as ONNX backend-test folders DIR/test_000000, DIR/test_000001 ...

    \b
    Examples: driftnet generate --cases 100 --seed 7 --out graphs/
              driftnet generate --cases 20 --focus Conv --out graphs/
              driftnet generate --cases 20 --from model.onnx --out graphs/
    """
    return Told(api.generate(**given), tables.fields)


@driftnet.command(short_help="Systems under test and their options.")
@click.option("--prune", is_flag=True, help="Delete the environments made for other releases.")
@click.option(
    "--try", "word", metavar="MODULE:ATTRIBUTE", help="Run the easiest model on this target, registered or not."
)
@options.hide_files
def targets(prune: bool, word: str | None) -> Told:
    """What can be examined: targets, their releases and their options.

    With --try a Relu goes through each stage of a target under every value of its options. Exit status 1 where it
    fails, crashes, hangs or is wrong under one of them, or is right under none; 2 where the plug-in itself is broken: a
    statement of its own file raises, a function returns what is of another type than it has to be, or its declaration
    names a stage or a value that there is not.

    \b
    Examples: driftnet targets
              driftnet targets --try my_package.driftnet_target:TARGET
    """
    if word:
        result = api.attempt(word)
        return Told(result, tables.tried, api.attempt_status(result))
    return Told(api.targets(prune=prune), tables.targets)


@driftnet.command(short_help="Does the oracle see bugs planted into targets?")
@options.target
@click.option("--cases", type=click.IntRange(min=1), default=22, metavar="N", help="Effective cases of each kind.")
@click.option("--seed", type=int, default=0, help="Same seed: same cases.")
@click.option("--kind", "kinds", multiple=True, metavar="NAME", help="Only this kind of bug.")
@click.option("--out", type=PATH, metavar="DIR", help="Where to write what a clean target is blamed for, reduced.")
@options.workers("1")
@options.corpus(options.there)
@options.hide_files
def selfcheck(corpus: Path, **given: Any) -> Told:
    """Plant bugs (mutants) into real targets, and count which of them the oracle detects.

    Exit status: 0; 1 when less than 80 % of a kind or 97 % of all are detected, a clean target is blamed, the oracle
    raises an error, or a kind changed an output in none of the cases tried: then it was not tested. A kind that needs
    what the target documents that it does not support is told apart.

    \b
    Examples: driftnet selfcheck --target mnn==3.4.1 --workers auto
              driftnet selfcheck --kind lost-bias --cases 5
    """
    result = api.selfcheck(
        **given,
        corpus_folder=corpus,
        listener=lambda kind, count: ERR.print(f"{kind}: {count.detected} of {count.effective}", markup=False),
    )
    return Told(result, tables.selfcheck, api.selfcheck_status(result))


@driftnet.command(short_help="Measure driftnet itself, in CPU time.")
@click.argument("name", required=False)
@click.option("--compare", nargs=2, type=PATH, metavar="A B", help="Two result files instead of a run: B against A.")
@click.option("--out", type=PATH, metavar="FILE", help="Where to write the result as JSON.")
def bench(name: str | None, compare: tuple[Path, Path] | None, out: Path | None) -> Told:
    """Measure driftnet itself, in CPU time: cases (the default), generators, or campaign.

    \b
    Examples: driftnet bench
              driftnet bench cases --out after.json
              driftnet bench --compare before.json after.json
    """
    return Told(api.bench(name or "cases", compare=compare, out=out), tables.bench)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: run one command and exit with its status; an error is one message and status 2.

    An error of driftnet itself is told with its traceback on stderr.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        default_map = defaults.read(Path("pyproject.toml"), driftnet.commands)
        with terminated_like_interrupted():
            status = driftnet.main(words, prog_name="driftnet", standalone_mode=False, default_map=default_map)
    except click.exceptions.Exit as e:
        status = e.exit_code
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        status = 2
    except click.ClickException as e:
        hint = f"{e.ctx.command_path} --help" if isinstance(e, click.UsageError) and e.ctx else "driftnet --help"
        if isinstance(e, click.MissingParameter) and e.param and e.param.name == "target":
            from driftnet.targets.registry import registered

            hint = f"--target is one of {', '.join(sorted(registered()))}, or one with a release; {hint}"
        status = fail(UserError(e.format_message(), hint=hint), words)
    except UserError as e:
        status = fail(e, words)
    except (KeyboardInterrupt, click.Abort):
        status = fail(UserError("interrupted", kind="interrupted"), words)
    except Exception as e:  # whatever it is, it is no finding: the status must not be Python's own, 1
        if lacking := health.fault(e) or misfits.fault(e):
            sys.exit(fail(lacking, words))
        traceback.print_exc()
        hint = "this is an error of driftnet itself; please report it with what stands on stderr"
        status = fail(UserError(f"{type(e).__name__}: {e}", hint=hint, kind="internal"), words)
    sys.exit(status if isinstance(status, int) else 0)


def _warn_of_the_network(result: Mapping[str, Any]) -> None:
    if not result["network_isolated"]:
        from driftnet.campaign.shard import NO_NETWORK_NAMESPACE

        ERR.print(f"warning: {NO_NETWORK_NAMESPACE}")


if __name__ == "__main__":
    main()
