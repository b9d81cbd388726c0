"""The pass that lowers what a reader of the model has to know: operator sets and IR version.

Nothing is converted, for what a converter writes is another model. An operator set is lowered as far as every operator
left is defined by the very version that it had: the model means what it meant, and older releases can read it.
"""

from collections.abc import Sequence

import onnx
from driftnet.model.inspect import all_nodes, refill
from driftnet.model.submodel import edited
from driftnet.reduce.problem import Problem
from onnx import defs, helper

OLDEST = 11
"""Default operator sets before this one are nothing that anybody exports models for."""

DEFAULT = ("", "ai.onnx")


def older_versions(problem: Problem) -> None:
    """The oldest default operator set and IR version that define the model, and no set that it does not use."""
    if not problem.case.proto.functions:  # they import operator sets of their own
        problem.attempt(edited(problem.case, _lower), at_length=problem.case)


def _lower(model: onnx.ModelProto) -> None:
    nodes = list(all_nodes(model.graph))
    used = {*DEFAULT, *(node.domain for node in nodes)}
    sets = [helper.make_opsetid(o.domain, _oldest(o, nodes)) for o in model.opset_import if o.domain in used]
    refill(model.opset_import, sets)
    # An initializer that is no graph input needs IR version 4.
    needed = max(4, helper.find_min_ir_version_for(sets, ignore_unknown=True))
    model.ir_version = min(model.ir_version, needed)


def _oldest(imported: onnx.OperatorSetIdProto, nodes: Sequence[onnx.NodeProto]) -> int:
    """The oldest version in which all of `nodes` are what they are in the one that is imported."""
    if imported.domain not in DEFAULT:
        return imported.version
    version = imported.version
    schemas = [defs.get_schema(node.op_type, version) for node in nodes if node.domain in DEFAULT]
    return min(version, max([OLDEST, *(schema.since_version for schema in schemas)]))
