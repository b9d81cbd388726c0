"""Form: has a value from outside, read from JSON or received from a worker, the form that is expected of it?

A form is a type; several forms, of which any will do; a list of one form, for lists of such values; or a dict
{key: form}, where a key that ends in "?" may be missing and EACH stands for any other key.
"""

from __future__ import annotations

from collections.abc import Mapping

EACH = "*"
NUMBER = (int, float)
_WORDS = {
    str: "a text",
    dict: "an object",
    list: "a list",
    int: "a whole number",
    float: "a number",
    bool: "a truth value",
}


def misformed(value: object, form: object, where: str) -> str:
    """What is wrong with `value`, called `where`, in words; "" when it has the form. A bool is no number."""
    if isinstance(form, dict):
        return _misformed_object(value, form, where)
    if isinstance(form, list) and isinstance(value, list):
        return next((wrong for k, x in enumerate(value) if (wrong := misformed(x, form[0], f"{where}[{k}]"))), "")
    if isinstance(form, tuple):
        fits = not all(misformed(value, one, where) for one in form)
    else:
        fits = form is object or type(value) is form
    return "" if fits else f"{where} is {value!r:.80}, not {_named(form)}"


def _misformed_object(value: object, form: Mapping[str, object], where: str) -> str:
    if not isinstance(value, dict):
        return f"{where} is {value!r:.80}, not {_named(form)}"
    forms = {name.removesuffix("?"): expected for name, expected in form.items()}
    if missing := [name for name in form if name != EACH and not name.endswith("?") and name not in value]:
        return f"{where} lacks {missing[0]!r}"
    for name, x in value.items():
        if name not in forms and EACH not in forms:
            return f"{where} has {name!r:.80}, which is nothing known"
        if wrong := misformed(x, forms.get(name, forms.get(EACH)), f"{where}.{name:.80}"):
            return wrong
    return ""


def _named(form: object) -> str:
    if isinstance(form, tuple):
        return " or ".join(map(_named, form))
    kind = form if isinstance(form, type) else type(form)
    return _WORDS.get(kind, kind.__name__)
