"""Text of others in Markdown: a case is anybody's file, and what it says must not become markup, nor fill the page."""

import re

LINE, BLOCK, PAGE = 1_000, 12_000, 60_000
"""Characters of a text in a line, of a block of code, and of a page: GitHub takes 65,536 in an issue."""

_OBEYED = re.compile(r"[^\n\t -~\xa0-\U0010ffff]|[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_MARKUP = re.compile(r"(`\w+`)|([\\`*<|@&]|\](?=[(\[:])|~(?=~)|#(?=\d)|(?<!\w)_|_(?!\w))")


def plain(text: str) -> str:
    """`text` without what a terminal or a page would obey: control characters, and those that turn text around."""
    return _OBEYED.sub("?", text)


def cut(text: str, most: int) -> str:
    """`text`, or its beginning and how much is left out."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters more)"


def inline(text: str) -> str:
    """`text` as words in a line: no markup but single words of code, no mention, no reference to another issue, no
    table."""
    return _MARKUP.sub(lambda m: m[1] or f"&#{ord(m[2])};", cut(" ".join(plain(text).split()), LINE))


def fenced(text: str, language: str = "text") -> str:
    """`text` as a block of code, whose fence is longer than any in it."""
    body = cut(plain(text).strip("\n"), BLOCK)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    return f"{fence}{language}\n{body}\n{fence}"


def page(text: str) -> str:
    """`text` of a length that a tracker takes."""
    if len(text) <= PAGE:
        return text
    kept = text[: PAGE - 200]
    kept = kept[: kept.rindex("\n")]
    closing = "\n".join(_open_fences(kept))
    return f"{kept}\n{closing}\n\n… the rest is left out: {len(text) - len(kept)} characters.\n"


def _open_fences(text: str) -> list[str]:
    open_: str = ""
    for line in text.splitlines():
        if found := re.match(r"(`{3,})(\w*)$", line):
            if not open_:
                open_ = found[1]
            elif found[1] == open_ and not found[2]:
                open_ = ""
    return [open_] if open_ else []
