"""An output folder that cannot be written is refused before any work."""

from pathlib import Path

import pytest

from topicscope.errors import InputError
from topicscope.records import check_output_folder


def test_a_place_that_cannot_be_written_is_refused_and_one_that_can_is_left_alone(tmp_path: Path) -> None:
    check_output_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(InputError, match="cannot be written"):
            check_output_folder(path)
