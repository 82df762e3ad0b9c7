"""The comparison of golden results notices what it is there for; that the results agree is `make test-golden`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import values
from golden.compare import VERSION, Comparison, Tolerance, compare, leaves
from golden.errors import CASES
from golden.expected import Expected
from golden.recording import MASKED, Recorder, masked

VERSION_KEY = f"probe{VERSION}"
BASE: dict[str, Any] = {
    "probe/bert/moments.npz/sum": np.array([1.0, np.nan, 3.0]),
    "probe/bert/result.json/table/0/ratio": 1.25,
    "probe/bert/result.json/table/0/z_turned": 3.5,
    "surface/help/probe/lines": ["Usage: topicscope probe", "--seed"],
    "surface/api/topicscope/__all__": ["probe"],
    VERSION_KEY: 1,
}


def found(expected: str = "", *, base: dict[str, Any] = BASE, **changes: Any) -> Comparison:
    """The base against itself with some keys changed; None removes one."""
    head = {key: value for key, value in (base | changes).items() if value is not None}
    return compare(base, head, Expected.parsed(f"Prose.\n\n```toml\n{expected}\n```\n"))


def changed(*keys: str) -> str:
    return f'[[changed]]\nkeys = {json.dumps(keys)}\nreason = "a test"\n'


def test_equal_recordings_are_fine() -> None:
    assert found().fine
    assert found().compared == len(BASE)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("probe/bert/moments.npz/sum", np.array([1.0, np.nan, np.nextafter(3.0, 4)]), "1 of 3 entries differ"),
        ("probe/bert/moments.npz/sum", np.array([1.0, np.nan, 3.0], np.float32), "base float64, now float32"),
        ("probe/bert/moments.npz/sum", np.array([1.0, np.nan]), "array (3,) float64"),
        ("probe/bert/result.json/table/0/ratio", float(np.nextafter(1.25, 2)), "base 1.25"),
        ("surface/help/probe/lines", ["Usage: topicscope probe", "--seeds"], "+--seeds"),
    ],
)
def test_a_changed_value_is_noticed_and_shown(key: str, value: Any, shown: str) -> None:
    result = found(**{key: value, VERSION_KEY: 2})
    assert len(result.differences) == 1
    assert key in result.text()
    assert shown in result.text()
    assert not result.problems
    assert found(changed(key), **{key: value, VERSION_KEY: 2}).fine


def test_a_missing_key_and_a_new_one_are_noticed() -> None:
    for changes in ({"surface/api/topicscope/__all__": None}, {"surface/api/topicscope/load": "new"}):
        assert len(found(**changes).differences) == 1
        assert found(changed("surface/api/*"), **changes).fine


def test_an_expected_change_that_is_stale_is_a_problem() -> None:
    result = found(changed("surface/help/probe/*", "surface/api/*"), **{"surface/help/probe/lines": ["other"]})
    assert not result.differences
    assert len(result.problems) == 1
    assert "surface/api/*" in result.text()
    stale = Expected.parsed(f"```toml\n{changed('theory/*')}```\n")
    assert compare(BASE, BASE, stale, parts=["probe", "surface"]).fine, "a part that was not compared is not judged"
    assert not compare(BASE, BASE, stale, parts=["theory"]).fine


def test_numbers_may_change_only_with_their_version() -> None:
    changes = {"probe/bert/result.json/table/0/ratio": 1.5}
    result = found(changed("probe/*"), **changes)
    assert not result.differences
    assert "NUMBERS_VERSION is 1" in result.text()
    assert found(changed("probe/*"), **changes, **{VERSION_KEY: 2}).fine
    assert found(changed("surface/*"), **{"surface/help/probe/lines": ["other"]}).fine, "words are no numbers"
    assert found(**{VERSION_KEY: 2}).fine


def test_renamed_columns_and_words_are_compared_under_their_new_names() -> None:
    rename = '[[renamed]]\nkeys = ["probe/*"]\nold = "z_turned"\nnew = "z_rotation"\nreason = "a test"\n'
    rename += '[[reworded]]\nkeys = ["surface/help/*"]\nold = "--seed"\nnew = "--rng"\nreason = "a test"\n'
    key = "probe/bert/result.json/table/0/z_rotation"
    changes = {"probe/bert/result.json/table/0/z_turned": None, key: 3.5}
    words = {"surface/help/probe/lines": ["Usage: topicscope probe", "--rng"]}
    assert found(rename, **changes, **words).fine
    assert len(found(rename, **words | changes | {key: 3.6}).differences) == 1
    assert not found(rename).fine, "nothing was renamed"


def test_a_tolerance_is_kept_to_and_must_be_needed() -> None:
    key = "probe/bert/result.json/table/0/ratio"
    within = f'[[within]]\nkeys = ["{key}"]\nrelative = 1e-12\nreason = "another order of sums"\n'
    assert found(within, **{key: 1.25 * (1 + 1e-13)}).fine
    assert not found(within, **{key: 1.25 * (1 + 1e-11), VERSION_KEY: 2}).fine
    assert not found(within).fine


def test_entries_that_cannot_be_meant_are_refused() -> None:
    for text in ('[[changed]]\nkeys = ["*"]\n', '[[change]]\nkeys = ["*"]\nreason = "x"\n'):
        with pytest.raises(ValueError, match="expected the fields"):
            Expected.parsed(f"```toml\n{text}```\n")
    Expected.read()


def test_committed_values_come_back_and_are_compared_within_a_tolerance(tmp_path: Path) -> None:
    kept = BASE | {"train/a/weights/W": np.arange(5000.0) / 7, "train/a/counts": np.arange(3)}
    values.write(kept, tmp_path)
    back = values.read(tmp_path)
    assert compare(back, values.reduced(kept), Expected(), tolerance=values.ACROSS_PROCESSORS).fine
    other = kept | {"train/a/weights/W": np.arange(5000.0) / 7 * (1 + 1e-3)}
    assert len(compare(back, values.reduced(other), Expected(), tolerance=values.ACROSS_PROCESSORS).differences) == 1


def test_a_tolerance_is_relative_and_absolute_near_zero() -> None:
    allows = Tolerance(1e-5, 1e-6).allows
    assert allows(np.array([100.0, 0.0]), np.array([100.0009, 0.00009])).all()
    assert not allows(np.array([100.0, 0.0]), np.array([100.002, 0.0002])).any()
    assert not Tolerance(1e-5).allows(np.array([np.nan, np.inf]), np.array([0.0, -np.inf])).any()


def test_what_is_volatile_is_masked_and_the_rest_kept(tmp_path: Path) -> None:
    assert masked({"created": "now", "ratio": 1.5, "rows": [{"seconds": 2}]}) == {
        "created": MASKED,
        "ratio": 1.5,
        "rows": [{"seconds": MASKED}],
    }
    (tmp_path / "history.jsonl").write_text(
        '{"seed": 0, "step": 1, "loss": 0.5}\n{"seed": 0, "step": 2, "loss": 0.25}\n'
    )
    np.savez(tmp_path / "sums.npz", a=np.arange(2), words=np.array(["x", "y"]))
    recorder = Recorder("part")
    recorder.put_folder("case", tmp_path)
    assert recorder.documents["part/case/(files)"] == ["history.jsonl", "sums.npz"]
    assert dict(leaves("k", recorder.documents["part/case/history.jsonl"]))["k/seed 0, step 2/loss"] == 0.25
    assert recorder.documents["part/case/sums.npz/words"] == ["x", "y"]
    assert recorder.arrays["part/case/sums.npz/a"].tolist() == [0, 1]


def test_sixty_errors_are_recorded() -> None:
    assert len(CASES) >= 60
