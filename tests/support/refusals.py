"""What a release of a target refuses, learned from generated graphs: `python -m tests.support.refusals --target mnn`
writes it beside the causes of the target (`driftnet.campaign.refused`)."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from driftnet.campaign.drawing import Models
from driftnet.campaign.gaps import FAVOUR
from driftnet.campaign.plan import Plan
from driftnet.campaign.refused import FILE, INPUT, OUTPUT, TIMES, Form, Refusals, remembered
from driftnet.campaign.shard import Shard
from driftnet.findings.trial import Trial, look, watch
from driftnet.generators import bulk
from driftnet.generators.features import PREFIX, known_features
from driftnet.generators.focus import known_focus
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.util.apart import trusting

DRAWS = 100
"""Graphs that are drawn until enough have a form."""


def learn(target: str, models: int, seed: int, corpus: Path) -> int:
    """Run graphs by the default recipe, and write which forms the target refused: how many. What was known before
    counts for nothing."""
    with tempfile.TemporaryDirectory() as report, Runner(small_models=True, hold_crashes=True) as runner, trusting():
        plan = Plan(report=Path(report), targets=(target,), seed=seed, corpus=corpus, cases=models)
        shard = Shard(plan, runner, lambda: False)
        drawing, (installed,) = shard.drawing, shard.installed
        drawing.refusals = [Refusals()]
        path = corpus / installed.target.name / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        for index in range(models):
            drawn = Models(drawing, index)
            trial = Trial(drawn.of(0), installed, {}, runner)
            verdict, _ = watch(trial)
            if refused := drawing.refused_for(trial.case, 0, verdict):
                drawn.leave_out(0, refused)
                trial = Trial(drawn.of(0), installed, {}, runner)
                verdict, _ = watch(trial)
                drawing.refused_for(trial.case, 0, verdict)
            drawing.gaps[0].learn(drawn.drawn[drawn.number(0)], verdict.word is Word.AGREES)
        forms = sorted((form for form, n in drawing.refusals[0].refused.items() if n >= TIMES), key=str)
        forms = [form for form in forms if _is_confirmed(form, shard, seed)]
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    told[installed.release] = forms
    lines = (
        f" {json.dumps(release)}: [\n" + ",\n".join(f"  {json.dumps(form)}" for form in of) + "\n ]"
        for release, of in sorted(told.items())
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return len(remembered([corpus], installed.target.name, installed.release).refused)


def _is_confirmed(form: Form, shard: Shard, seed: int) -> bool:
    """Whether a few fresh graphs that have this form, and little else, are all refused."""
    (installed,), refused = shard.installed, 0
    operator, kind = str(form[0]), form[2] if form[0] in (INPUT, OUTPUT) else ""
    focus = (operator,) if operator in known_focus() else ()
    feature = f"{PREFIX}dtype-{kind}"
    for index in range(DRAWS):
        weights = {feature: FAVOUR} if feature in known_features() else {}
        case = bulk.case(seed + 1, index, focus=focus, weights=weights, alone=bool(focus))
        if form not in shard.drawing.read(case).forms:
            continue
        word = look(Trial(case, installed, {}, shard.runner)).word
        if word is not Word.INVALID and word is not Word.REJECTS:
            return False
        refused += word is Word.REJECTS
        if refused == TIMES:
            return True
    return False


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--models", type=int, default=1200, help="graphs that are run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    asked = parser.parse_args()
    print(f"{learn(asked.target, asked.models, asked.seed, asked.corpus)} forms are refused")


if __name__ == "__main__":
    main()
