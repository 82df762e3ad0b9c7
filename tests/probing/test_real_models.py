"""Three real models: what they compute is what the library says, and they show topics where random weights do not."""

import contextlib

import pytest

from probing import real_models
from topicscope.experiments import ModelUnavailableError


@pytest.mark.models
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", real_models.NAMES)
def test_a_real_model_shows_topics_and_its_random_twin_does_not(name: str) -> None:
    found = real_models.measure(name)
    assert found.library < 1e-4
    result = found.result
    print(f"\n{found.label} ({found.kind}), read by {found.path}: {result.headline['text']}")  # noqa: T201
    assert result.headline["direction"] == "higher"
    for row in result.table().query("source == 'measured'").to_dict(orient="records"):
        assert row["attention_ratio"] > 1.2
        causal = row["part"] == "decoder"
        control = row["control_attention_ratio_position_corrected" if causal else "control_attention_ratio"]
        assert control == pytest.approx(1, abs=0.05)
        assert row["embedding_cosine_raw_difference"] > 0


def test_a_model_that_is_not_installed_says_how_to_get_it() -> None:
    errors = []
    for name in real_models.NAMES:
        with contextlib.suppress(ModelUnavailableError):
            real_models.source_of(name).require()
            continue
        with pytest.raises(ModelUnavailableError, match="pip install") as caught:
            real_models.source_of(name).require()
        errors.append(caught)
    assert len(errors) < len(real_models.NAMES), "MiniLM is one of the development packages"
