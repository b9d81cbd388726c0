"""A trigger as a sentence: "MaxPool, AveragePool without `strides`; any dtype, sizes and opset"."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from driftnet.causes.facts import Value
from driftnet.causes.predicate import Atom, Region, Shape, Trigger
from driftnet.model.operators import Trait, traits_of

GOOD = 0.8
"""Share of instances that a trigger is right about, below which it says so itself."""
FEW = 5
"""Instances that fail, or that it names, of which a share says anything."""

MOST = 6
"""Names in one list."""

_BEHIND = re.compile(r"\.reader$|\.final$")
_PLAIN: Sequence[tuple[str, str]] = (
    (r"\.dtype$|dtype", "dtype"),
    (r"\.dim\.|^rank$|\.rank$", "sizes"),
    (r"\.values$|^values$", "values"),
    (r"^opset$", "opset"),
    (r"^symbolic$", "static or symbolic dims"),
    (r"\.from$|\.initializer$", "constant or input operands"),
    (r"\.maker$", "nodes before"),
    (_BEHIND.pattern, "nodes after"),
    (r"^recipe\.(\w+)$", ""),
)
"""Aspects that were tried, by what people call them."""

SHOWS = re.compile(r": [a-zA-Z -]+ when (?:converting|quantizing|running)$")
"""How a title ends that nobody has written: `in_a_line`."""


def in_a_line(when: str, kind: str, stage: str) -> str:
    """A cause in a line: when a finding of it fails, and how."""
    said = {"convert": "converting", "quantize": "quantizing", "execute": "running"}.get(stage, stage)
    return f"{when}: {kind.replace('-', ' ')} when {said}"


def sentence(
    trigger: Trigger, free: Sequence[str] = (), needed: Sequence[str] = (), score: Mapping[str, float] | None = None
) -> str:
    """The trigger in words; then, of what was tried, that which does not matter, and that which ends the failure.

    score   of the trigger (`driftnet.learning.trigger.Score`): what speaks against it is said
    """
    ways = [_in_words(region, trigger.shape) for region in trigger.regions]
    if trigger.shape.roles == 1:
        ways = _of_operands(ways)
    regions = "; or ".join(_shortened(ways))
    matters = {atom.fact for region in trigger.regions for atom in region.atoms}
    inner = {f"{b}.out" for _, b in trigger.shape.edges}  # who reads that too stands behind no part of the place
    outside = (a for a in free if not (_BEHIND.search(a) and a.startswith(tuple(f"{one}." for one in inner))))
    said = listed(dict.fromkeys(_does_not_matter([aspect for aspect in outside if aspect not in matters])))
    said = said.replace("nodes before, nodes after", "nodes before and after")
    opposite = listed(_opposites(trigger.regions[0], needed)) if trigger.regions else ""
    doubt = _in_doubt(score) if score else ""
    return "; ".join(filter(None, (regions, said and f"any {said}", opposite and f"not {opposite}", doubt)))


def _opposites(region: Region, needed: Sequence[str]) -> Iterator[str]:
    """What may not hold instead, as minimal pairs have shown: "with `strides` stated"."""
    tried = {aspect.removesuffix(".stated") for aspect in needed}
    for atom in region.atoms:
        if isinstance(atom.value, bool) and {atom.fact, atom.fact.removesuffix(".stated")} & tried:
            opposite = Atom(atom.fact, "is", atom.value != (atom.test == "is"))
            said = _of_role(opposite) if atom.role >= 0 else _general(opposite)
            if not _NEGATES.search(said):  # "not no graph output" says again what the region says
                yield said


_NEGATES = re.compile(r"\b(no|not|without)\b")


def _in_doubt(score: Mapping[str, float]) -> str:
    """What its score says against a trigger; nothing where most of what it says of instances is right, and of those few
    that fail, too."""
    instances, right, failing, found, named = (
        int(score.get(name, 0)) for name in ("instances", "right", "failing", "found", "named")
    )
    if not instances:
        return "not measured"
    if right < GOOD * instances:
        return f"often, not always (as far as learned: right about {right} of {instances} models)"
    if failing >= FEW and found < GOOD * failing:
        return f"not only then (as far as learned: of {failing} that failed it named {found})"
    if named >= FEW and found < GOOD * named:
        return f"not always (as far as learned: of {named} that it named {found} failed)"
    return ""


def _of_operands(regions: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Regions that say the same of several operands, each of one, are one that speaks of any of these."""
    alike: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for chain, rest in regions:
        operands = set(re.findall(_OPERAND, rest))
        of = operands.pop() if len(operands) == 1 else ""
        alike.setdefault((chain, re.sub(_OPERAND, "{}", rest) if of else rest), {})[of] = (chain, rest)
    said: list[tuple[str, str]] = []
    for (chain, rest), each in alike.items():
        if len(each) == 1:
            said += each.values()
        else:
            *most, last = sorted(each, key=int)
            first, _, more = rest.partition("{}")
            said.append((chain, f"{first}operand {', '.join(most)} or {last}{more.replace('{}', 'this operand')}"))
    return said


_OPERAND = r"\boperand (\d+)\b"


def _shortened(regions: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each region, without its operators where the one before has the same."""
    before = ""
    for chain, rest in regions:
        yield rest.lstrip(" :;") if rest and chain == before else f"{chain}{rest}"
        before = chain


def region_in_words(region: Region, shape: Shape) -> str:
    """One region in words: the operators in the order in which they hang together, then what has to hold of each."""
    return "".join(_in_words(region, shape))


def _in_words(region: Region, shape: Shape) -> tuple[str, str]:
    """(operators, what has to hold)"""
    parts, named = [], [_operators(region, role) for role in range(shape.roles)]
    chain, in_a_row = _chain(shape, named), _is_row(shape)
    for role in range(shape.roles):
        words = [w for atom in as_one(region.of_role(role)) if (w := _of_role(atom))]
        if words:
            long = named[role].count(",") > 1
            whose = f"the {_ORDINALS[role]} node: " if in_a_row and long else f"{named[role]} "
            parts.append((whose if shape.roles > 1 else "") + ", ".join(words))
    options = [_option(atom) for atom in region.of_role(-1) if atom.fact.startswith(_RECIPE)]
    general = [w for atom in region.of_role(-1) if not atom.fact.startswith(_RECIPE) and (w := _general(atom))]
    general += options and [f"under {', '.join(options)}"]
    with_ = "; ".join(parts)
    said = f" {with_}" if with_ and shape.roles == 1 else f": {with_}" if with_ else ""
    return chain, f"{said}; {', '.join(general)}" if general else said


def listed(names: Iterable[str]) -> str:
    """a, b and c"""
    *most, last = list(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def as_one(atoms: Iterable[Atom]) -> list[Atom]:
    """`atoms`, those of them as one value that bound a fact on both sides by what reads the same."""
    told: dict[tuple[str, str], Atom] = {}
    for atom in atoms:
        bound = atom.test in _BOUNDS
        key = (atom.fact, f"bound {_value(atom.value)}") if bound else (atom.fact, f"{atom.test} {atom.value}")
        before = told.get(key)
        told[key] = Atom(atom.fact, "is", atom.value) if bound and before and before.test != atom.test else atom
    return [*told.values()]


_BOUNDS = ("least", "most")


def atom_in_words(atom: Atom, region: Region, shape: Shape | None = None) -> str:
    """One atom of a region, with the operators that it speaks of where there are several."""
    whose = f"{_operators(region, atom.role)} " if shape is not None and shape.roles > 1 and atom.role >= 0 else ""
    return whose + (_of_role(atom) if atom.role >= 0 else _general(atom))


def otherwise(
    region: Region, shape: Shape | None = None, instead: Mapping[str, Sequence[Value]] = MappingProxyType({})
) -> list[str]:
    """What lies outside of a region, a way each: those first that whoever makes the model has in his hands.

    instead   values of options that are told, in the place of what an atom rules out; none: that way is not told
    """
    many = shape is not None and shape.roles > 1
    told = [Atom(fact, *(("in", (*v,)) if v[1:] else ("is", *v))) for fact, v in instead.items() if v]
    ways = [(0, _general(atom)) for atom in told]
    for atom in region.atoms:
        if atom.fact in instead:
            continue
        name = atom.fact.partition(".")[2] if atom.role >= 0 else atom.fact
        rank = next((k for k, pattern in enumerate(_IN_HAND) if re.match(pattern, name)), None)
        if (name.endswith(".dtype") and _leaves_floats(atom)) or _ALGORITHM.fullmatch(name):
            continue
        if rank is not None and not (name.endswith(".from") and atom.test != "is"):
            operators = _operators(region, atom.role) if atom.role >= 0 else ""
            if name.endswith(".from") and _is_lopsided(region, atom.role):
                ways.append((rank, f"the operands of {operators} swapped"))
            elif not name.endswith(".from") or atom.value != "computed":  # nobody feeds what has to be computed
                ways.append((rank, (f"{operators} " if many and operators else "") + _outside(atom)))
    return list(dict.fromkeys(way for _, way in sorted(ways, key=lambda pair: pair[0])))


def _is_lopsided(region: Region, role: int) -> bool:
    """Whether a region asks other origins of the two operands of what may as well read them in the other order."""
    asked = {atom.fact.partition(".")[2]: atom.value for atom in region.of_role(role) if atom.test == "is"}
    named = region.naming(role)
    operators = named.value if named and isinstance(named.value, tuple) else (named.value,) if named else ()
    commute = bool(operators) and all(Trait.COMMUTES in traits_of(str(op)) for op in operators)
    origins = asked.get("in.0.from"), asked.get("in.1.from")
    return commute and None not in origins and origins[0] != origins[1]


def _leaves_floats(atom: Atom) -> bool:
    """Whether to get out of `atom` floats have to become something else, which nobody does to a trained model."""
    values = atom.value if isinstance(atom.value, tuple) else (atom.value,)
    return ("float" in values) == (atom.test != "not")


_ALGORITHM = re.compile(r"attr\.approximate(\..+)?")
"""Attributes by which an operator computes something else: who states another has another model."""
_IN_HAND = (
    *(r"recipe\.", r"attr\.", r"opset", r"symbolic"),
    *(r"in\.\d+\.(from|initializer|given)", r"in\.\d+\.(dtype|symbolic|rank)"),
)
"""Facts that somebody can change without changing what a model computes, or nearly so, the easiest first."""


def _outside(atom: Atom) -> str:
    """What holds where the atom does not."""
    say = _of_role if atom.role >= 0 else _general
    match atom.test:
        case "is":
            return say(Atom(atom.fact, "not", atom.value))
        case "not":
            return say(Atom(atom.fact, "is", atom.value))
    if atom.fact.startswith(_RECIPE) or _LIKE_PEOPLE.fullmatch(atom.fact.partition(".")[2]):
        if atom.test == "in":
            return say(Atom(atom.fact, "not", atom.value))
        if isinstance(atom.value, int):
            return say(
                Atom(atom.fact, *(("most", atom.value - 1) if atom.test == "least" else ("least", atom.value + 1)))
            )
    here = say(atom)
    for test, beyond in ((" one of ", " none of "), (" at least ", " below "), (" at most ", " above ")):
        if test in here:
            return here.replace(test, beyond)
    return f"not {here}"


def _chain(shape: Shape, named: Sequence[str]) -> str:
    if shape.roles == 1:
        return named[0]
    if _is_row(shape):
        return " → ".join(named)
    edges = [f"{named[b]} → {named[a]}" for a, b in sorted(shape.edges)]
    edges += [f"{named[a]} and {named[b]} of one tensor" for a, b in sorted(shape.shared)]
    inside = {role for pair in (*shape.edges, *shape.shared) for role in pair}
    return ", ".join([*edges, *(f"beside {named[k]}" for k in range(shape.roles) if k not in inside)])


def _is_row(shape: Shape) -> bool:
    """Whether each node hands its result to the next one."""
    return shape.edges == {(k, k - 1) for k in range(1, shape.roles)}


def _operators(region: Region, role: int) -> str:
    but = []
    for atom in region.of_role(role):
        if atom.fact == f"{role}.op":
            match atom.test:
                case "is":
                    return str(atom.value)
                case "in":
                    return _some(map(str, atom.value))  # type: ignore[arg-type]
                case "not":
                    but.append(str(atom.value))
    return f"any operator but {_some(but)}" if but else "any operator"


def _some(operators: Iterable[str]) -> str:
    names = [*operators]
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


_TRUE: Sequence[tuple[str, str, str]] = (
    (r"attr\.(\w+)\.stated", "with `{0}` stated", "without `{0}`"),
    (r"attr\.(\w+)\.default", "`{0}` at its default", "`{0}` other than its default"),
    (r"attr\.(\w+)\.has\.(\w+)", "`{0}` with {1}", "`{0}` without {1}"),
    (r"in\.(\d+)\.given", "with {o}", "without {o}"),
    (r"in\.(\d+)\.symbolic", "{o} of symbolic size", "{o} of fixed size"),
    (r"in\.(\d+)\.initializer", "{o} an initializer", "{o} a Constant node"),
    (r"in\.(\d+)\.negative", "{o} with negative numbers", "{o} without negative numbers"),
    (r"in\.(\d+)\.zero", "{o} with a zero", "{o} without a zero"),
    (r"in\.(\d+)\.minus", "{o} with -0", "{o} without -0"),
    (r"in\.(\d+)\.zeros", "{o} all zeros", "{o} not all zeros"),
    (r"in\.(\d+)\.whole", "{o} of whole numbers", "{o} with fractions"),
    (r"in\.(\d+)\.halves", "{o} with halves above even numbers", "{o} without halves above even numbers"),
    (r"in\.(\d+)\.raised", "{o} with what half precision rounds up", "{o} without what half precision rounds up"),
    (r"in\.(\d+)\.finite", "{o} finite", "{o} with infinities or NaN"),
    (r"in\.(\d+)\.nan", "{o} with NaN", "{o} without NaN"),
    (r"in\.(\d+)\.same", "all of {o} equal", "{o} of different numbers"),
    (r"in\.(\d+)\.distinct", "no two of {o} equal", "{o} with equal numbers"),
    (r"in\.(\d+)\.tied", "ties in {o}", "no ties in {o}"),
    (r"in\.(\d+)\.needless", "{o} needed by no output", "{o} needed by an output"),
    (r"in\.(\d+)\.repeated", "{o} given twice", "{o} not given twice"),
    (r"in\.(\d+)\.extended\.(.+)", "{o} beside a tensor of its name and {1}", "{o} beside none of its name and {1}"),
    (r"in\.(\d+)\.like\.0", "{o} shaped like operand 0", "{o} of another shape than operand 0"),
    (r"in\.(\d+)\.like\.out", "{o} shaped like the result", "{o} of another shape than the result"),
    (r"in\.(\d+)\.positive", "{o} with positive numbers", "{o} without positive numbers"),
    (r"in\.(\d+)\.like\.channels", "{o} with an element a channel", "{o} with no element a channel"),
    (r"broadcast\.(alike)", "its operands of one shape", "its operands of different shapes"),
    (r"say\.(depthwise)", "depthwise", "not depthwise"),
    (r"say\.(spread)", "with a window that dilations make wider", "without a window that dilations make wider"),
    (r"say\.(beyond)", "with a window that begins behind the image", "without a window that begins behind the image"),
    (r"say\.(covered)", "padded before by an image's length or more", "padded before by less than the image's length"),
    (r"say\.(pads)\.even", "with equal pads on both sides", "with other pads on one side than on the other"),
    (r"any\.(\w+)", "some {0} tensor", "no {0} tensor"),
    (r"axis\.(first|last)", "along the {0} axis", "not along the {0} axis"),
    (r"out\.(\d+)\.extended\.(.+)", "{r} beside a tensor of its name and {1}", "{r} beside none of its name and {1}"),
    (r"out\.(\d+)\.negative", "{r} with negative numbers", "{r} without negative numbers"),
    (r"out\.(\d+)\.positive", "{r} with positive numbers", "{r} without positive numbers"),
    (r"out\.(\d+)\.finite", "{r} finite", "{r} with infinities or NaN"),
    (r"out\.(\d+)\.nan", "{r} with NaN", "{r} without NaN"),
    (r"out\.(\d+)\.zeros", "{r} all zeros", "{r} not all zeros"),
    (r"out\.(\d+)\.declared", "{r} of a stated type", "{r} of no stated type"),
    (r"out\.(\d+)\.like\.0", "{r} shaped like operand 0", "{r} of another shape than operand 0"),
    (r"out\.(\d+)\.final", "{r} a graph output", "{r} no graph output"),
    (r"(twin)", "with a node before that computes the same", "with no node before that computes the same"),
    (r"(passes)", "only copying its operand", "not only copying its operand"),
    (r"(moves)", "only copying or rearranging data", "not only copying or rearranging data"),
    (r"(on_grid)", "of what its codes hold exactly", "of what has to be rounded"),
    (r"out\.(\d+)\.given", "with result {0}", "without result {0}"),
    (r"out\.(\d+)\.symbolic", "{r} of symbolic size", "{r} of fixed size"),
)
"""A fact that is true or false: its pattern, what is said where it is true, and where it is not."""

_OTHER: Sequence[tuple[str, str]] = (
    (r"attr\.(\w+)", "`{0}`"),
    (r"attr\.(\w+)\.least", "least of `{0}`"),
    (r"attr\.(\w+)\.most", "greatest of `{0}`"),
    (r"attr\.(\w+)\.length", "length of `{0}`"),
    (r"attr\.(\w+)\.first", "first of `{0}`"),
    (r"in\.(\d+)\.(magnitude)", "{1} of {o}"),
    (r"in\.(\d+)\.smallest", "smallest magnitude in {o}"),
    (r"in\.(\d+)\.dim\.(-?\d+)", "dim {1} of {o}"),
    (r"in\.(\d+)\.by", "attribute that states {o}"),
    (r"in\.(\d+)\.made", "{o}"),
    (r"out\.(\d+)\.(magnitude)", "{1} of {t}"),
    (r"out\.(\d+)\.dim\.(-?\d+)", "dim {1} of {t}"),
    (r"out\.(\d+)\.ratio\.(-?\d+)", "growth of dim {1}{x}"),
    (r"say\.(per_group)", "results of a group"),
    (r"axis\.(size)", "elements along the axis"),
    (r"say\.(\w+)\.count", "number of {0}"),
    (r"say\.(\w+)\.least", "least of `{0}`"),
    (r"say\.(\w+)\.most", "greatest of `{0}`"),
    (r"out\.(\d+)\.lost", "axes lost{x}"),
    (r"(inputs|outputs)", "number of {0}"),
    (r"(outputs)\.listed", "number of {0} listed"),
    (r"trait\.(\w+)", "trait {0}"),
)


_BROADCAST: Mapping[tuple[str, Value], str] = {
    ("is", "nothing"): "its operands as large as each other",
    ("not", "nothing"): "its operands of different size",
    ("is", "one number"): "one operand a single number",
    ("not", "one number"): "no operand a single number",
    ("is", "axes"): "broadcast along axes",
    ("not", "axes"): "not broadcast along axes",
}


_ALONG: Mapping[tuple[str, Value], str] = {
    ("is", 1): "along an axis of one element",
    ("least", 2): "along an axis of several elements",
}


def _of_role(atom: Atom) -> str:
    fact = atom.fact.partition(".")[2]
    if fact == "op":
        return ""
    for pattern, true, false in _TRUE:
        if (found := re.fullmatch(pattern, fact)) and isinstance(atom.value, bool) and atom.test in ("is", "not"):
            said = true if atom.value == (atom.test == "is") else false
            return said.format(*found.groups(), **_called(found[1]))
    if (found := re.fullmatch(r"in\.(\d+)\.made", fact)) and atom.test in ("is", "not"):
        whose, _, slot = str(atom.value).split(".")
        said = f"result{f' {slot}' if slot != '0' else ''} of the {_ORDINALS[int(whose)]}"
        return f"{_operand(found[1])} {'is not' if atom.test == 'not' else 'is'} {said}"
    if found := re.fullmatch(r"in\.(\d+)\.(shared|equals)", fact):
        same = "the same tensor as" if found[2] == "shared" else "equal to"
        others = atom.value if isinstance(atom.value, tuple) else (atom.value,)
        said = " or ".join(_other(str(value), atom.role) for value in others)
        return f"{_operand(found[1])} {'not ' if atom.test == 'not' else ''}{same} {said}"
    if (found := re.fullmatch(r"attr\.(\w+)\.equals", fact)) and atom.test in ("is", "not"):
        said = "not as that" if atom.test == "not" else "as that"
        return f"`{found[1]}` {said} of the {_ORDINALS[int(str(atom.value).partition('.')[0])]}"
    if fact == "broadcast" and (atom.test, atom.value) in _BROADCAST:
        return _BROADCAST[atom.test, atom.value]
    if fact == "axis.size" and (atom.test, atom.value) in _ALONG:
        return _ALONG[atom.test, atom.value]
    if found := _LIKE_PEOPLE.fullmatch(fact):
        return _as_people_say(found, atom)
    for pattern, what in _OTHER:
        if found := re.fullmatch(pattern, fact):
            return _tested(what.format(*found.groups(), **_called(found[1])), atom)
    return _tested(fact, atom)


_LIKE_PEOPLE = re.compile(r"(in|out)\.(\d+)\.(dtype|rank|elements|from|maker|reader|readers)")
"""Facts that nobody would say with an equals sign."""

_ORIGINS: Mapping[frozenset[Value], str] = {
    frozenset({"constant"}): "a constant",
    frozenset({"input"}): "an input of the model",
    frozenset({"computed"}): "computed",
    frozenset({"input", "computed"}): "no constant",
    frozenset({"constant", "computed"}): "no input of the model",
    frozenset({"constant", "input"}): "not computed",
}
"""Where an operand may come from, in words."""


def _as_people_say(found: re.Match[str], atom: Atom) -> str:
    """What a tensor is like, and who makes and reads it: "operand 0 of uint8", "result read by no node"."""
    side, slot, what = found.groups()
    tensor = _called(slot)["o" if side == "in" else "r"]
    values = atom.value if isinstance(atom.value, tuple) else (atom.value,)
    if what == "from":
        origins = frozenset({"constant", "input", "computed"} - {*values} if atom.test == "not" else values)
        return f"{tensor} {_ORIGINS.get(origins, 'of any origin')}"
    if what in ("rank", "elements", "readers"):
        one, many = {"rank": ("axis", "axes"), "elements": ("element", "elements")}.get(what, ("node", "nodes"))
        number = {"least": " or more", "most": " or fewer"}.get(atom.test, "")
        some = sorted(value for value in values if value)
        counted = f"{_either([*map(_value, some)])} {one if some[-1] == 1 else many}{number}" if some else f"no {one}"
        counted += " or none" if 0 < len(some) < len(values) else ""
    else:
        counted = _either([_value(value) if value else "no node" for value in values])
    verb = {"maker": "made by", "reader": "read by", "readers": "read by"}.get(what, "of")
    return f"{tensor} {'not ' if atom.test == 'not' else ''}{verb} {counted}"


def _either(names: Sequence[str]) -> str:
    """a, b or c; of many the first."""
    if len(names) > MOST:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _other(value: str, role: int) -> str:
    """An operand of any node, as the facts of the node `role` call it."""
    whose, _, slot = value.split(".")
    return _operand(slot) if int(whose) == role else f"{_operand(slot)} of the {_ORDINALS[int(whose)]}"


_ORDINALS = ("first", "second", "third", *(f"{k}th" for k in range(4, 20)))


def _operand(slot: str) -> str:
    return f"operand {slot}"


def _called(slot: str) -> dict[str, str]:
    """What stands in a pattern for a tensor: o an operand; r a result, t with its article, x unless it is the first."""
    first = slot == "0"
    result = "result" if first else f"result {slot}"
    return {
        "o": _operand(slot),
        "r": result,
        "t": "the result" if first else result,
        "x": "" if first else f" of {result}",
    }


_OF_THE_MODEL = {
    "named": ("nodes with names of their own", "nodes that share a name"),
    "fed": ("a model with inputs", "a model without inputs"),
    "symbolic": ("a model with an input of symbolic size", "a model whose inputs have fixed sizes"),
}
"""What a fact of the whole model says, and what its opposite."""


def _general(atom: Atom) -> str:
    if atom.fact in _OF_THE_MODEL:
        return _OF_THE_MODEL[atom.fact][atom.value != (atom.test == "is")]
    return f"under {_option(atom)}" if atom.fact.startswith(_RECIPE) else _tested(atom.fact, atom)


_RECIPE = "recipe."


def _option(atom: Atom) -> str:
    """What a recipe says: "method=KL or ADMM"."""
    name = atom.fact.removeprefix(_RECIPE)
    if atom.test in _BOUNDS:
        return _tested(name, atom)
    values = atom.value if isinstance(atom.value, tuple) and atom.test != "is" else (atom.value,)
    said = _either([_value(value) for value in values])
    return f"{name}{' other than ' if atom.test == 'not' else '='}{said}"


_SAID: dict[str, Callable[[str, str], str]] = {
    "is": "{} = {}".format,
    "not": "{} other than {}".format,
    "in": "{} one of {}".format,
    "least": "{} at least {}".format,
    "most": "{} at most {}".format,
}


def _tested(what: str, atom: Atom) -> str:
    if atom.test == "in" and isinstance(atom.value, tuple) and len(atom.value) == 1:
        return _SAID["is"](what, _value(atom.value[0]))
    return _SAID[atom.test](what, _value(atom.value, many=atom.test == "in"))


def _value(value: Value, *, many: bool = False) -> str:
    if many and isinstance(value, tuple):
        names = [_value(v) for v in value]
        return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def _does_not_matter(free: Sequence[str]) -> Iterator[str]:
    for aspect in free:
        for pattern, name in _PLAIN:
            if found := re.search(pattern, aspect):
                yield name or f"`{found[1]}`"
                break
