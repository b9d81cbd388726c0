"""A survey of saved cases: what was learned of each anew, one JSON line a case.

    python -m driftnet.learning.survey learn CORPUS LINES.jsonl [--shard K/N] [--only IDS]
    python -m driftnet.learning.survey update CORPUS LINES.jsonl...

Learning takes some CPU seconds a case. It goes on where it was ended, and may run in several shards, each with lines of
its own; of two lines of one case the later one counts. Updating gives each finding whichever trigger was right about
more of the same instances, the one that it has or the new one; which cases have one cause stays. A line holds

    case, target           its id, its target
    trigger                `Trigger.as_json`, or null;   sentence   the trigger in words
    free, needed           aspects whose changes never lost the failure, and those that did
    score                  on fresh instances;   believed   on the last ones while it was learned
    before                 on the same fresh instances, of the trigger that stands in cause.json; {} where there is none
                           that the case meets itself; null where nothing was measured
    steady, seconds, runs  whether it fails always, CPU seconds, runs of the target
"""

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from driftnet.causes import record
from driftnet.causes.host import host_of
from driftnet.causes.lookup import recipe_facts
from driftnet.causes.predicate import Trigger, trigger_of
from driftnet.causes.record import CauseRecord
from driftnet.causes.words import sentence
from driftnet.findings.corpus import SavedCase, load_all
from driftnet.learning.merging import title_of
from driftnet.learning.trigger import SECONDS, Learned, Score, compare, learn_trigger, score_of
from driftnet.run.runner import Runner
from driftnet.targets.environments import Installed, resolve, where_seen
from driftnet.util.apart import trusting
from driftnet.util.files import json_text

FRESH = 40
"""Instances that a trigger is measured on."""


def survey(
    cases: Sequence[SavedCase], lines: Path, *, seconds: float = SECONDS, seed: int = 1, fresh: int = FRESH
) -> None:
    """Learn the trigger of every case, and write its line.

    seconds   CPU seconds of all processes for each case
    seed      of the instances
    fresh     instances, of another seed, that each trigger is measured on afterwards, beyond these seconds
    """
    with lines.open("a", encoding="utf-8") as file:
        for learned, believed, before in learn_all(cases, seconds=seconds, seed=seed, fresh=fresh):
            told = (before.as_json() if before else {}) if fresh else None
            file.write(json_text({**line_of(learned, believed), "before": told}) + "\n")
            file.flush()


def learn_all(
    cases: Iterable[SavedCase], *, seconds: float = SECONDS, seed: int = 1, fresh: int = FRESH
) -> Iterator[tuple[Learned, Score, Score | None]]:
    """What can be learned of each case, measured; the score that it had while it was learned; that of the trigger in
    its cause. Some cases are `flaky`: what they need may not come back."""
    for saved in cases:
        target = resolve(where_seen(saved.target, saved.seen))
        # A runner of its own: what one target's crashes left in a template is not the next one's.
        with Runner(small_models=True, hold_crashes=True) as runner:
            learned = learn_trigger(saved, target, runner, seconds=seconds, seed=seed)
            cause = saved.cause and saved.cause.of_case(saved.id)
            had = cause and cause.trigger
            other = had and learned.trigger and had.shape != learned.trigger.shape
            if had and (other or not _is_met(had, learned, target)):  # learned of another case
                had = None
            triggers = [trigger for trigger in (learned.trigger, had) if trigger]
            scores = compare(triggers, learned, target, runner, seed=seed + 1, count=fresh) if fresh else []
        before = scores[-1] if scores and had else None
        score = scores[0] if scores and learned.trigger else learned.score
        yield dataclasses.replace(learned, score=score), learned.score, before


def _is_met(trigger: Trigger, learned: Learned, target: Installed) -> bool:
    """Whether the case that something was learned of meets `trigger` itself."""
    saved = learned.saved
    return bool(trigger.matches(host_of(saved.case, learned.tensors), recipe_facts(target.target, saved.recipe)))


def line_of(learned: Learned, believed: Score) -> dict[str, Any]:
    """What was learned of a case as a JSON value, but for its samples and what its case computes."""
    trigger, score = learned.trigger, learned.score.as_json()
    return {
        "case": learned.saved.id,
        "target": learned.saved.target,
        "trigger": trigger and trigger.as_json(),
        "sentence": sentence(trigger, learned.free, learned.needed, score) if trigger else "",
        "free": list(learned.free),
        "needed": list(learned.needed),
        "score": score,
        "believed": believed.as_json(),
        "steady": learned.steady,
        "seconds": round(learned.seconds, 2),
        "runs": learned.runs,
    }


def read_lines(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Case -> its last line."""
    lines = (
        json.loads(line) for path in files if path.exists() for line in path.read_text(encoding="utf-8").splitlines()
    )
    return {line["case"]: line for line in lines}


def update(root: Path, lines: Mapping[str, Mapping[str, Any]]) -> int:
    """Write what was learned anew into the causes below `root`; how many findings have another trigger."""
    changed = 0
    for folder in sorted(path.parent for path in root.glob(f"*/*/{record.FILE}")):
        cause = record.load(folder)
        saved = {saved.id: saved for saved in load_all(folder)}
        for id in {**cause.findings, **saved}:
            line = lines.get(id)
            if line and line["trigger"] and line["score"]["instances"]:
                after = _updated(cause, id, line)
                trigger = after.of_case(id).trigger
                if trigger != cause.of_case(id).trigger:
                    changed += 1
                    if id in saved and id == f"test_{cause.id}":
                        after = dataclasses.replace(after, title=title_of(saved[id], trigger))
                cause = after
        record.save(cause, folder)
    return changed


def _updated(cause: CauseRecord, id: str, line: Mapping[str, Any]) -> CauseRecord:
    """The cause with the better one of two triggers for the case `id`, which both were measured on the same; with the
    new one where they speak of places of two shapes."""
    own, before, known = cause.of_case(id), line.get("before"), cause.learned
    if before is None and own.trigger:
        return cause
    trigger, score = trigger_of(line["trigger"]), line["score"]
    better = own.trigger is None or not before or _merit(before) < _merit(score)
    if own.trigger and before and not better:
        if id not in known:  # what holds of the whole does for it, too
            return cause
        trigger, score = own.trigger, before
    findings = {**known, id: record.finding(trigger, own.place, score)}
    if id != _speaker(cause, known):
        return dataclasses.replace(cause, findings=findings)
    findings = findings if len(findings) > 1 else {}
    cause = dataclasses.replace(record.stating(cause, trigger), score=score, findings=findings)
    if not better:
        return cause
    return dataclasses.replace(cause, tried=tuple(line["free"]), needed=tuple(line["needed"]))


def _speaker(cause: CauseRecord, findings: Iterable[str]) -> str:
    """The case whose trigger stands for the whole: the one that the cause is named after, where it has that trigger."""
    own = f"test_{cause.id}"
    same = [id for id in findings if cause.of_case(id).trigger == cause.trigger]
    return same[0] if same and own not in same else own


def _merit(score: Mapping[str, Any]) -> tuple[float, int]:
    """What tells better what fails from what does not is better; then what names more of what fails."""
    return score_of(score).worth, score["found"]


def main() -> None:
    """What the command line asks for: see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    learn = commands.add_parser("learn", help="learn the triggers of the cases of CORPUS that have no line yet")
    learn.add_argument("corpus", type=Path)
    learn.add_argument("lines", type=Path)
    learn.add_argument("--shard", default="0/1", help="K/N: every N-th case, from the K-th on")
    learn.add_argument("--only", type=Path, help="a file with the ids of the cases to take, in this order")
    learn.add_argument("--seed", type=int, default=1)
    learn.add_argument("--seconds", type=float, default=SECONDS, help="CPU seconds of all processes for each case")
    learn.add_argument("--fresh", type=int, default=FRESH, help="instances that each trigger is measured on afterwards")
    updated = commands.add_parser("update", help="write into the causes of CORPUS what was learned anew")
    updated.add_argument("corpus", type=Path)
    updated.add_argument("lines", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.command == "update":
        print(f"{update(asked.corpus, read_lines(asked.lines))} findings have another trigger")
        return
    cases = load_all(asked.corpus)
    Random(0).shuffle(cases)  # what is there at any time is a sample of all
    k, n = map(int, asked.shard.split("/"))
    done, only = read_lines([asked.lines]), asked.only.read_text(encoding="utf-8").split() if asked.only else []
    wanted = sorted((c for c in cases if c.id in only), key=lambda c: only.index(c.id)) if asked.only else cases
    wanted = [saved for saved in wanted[k::n] if saved.id not in done]
    with trusting():  # the models are those of saved cases, and made of them
        survey(wanted, asked.lines, seconds=asked.seconds, seed=asked.seed, fresh=asked.fresh)


if __name__ == "__main__":
    main()
