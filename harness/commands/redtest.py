"""What a red test shows: one sentence, the smallest model, what went in, what should have come out and what did, and
the command that replays it."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from driftnet.campaign.summary import described
from driftnet.causes.impact import HARM
from driftnet.causes.words import sentence
from driftnet.findings import arrange
from driftnet.findings.corpus import SavedCase
from driftnet.findings.names import called
from driftnet.handover.markdown import plain
from driftnet.model.inspect import Case, Feed, elements, nodes
from driftnet.util.errors import shortened
from driftnet.util.files import make_folder, replace_text
from driftnet.util.options import written
from onnx import printer

WIDTH = 72
"""Columns: pytest puts up to eight before each line."""
MOST_NODES = 30
"""Of a model that is printed."""
SHOWN, WRONG = 32, 5
"""Elements of an array that is printed whole, and of those that are wrong."""
LONGEST = 600  # characters of a message: an exception may quote a whole model


def told(
    saved: SavedCase,
    release: str,
    drawn: Case | None,
    actual: Sequence[Feed],
    taken: int = 0,
    known: SavedCase | None = None,
) -> str:
    """The failure that was saved, for a person.

    known   the case that explains it, of those that came with driftnet: then `saved` is nowhere
    drawn   the case before it was reduced;   actual   what the target gave for the saved one, nothing where none
    taken   columns of the first line that are: by the name of an exception
    """
    lines = [
        *_prose(sentence_of(saved, release), taken),
        *_prose(shortened(saved.verdict.message, LONGEST)),
        "",
        *model(saved.case, drawn),
        *([f"options: {', '.join(written(saved.recipe))}"] if saved.recipe else []),
        *values(saved.case.feeds, saved.expected, actual),
        "",
        *(_of_known(known) if known else _of_new(saved)),
    ]
    return plain("\n".join(lines))


def _of_known(saved: SavedCase) -> Iterator[str]:
    name, title = (saved.cause.id[-8:], saved.cause.title) if saved.cause else (saved.id[-8:], saved.title)
    yield from _prose(f"it is known: {name} of driftnet's own cases: {title}")
    yield f"replay it:  driftnet replay {name}"
    yield 'accept it:  in the test: driftnet.knowing("corpus").check(...)'


def _of_new(saved: SavedCase) -> list[str]:
    name = called(saved.path) if saved.path else saved.id
    return [
        f"replay it:  driftnet replay {name}",
        f"report it:  driftnet reduce {name} --out DIR  (ISSUE.md, reproduce.py)",
        f"accept it:  driftnet triage {name} --status open  (into corpus/)",
        '            and in the test: driftnet.knowing("corpus").check(...)',
        *([f"from another folder it is called {saved.path.resolve()}"] if saved.path else []),
    ]


def begun(folder: Path) -> Path:
    """The folder of what tests find, which is there then, and which version control ignores as it does pytest's own."""
    make_folder(folder)
    replace_text(folder / ".gitignore", "*\n")
    return folder


def sentence_of(saved: SavedCase, release: str) -> str:
    """What it does and when it happens, in one sentence."""
    entry, cause = described(saved, release, "new"), (saved.cause or arrange.loose(saved)).of_case(saved.id)
    what = f"{saved.target} {release}: {HARM[entry.severity]} ({saved.kind} in {saved.stage})"
    when = f", when: {sentence(cause.trigger, score=cause.score)}" if cause.trigger else ""
    common = f"; at most {entry.exposure:.0%} of models meet it" if entry.exposure else ""
    return f"{what}{when}{common}"


def model(case: Case, drawn: Case | None) -> Iterator[str]:
    """The model as ONNX text, and how much was taken away."""
    yield f"the smallest model that shows it has {size(case)}{'' if drawn else ':'}"
    yield from [f"({size(drawn)} were drawn):"] if drawn else []
    if nodes(case) > MOST_NODES:
        yield f"  {case}"
        return
    for line in printer.to_text(case.proto).replace('[""] ', "").splitlines():
        indent = "  " + " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            line.strip(),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def size(case: Case) -> str:
    """How large a model is, in words."""
    n, m = nodes(case), elements(case)
    return f"{n} node{'s' * (n != 1)} and {m} element{'s' * (m != 1)}"


def values(feeds: Sequence[Feed], expected: Sequence[Feed], actual: Sequence[Feed]) -> Iterator[str]:
    """Of the first feed whose outputs differ, else the first: what went in, what should have come out, what did."""
    k = next((k for k, (a, b) in enumerate(zip(expected, actual)) if any(_wrong(a, b, name) for name in a)), 0)
    if len(feeds) > 1:
        yield f"feed {k + 1} of {len(feeds)}:"
    for what, arrays in (("input", feeds), ("expected", expected), ("actual", actual)):
        for name, x in arrays[k].items() if arrays else ():
            yield from _array(f"{what} {name}", np.asarray(x))
    for name in expected[k] if expected and actual else ():
        wrong = _wrong(expected[k], actual[k], name)
        if wrong:
            yield f"wrong in {name}: {'; '.join(wrong[:WRONG])}{f'; {len(wrong) - WRONG} more' * (len(wrong) > WRONG)}"


def _wrong(expected: Feed, actual: Feed, name: str) -> list[str]:
    """The elements that differ, what differs most first."""
    if name not in actual:
        return ["it is missing"]
    a, b = np.asarray(expected[name]), np.asarray(actual[name])
    if a.shape != b.shape or a.dtype != b.dtype:
        return [f"{b.dtype}{list(b.shape)}, should be {a.dtype}{list(a.shape)}"]
    with np.errstate(all="ignore"):
        differs = (a != b) & ~((a != a) & (b != b))
        off = np.where(np.isfinite(gap := abs(_float(a) - _float(b))), gap, np.inf)
    worst = sorted(zip(*np.nonzero(differs)), key=lambda at: -off[at])
    return [f"{[int(i) for i in at]} is {b[at]}, should be {a[at]}" for at in worst]


def _float(x: np.ndarray) -> np.ndarray:
    return x.astype(float) if x.dtype.kind in "biuf" else np.zeros(x.shape)


def _array(what: str, x: np.ndarray) -> Iterator[str]:
    said = f"{what}: {x.dtype}{list(x.shape)}"
    with np.printoptions(threshold=SHOWN, edgeitems=2, linewidth=WIDTH - 2, floatmode="unique"):
        lines = str(x).splitlines() if x.size else []
    if len(lines) == 1 and len(said) + len(lines[0]) < WIDTH:
        yield f"{said} {lines[0]}"
    else:
        yield said
        yield from (f"  {line}" for line in lines)


def _prose(text: str, taken: int = 0) -> list[str]:
    words, indent = " ".join(text.split()), " " * taken
    lines = textwrap.wrap(words, WIDTH, initial_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [lines[0][taken:], *lines[1:]]
