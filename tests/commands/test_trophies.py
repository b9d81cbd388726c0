"""Trophies are the causes that real models may meet, the greatest impact first, with what is known upstream."""

import dataclasses

from driftnet.findings import corpus

from tests.findings.test_causes import CAUSE, written
from tests.findings.test_corpus import saved_relu
from tests.support.pages_of_causes import trophies


def test_what_real_models_may_meet_is_told_with_what_is_known_upstream(tmp_path):
    said = {
        "mnn_rare_aaaaaaa1": {"exposure": 0.01},
        "mnn_common_aaaaaaa2": {"exposure": 0.5, "upstream": "none found (2026-11-22)"},
        "mnn_known_aaaaaaa3": {"exposure": 0.1, "upstream": "https://example.org/7 (open)"},
        "mnn_near_aaaaaaa4": {"exposure": 0.2, "upstream": "near https://example.org/8 (closed)"},
        "mnn_nobody_aaaaaaa5": {"exposure": 0.0, "artificial": True},
    }
    for k, (id, given) in enumerate(said.items()):
        impact = {name: given[name] for name in ("exposure", "artificial") if name in given}
        cause = dataclasses.replace(CAUSE, id=id, impact=impact, upstream=given.get("upstream", ""))
        written(tmp_path, cause, cases=(f"test_relu_0000000{k}",))
    corpus.save(saved_relu(id="test_relu_99999999"), tmp_path)
    rows = [line for line in trophies(tmp_path).splitlines() if line.startswith("| wrong")]
    assert [row.split(" | ")[-1] for row in rows] == [f"`aaaaaaa{k}` |" for k in (2, 4, 3, 1)]
    words = ["not reported as far as a search shows", "perhaps reported", "reported", "nobody has looked"]
    assert [row.split(" | ")[-2].partition(" (")[0].partition(":")[0] for row in rows] == words
