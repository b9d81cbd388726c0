"""Releases: on which of them a cause shows, and what that says of when it came and went.

What each release did is a word, and behind a colon what it did otherwise or why it could not be asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

BAD, GOOD, DIFFERS, UNTESTABLE = "reproduces", "agrees", "differs", "untestable"


def outcome_of(state: str) -> str:
    """The word of a state: one of BAD, GOOD, DIFFERS, UNTESTABLE."""
    return state.partition(":")[0]


@dataclass(frozen=True)
class History:
    """The states of releases, the oldest first: {release: state}. What could not be tried counts neither as good nor as
    bad, and what fails otherwise counts as neither too."""

    states: Mapping[str, str]

    @property
    def bad(self) -> list[str]:
        return self._with(BAD)

    @property
    def good(self) -> list[str]:
        return self._with(GOOD)

    @property
    def appears_in(self) -> str:
        """The first bad release after the last good one before the newest bad one; "" where no good one is older."""
        return self.first_bad if self.last_good else ""

    @property
    def gone_in(self) -> str:
        """The first good release that is newer than every bad one."""
        return next((release for release in self._after if self._outcome(release) == GOOD), "") if self.bad else ""

    @cached_property
    def first_bad(self) -> str:
        """The oldest bad release without a good one between it and the newest bad one."""
        return next((release for release in self._before[::-1] if self._outcome(release) == BAD), "")

    @cached_property
    def last_good(self) -> str:
        """The newest good release that is older than `first_bad`."""
        older = list(self.states)[: list(self.states).index(self.first_bad)] if self.bad else []
        return next((release for release in older[::-1] if self._outcome(release) == GOOD), "")

    @property
    def sentence(self) -> str:
        """In words: "first bad 3.1.0, last good 3.0.0; gone in 3.4.0"."""
        if not self.states:
            return ""
        tried = [release for release in self.states if self._outcome(release) != UNTESTABLE]
        if not self.bad:
            how = f", {len(self.states) - len(tried)} more could not be tried" if len(tried) < len(self.states) else ""
            return f"bad on none of {len(tried)} releases{how}"
        said = [f"first bad {self.first_bad}, last good {self.last_good}{self._between}"]
        if not self.last_good:
            oldest = self.first_bad == tried[0]
            said = [f"bad since {self.first_bad}{', the oldest that could be tried' if oldest else ''}"]
        if earlier := [r for r in self.bad if self._rank(r) < self._rank(self.first_bad)]:
            said.append(f"bad before on {self._span(earlier)}")
        if self.gone_in:
            said.append(f"gone in {self.gone_in}, last bad {self.bad[-1]}")
        elif tried[-1] == self.bad[-1]:
            said.append(f"still in {tried[-1]}")
        said += [f"fails otherwise on {self._span(these)} ({what})" for what, these in self._otherwise.items()]
        if left := self._with(UNTESTABLE):
            said.append(f"could not be tried on {self._span(left)}")
        return "; ".join(said)

    @property
    def _between(self) -> str:
        names = list(self.states)
        left = names[self._rank(self.last_good) + 1 : self._rank(self.first_bad)] if self.last_good else []
        return f" ({', '.join(left)} between them cannot tell)" if left else ""

    @property
    def _otherwise(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for release in self._with(DIFFERS):
            found.setdefault(self.states[release].partition(": ")[2], []).append(release)
        return found

    @property
    def _before(self) -> list[str]:
        """From the newest bad release back to the last good one, in order of age."""
        names = list(self.states)
        end = self._rank(self.bad[-1]) if self.bad else -1
        start = max((i for i in range(end) if self._outcome(names[i]) == GOOD), default=-1)
        return names[start + 1 : end + 1][::-1]

    @property
    def _after(self) -> list[str]:
        return list(self.states)[self._rank(self.bad[-1]) + 1 :]

    def _rank(self, release: str) -> int:
        return list(self.states).index(release)

    def _outcome(self, release: str) -> str:
        return outcome_of(self.states[release])

    def _with(self, outcome: str) -> list[str]:
        return [release for release in self.states if self._outcome(release) == outcome]

    def _span(self, releases: Sequence[str]) -> str:
        """Releases by name, three and more that follow one another by the first and the last."""
        runs: list[list[str]] = []
        for release in releases:
            follows = runs and self._rank(release) == self._rank(runs[-1][-1]) + 1
            runs[-1].append(release) if follows else runs.append([release])
        return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)
