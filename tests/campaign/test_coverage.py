"""Coverage counts what each target was asked by what judged it, and what was never asked is drawn first."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from driftnet.campaign import coverage
from driftnet.campaign.drawing import part_of
from driftnet.campaign.events import Done, Examined
from driftnet.campaign.gaps import AGAIN, LAST, SHARE, TRIES, Form, Gaps, forms_in
from driftnet.campaign.journal import Journal
from driftnet.campaign.plan import Plan
from driftnet.campaign.shard import Shard
from driftnet.campaign.summary import derived
from driftnet.causes.host import host_of
from driftnet.generators import bulk
from driftnet.generators.building import kernels, values
from driftnet.generators.ops.table import OPERATORS
from driftnet.model.verdict import Tier, Verdict, Word
from driftnet.util.errors import UserError
from msgspec.structs import replace
from onnx import helper

from tests.findings.test_known import small

LEAKY = coverage.drawn(host_of(small(helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5))))
NEG = coverage.drawn(host_of(small(helper.make_node("Neg", ["x"], ["y"]))))
EXACT, REFUSED = Verdict(Word.AGREES, Tier.EXACT), Verdict(Word.REJECTS, stage="convert", message="no")


def counted(report, *histories):
    """What a run has asked whose processes wrote this."""
    for events in histories:
        journal = Journal(report)
        for event in events:
            journal.write(event)
    return coverage.asked(report)


def test_an_operator_is_told_with_type_rank_opset_and_the_classes_of_its_attributes():
    assert LEAKY["LeakyRelu"]["type"] == ("float",)
    assert LEAKY["LeakyRelu"]["attr.alpha"] == ("n",), "a positive number is one class"
    assert set(LEAKY["LeakyRelu"]) == {"type", "rank", "opset", "attr.alpha"}
    assert "attr.alpha" not in NEG["Neg"], f"Neg has no such attribute: {NEG}"


def test_each_case_counts_for_its_target_by_its_judge_and_its_options_once_its_index_is_done(tmp_path):
    told = [
        Examined(4, "mnn", "1", {"quantize": "offline", "off": ["a", "b"]}, EXACT),
        Examined(4, "mnn", "1", {}, REFUSED, graph=1),
        Examined(4, "other", "1", {}, EXACT),
    ]
    assert counted(tmp_path / "not yet", told) == Counter(), "nobody knows yet that the index is done"
    counts = counted(tmp_path / "done", [*told, Done(4, (LEAKY, NEG))])
    assert counts["mnn", "LeakyRelu", "", "", "exact"] == 1
    assert counts["mnn", "LeakyRelu", "recipe.quantize", "offline", "exact"] == 1
    assert [counts["mnn", "LeakyRelu", "recipe.off", part, "exact"] for part in "ab"] == [1, 1]
    assert counts["mnn", "Neg", "type", "float", "refused"] == 1
    assert counts["other", "LeakyRelu", "attr.alpha", "n", "exact"] == 1
    assert counts["other", "Neg", "", "", "refused"] == 0, "the other target was never given that graph"


def test_an_index_that_was_examined_again_counts_once_with_the_graphs_of_the_attempt_that_was_done(tmp_path):
    case = Examined(4, "mnn", "1", {}, EXACT)
    other = replace(case, index=5)
    killed, unexplained, again = [case], [case, other, Done(5, (NEG,))], [case, Done(4, (LEAKY,))]
    for first in (killed, unexplained, again):
        counts = counted(tmp_path / str(len(first)), first, again)
        assert counts["mnn", "LeakyRelu", "", "", "exact"] == 1, f"{first}, then examined again"
        assert counts["mnn", "Neg", "", "", "exact"] == first.count(other), "it is told of another graph"
    summary, done = derived(tmp_path / str(len(unexplained)), tmp_path / "cases")
    assert (summary.cases, done) == (2, {4, 5}), "a summary counts otherwise"


def test_what_is_saved_is_what_is_read_and_a_damaged_file_says_what_to_do(tmp_path):
    counts = counted(tmp_path / "run", [Examined(4, "mnn", "1", {}, EXACT), Done(4, (LEAKY,))])
    assert coverage.load(tmp_path) == Counter(), "a state that has none yet"
    coverage.save(tmp_path, counts)
    assert coverage.load(tmp_path) == counts
    (tmp_path / coverage.FILE).write_text('{"schema": 1, "targets": {"mnn": 3}}')
    with pytest.raises(UserError, match="not a whole") as raised:
        coverage.load(tmp_path)
    assert "delete it" in raised.value.hint


def test_what_was_asked_is_no_gap_and_whole_operators_come_before_their_types(tmp_path):
    counts = counted(tmp_path, [Examined(4, "mnn", "1", {}, EXACT), Done(4, (LEAKY,))])
    new, asked, other = (Gaps(target, told) for target, told in (("mnn", {}), ("mnn", counts), ("other", counts)))
    assert len(new) - len(asked) == len(set(forms_in(LEAKY)) & {*_all("LeakyRelu")}) == 3
    assert len(other) == len(new), "another target was asked"
    new.learn(LEAKY)
    assert len(new) == len(asked)
    first = asked.one(Random("x"), without={"Abs"})
    assert first, "nothing is left to ask"
    assert (first.trait, first.operator in ("LeakyRelu", "Abs")) == ("", False), f"{first} comes first"


def _all(name):
    return [form for form in Gaps("mnn", Counter())._open if form.operator == name]


def test_each_text_of_an_attribute_is_sought_after_operators_by_itself_and_comes():
    operators = Counter({("mnn", operator.name, "", "", "exact"): 1 for operator in OPERATORS})
    gaps, texts = Gaps("mnn", operators), [form for form in _all("Einsum") if form.is_text]
    assert len(texts) > 20, "so many equations are drawn"
    for form in texts:
        case = bulk.case(1, 0, focus=(form.focus,), alone=True)
        graph = coverage.drawn(host_of(case))
        assert form in forms_in(graph), f"{form.focus} is not in {graph}"
        assert set(graph) <= {"Einsum", "Cast"}, f"{form.focus} has company"
        gaps.learn(graph)
    left = {form for form in gaps._open if form.is_text}
    assert {form.operator for form in left} >= {"Resize", "ScatterND"}
    assert left.isdisjoint(texts), "they were asked"
    assert gaps.one(Random(1), frozenset()) in left, "types come first"


def test_each_text_of_a_resize_comes_in_some_of_the_graphs_that_are_drawn_for_it():
    for form in (form for form in _all("Resize") if form.is_text):
        cases = [bulk.case(1, index, focus=(form.focus,), alone=True) for index in range(12)]
        come = sum(form.comes_in(coverage.drawn(host_of(case))) for case in cases)
        assert come >= 4, f"{form.focus} comes in {come} of {len(cases)}"


def test_a_text_in_company_is_asked_once_it_agreed_also_for_a_run_that_is_gone_on_with(tmp_path):
    max_ = Form("ScatterND", "attr.reduction", "max")
    graph = coverage.drawn(host_of(bulk.case(1, 0, focus=(max_.focus,), alone=True)))
    wrong = Verdict(Word.DIVERGES, Tier.EXACT)
    given = [(wrong, NEG, True), (REFUSED, NEG, True), (EXACT, NEG, False), (wrong, {}, False), (REFUSED, {}, False)]
    for k, (verdict, more, is_open) in enumerate(given):
        whole = {**graph, **more}
        asked = counted(tmp_path / str(k), [Examined(4, "mnn", "1", {}, verdict), Done(4, (whole,))])
        learned = Gaps("mnn", Counter())
        learned.learn(whole, verdict.word is Word.AGREES)
        assert (max_ in Gaps("mnn", asked)._open) is (max_ in learned._open) is is_open, f"{verdict} with {[*more]}"
        assert len(Gaps("mnn", asked)) == len(learned), "what was stated is known otherwise after --resume"


def test_types_and_attributes_do_not_wait_until_each_operator_was_sought_again():
    every = [form for operator in OPERATORS for form in _all(operator.name)]
    gaps = Gaps("mnn", Counter({("mnn", *form, "exact"): 1 for form in every if form.order < LAST}))
    again = sum(gaps.one(Random(k), frozenset()).trait == AGAIN for k in range(60))
    assert 10 < again < 30, f"{again} of 60 seek an operator again"


def test_an_operator_is_sought_again_by_itself_whatever_it_was_asked_before():
    gaps, again = Gaps("mnn", Counter()), Form("LeakyRelu", AGAIN)
    gaps.learn(LEAKY)
    assert again in gaps._open, "no graph tells that it was alone"
    assert [again.comes_in(graph) for graph in (LEAKY, NEG)] == [True, False]
    asked = Counter({("mnn", *form, "exact"): 1 for form in gaps._open if form.trait not in ("", AGAIN)})
    left = Gaps("mnn", asked | Counter({("mnn", operator.name, "", "", "exact"): 1 for operator in OPERATORS}))
    assert left.share(frozenset()) > 0
    form = left.one(Random(1), frozenset())
    assert (form.trait, left.alone(form)) == (AGAIN, True)


def test_a_run_that_is_gone_on_with_knows_what_it_has_asked(tmp_path):
    counted(tmp_path, [Examined(4, "mnn", "1", {}, EXACT), Done(4, (LEAKY,))])
    plans = [Plan(targets=("mnn",), corpus=tmp_path / "no", report=tmp_path, resume=resume) for resume in (False, True)]
    new, resumed = (Shard(plan, None, stopping=lambda: True).drawing.gaps[0] for plan in plans)
    assert len(new) - len(resumed) == 3, "a LeakyRelu, its type, its attribute"


def test_what_does_not_come_though_it_is_sought_is_given_up():
    gaps, others = Gaps("mnn", Counter()), {operator.name for operator in OPERATORS} - {"Neg"}
    for _ in range(TRIES):
        alone = gaps.alone(Form("Neg"))
        assert gaps.one(Random(1), others) == Form("Neg")
    assert alone, "in company it did not come"
    assert gaps.one(Random(1), others) != Form("Neg"), "it was sought often enough"
    tried = 0
    while gaps.one(Random(tried), others):
        tried += 1
    assert tried == (len(_all("Neg")) - 1) * TRIES - 1, f"{tried} more tries"


def test_around_what_is_sought_come_operators_that_were_asked_less_often_than_others():
    gaps = Gaps("mnn", Counter())
    assert gaps.rare == {}, "nothing was asked yet"
    for _ in range(3):
        gaps.learn({"Add": {}, "Neg": {}})
    gaps.learn({"Abs": {}})
    rare = gaps.rare
    assert {"Add", "Neg", "Abs"}.isdisjoint(rare), "these were asked more often than most"
    assert "Einsum" in rare, "it was never asked"


def test_what_was_sought_in_vain_in_earlier_nights_is_not_sought_again(tmp_path):
    case, others = Examined(4, "mnn", "1", {}, EXACT), {operator.name for operator in OPERATORS} - {"Neg"}
    nights = Counter()
    for night in range(TRIES):
        assert Gaps("mnn", nights).one(Random(1), others) == Form("Neg"), f"given up after {night} tries"
        nights += counted(tmp_path / str(night), [case, Done(4, (LEAKY,), ("mnn", *Form("Neg")))])
    coverage.save(tmp_path, nights)
    assert Gaps("mnn", coverage.load(tmp_path)).one(Random(1), others) != Form("Neg"), "it is sought for ever"
    assert Gaps("other", nights).one(Random(1), others) == Form("Neg"), "it was sought of another target"


def test_types_that_hardly_anything_makes_are_not_sought():
    sought = {form.value for form in Gaps("mnn", Counter())._open if form.trait == "type"}
    assert sought == {kernels.name_of(code) for code in values.NUMPY}, "these are what a graph can be fed"


def test_the_less_is_left_the_fewer_indices_seek_it_but_operators_and_texts_have_their_share():
    every = [form for operator in OPERATORS for form in _all(operator.name)]
    operators, half = Counter(), Counter()
    for k, form in enumerate(every):
        operators["mnn", *form, "exact"] = form.order < LAST
        half["mnn", *form, "exact"] = form.order < LAST or k % 2
    texts = Counter({("mnn", operator.name, "", "", "exact"): 1 for operator in OPERATORS})
    *whole, operators_, half_ = (Gaps("mnn", +told).share(set()) for told in (Counter(), texts, operators, half))
    assert whole == [SHARE, SHARE]
    assert SHARE > operators_ > 1.5 * half_ > 0, f"{operators_} and {half_} of the indices seek"
    assert Gaps("mnn", +half).share({operator.name for operator in OPERATORS}) == 0.0, "nothing is left to seek"


def drawn(tmp_path, steer):
    """Graphs of a shard whose state lacks GRU alone."""
    (tmp_path / "state").mkdir(exist_ok=True)
    asked = Counter({("mnn", *form, "exact"): 1 for op in OPERATORS if op.name != "GRU" for form in _all(op.name)})
    coverage.save(tmp_path / "state", asked)
    plan = Plan(
        targets=("mnn",), corpus=tmp_path / "no", report=tmp_path, state=tmp_path / "state", seed=3, steer=steer
    )
    shard = Shard(plan, None, stopping=lambda: True)
    return [shard.drawing.case(index, 0, sought=shard.drawing.sought(index, 0)) for index in range(20)]


def test_the_processes_of_a_run_seek_everything_and_none_what_another_does():
    parts = [part_of(name, 3) for name in ("SpawnProcess-8:9", "SpawnProcess-8:10", "SpawnProcess-8:11")]
    gaps = (Gaps("mnn", Counter(), part=part) for part in (part_of("MainProcess", 1), *parts))
    whole, *sought = ({*one._left(frozenset())} for one in gaps)
    assert whole == set().union(*sought)
    assert len(whole) == sum(map(len, sought))
    assert max(map(len, sought)) < 0.5 * len(whole)


def test_what_was_never_asked_comes_first_and_without_steering_all_is_as_ever(tmp_path):
    plain, steered = drawn(tmp_path, steer=False), drawn(tmp_path, steer=True)
    assert [case.digest for case in plain] == [bulk.case(3, index).digest for index in range(20)]
    has = [sum(Form("GRU") in forms_in(coverage.drawn(host_of(case))) for case in cases) for cases in (plain, steered)]
    assert has[0] <= 2, "this seed was chosen for having few"
    assert has[1] >= TRIES, f"{has[1]} of 20 graphs have what was never asked, {has[0]} without steering"
