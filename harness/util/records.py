"""Records: values from outside, read from JSON or received from a worker, as the types that are stated for them."""

import re
import reprlib
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def read(value: object, form: type[T], what: str) -> T:
    """`value` (of JSON, with bytes and arrays perhaps) as a `form`: a dataclass, a msgspec.Struct or what these hold.

    Nothing is guessed: a text is no number, a bool no int. Raises ValueError that says what is wrong in `what`, where,
    and what was expected.
    """
    try:
        return msgspec.convert(value, form, builtin_types=(bytes,))  # or a text would be taken for base64
    except msgspec.ValidationError as e:
        said, _, path = str(e).partition(" - at `$")
        if said.startswith("Invalid enum value"):
            said = f"expected one of {', '.join(_members(form, path))}"
        raise ValueError(f"{what}{_described(value, path.rstrip('`'))}: {said[0].lower()}{said[1:]}") from None


def _members(form: Any, path: str) -> list[str]:
    """The values of the enum or Literal that stands at `path` of a form."""
    info: Any = inspect.type_info(form)
    for name in re.findall(r"\.(\w+)", path):
        kinds = [getattr(kind, "item_type", kind) for kind in getattr(info, "types", [info])]
        info = next(f.type for kind in kinds for f in getattr(kind, "fields", ()) if f.name == name)
    return [str(member) for member in getattr(info, "cls", None) or info.values]


def _described(value: Any, path: str) -> str:
    """Where it is and what stands there; of a dict, whose keys msgspec does not name, the whole."""
    named, each, _ = path.partition("[...]")
    for name, index in _STEP.findall(named):
        value = value[name] if name else value[int(index)]
    return f"{path}{', in' if each else ' is'} {_SHORT.repr(value)}"


class _Short(reprlib.Repr):
    """A few items of whatever it is: a worker may say gigabytes."""

    def repr_bytes(self, x: bytes, level: int) -> str:
        return f"{len(x)} bytes"

    def repr_ndarray(self, x: Any, level: int) -> str:
        return f"{x.dtype}{list(x.shape)}"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 80  # Python 3.12 takes them as arguments
