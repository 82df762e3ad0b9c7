"""States of passes on disk: whole, or named as damaged."""

from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.probing.results import STATE, load_state, pack_state

ARRAYS = {
    "number": np.array(7),
    "empty": np.zeros((0, 3)),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "ids": np.frombuffer("Zürich".encode(), dtype=np.uint8),
    "sums": np.array([0.1, -0.0, np.nan, 5e-324]),
}


def test_a_state_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(pack_state(ARRAYS))
    found = load_state(tmp_path / STATE)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes()


def test_one_wrong_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(pack_state(ARRAYS))
    whole = (tmp_path / STATE).read_bytes()
    for place in range(0, len(whole), 5):
        broken = bytearray(whole)
        broken[place] ^= 1
        (tmp_path / STATE).write_bytes(broken)
        with pytest.raises(InputError, match=STATE):
            load_state(tmp_path / STATE)


@pytest.mark.parametrize("length", [0, 7, 100, -1])
def test_half_a_state_is_noticed(tmp_path: Path, length: int) -> None:
    (tmp_path / STATE).write_bytes(pack_state(ARRAYS))
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:length])
    with pytest.raises(InputError, match=STATE):
        load_state(tmp_path / STATE)
