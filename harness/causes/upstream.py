"""What is known of a cause upstream, in words; in a module that imports nothing, as the command line needs it."""

_SEARCHED = {"none found": "not reported as far as a search shows", "near": "perhaps reported:"}


def is_link(upstream: str) -> bool:
    """Whether that is a link, or what a search came to, as `reported` takes it."""
    link = upstream.removeprefix("near").strip()
    return upstream.startswith("none found") or link.startswith(("https://", "http://"))


def reported(upstream: str) -> str:
    """What was found upstream, in words; it is a link, "near" and a link to something alike, or "none found" and what
    was looked for."""
    for found, said in _SEARCHED.items():
        if upstream.startswith(found):
            return said + upstream.removeprefix(found)
    return upstream and f"reported: {upstream}"
