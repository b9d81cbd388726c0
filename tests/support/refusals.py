"""What a release of a target refuses, learned from generated graphs: `python -m tests.support.refusals --target mnn`
writes it beside the causes of the target (`driftnet.campaign.refused`)."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from driftnet.campaign.drawing import Models
from driftnet.campaign.plan import Plan
from driftnet.campaign.refused import FILE, TIMES, remembered
from driftnet.campaign.shard import Shard
from driftnet.findings.trial import Trial, watch
from driftnet.model.verdict import Word
from driftnet.run.runner import Runner
from driftnet.util.apart import trusting


def learn(target: str, models: int, seed: int, corpus: Path) -> int:
    """Run graphs by the default recipe, and write which forms the target refused: how many, with those known before
    that were not seen to run."""
    with tempfile.TemporaryDirectory() as report, Runner(small_models=True, hold_crashes=True) as runner, trusting():
        plan = Plan(report=Path(report), targets=(target,), seed=seed, corpus=corpus, cases=models)
        shard = Shard(plan, runner, lambda: False)
        drawing, (installed,) = shard.drawing, shard.installed
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
    path = corpus / installed.target.name / FILE
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    told[installed.release] = forms
    lines = (
        f" {json.dumps(release)}: [\n" + ",\n".join(f"  {json.dumps(form)}" for form in of) + "\n ]"
        for release, of in sorted(told.items())
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return len(remembered([corpus], installed.target.name, installed.release).refused)


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
