"""The landscape's claim is confirmed as it is, and not with the value matrices swapped or a wrong optimum."""

from dataclasses import replace

from claims.sabotage import answers
from topicscope.claims import landscape
from topicscope.claims.claim import Context
from topicscope.synthetic import Setting
from topicscope.theory import topicwise_attention_optimum

SETTING = Setting(10, 10, 2, 0.15, 0.1, 0.1)


def test_confirmed_and_near_a_search_made_elsewhere() -> None:
    result = landscape.CLAIM.run(Context(quick=True))
    assert result.verdict == "confirmed"
    found = {row["quantity"]: row for row in result.rows}
    # Least points of other grids of step .5, computed apart from this package.
    for tau, alpha, beta in ((2, 6.5, 0.5), (3, 8.0, 1.0), (5, 9.0, 2.5)):
        row = found[f"γ*, block W_V, T=10 v=10 τ={tau} N=100"]
        assert abs(row["alpha"] - alpha) < 0.5
        assert abs(row["beta"] - beta) < 0.5


def test_only_the_block_has_a_ridge(monkeypatch) -> None:
    monkeypatch.setattr(landscape, "SHAPES", landscape.SHAPES[:1])
    original = landscape.ridge_row
    monkeypatch.setattr(landscape, "ridge_row", lambda setting, _: original(setting, "diagonal"))
    verdict, statistic = landscape.CLAIM.judge(landscape.measure(Context(quick=True)))
    assert verdict == "not_confirmed"
    assert "ridge" in statistic


def test_a_wrong_optimum_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(landscape, "SHAPES", landscape.SHAPES[:1])

    def wrong(setting, value):
        best = topicwise_attention_optimum(setting, value)
        return replace(best, loss=best.loss + 1e-3)

    monkeypatch.setattr(landscape, "topicwise_attention_optimum", wrong)
    assert landscape.CLAIM.run(Context(quick=True)).verdict == "not_confirmed"


def test_one_topic_a_document_gives_no_topic_attention(monkeypatch) -> None:
    """At τ = 1 every shown word is of the topic or random: γ* is 1, and the claim's inequality is false."""
    monkeypatch.setattr(landscape, "SHAPES", ((10, 10, 1),))
    assert landscape.CLAIM.run(Context(quick=True)).verdict == "not_confirmed"


def test_without_shown_words_there_is_nothing_to_attend_to(monkeypatch) -> None:
    """Masked words never left as they are: the optimum is even attention, and none of the inequalities holds."""
    monkeypatch.setattr(landscape, "SHAPES", landscape.SHAPES[:1])
    monkeypatch.setattr(landscape, "_P", (0.15, 0.0, 0.1))
    result = landscape.CLAIM.run(Context(quick=True))
    assert result.verdict == "not_confirmed"
    met = answers(landscape.CLAIM, result.rows)
    assert [met[name] for name in ("inside", "word", "suppressed")] == [False, False, False]
