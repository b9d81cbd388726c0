"""Nights of a state on a terminal."""

from collections import Counter
from collections.abc import Iterator

from driftnet.cli.report.tables import Result, called, counted, say, shortened
from rich.console import Console

TITLE = 60  # characters of what a cause is, beside its digits and what happened to it


def night(console: Console, told: Result) -> None:
    """What happened in a night, and what waits: one line a cause; of what came with a corpus, a number."""
    happened = Counter(change["what"] for change in told["changes"])
    what = ", ".join(f"{count} {word}" for word, count in happened.items()) or "nothing new, worse or fixed"
    asked = f"{counted(told['asked'], 'known cause')} asked again first"
    asked += f", {told['unasked']} more another night" if told["unasked"] else ""
    say(console, f"\nnight {told['number']}: {what}; {told['open']} open and {told['fixed']} fixed in all", asked)
    for change in told["changes"]:
        colour = "green" if change["what"] == "fixed" else "red"
        say(console, f"{change['what']:6} {_named(change['cause'])}, on {change['release']}", style=colour)
    for cause in told["waiting"]:
        say(console, f"open   {_named(cause['cause'])}, since {cause['since'] or cause['release']}")


def state(console: Console, result: Result) -> None:
    """What happened to each cause that nights told of, and how many others are known."""
    days = {night["id"]: night["begun"][:10] for night in result["nights"]}
    for cause in result["causes"]:
        colour = "green" if cause["status"] == "fixed" else "red"
        say(console, f"{cause['status']:6} {_named(cause['id'])}, {cause['severity']}", style=colour)
        say(console, *_history(cause, days))
    known = result["known"]
    say(
        console,
        f"{counted(len(result['nights']), 'night')}, {counted(len(result['causes']), 'cause')} announced; besides, of "
        f"the corpus, {known['open']} open and {known['fixed']} fixed",
    )


def _history(cause: Result, days: Result) -> Iterator[str]:
    happened = (f"{days.get(c['night'], '?')} {c['what']} on {c['release']}" for c in cause["changes"])
    yield f"       {', '.join(happened)}"
    yield f"       now: {', '.join(f'{release} {outcome}' for release, outcome in cause['releases'].items())}"


def _named(id: str) -> str:
    digits, what = called(id)
    return f"{digits}  {shortened(what, TITLE)}"
