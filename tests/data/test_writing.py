import errno

import pytest

from tsformer.data.writing import replacing, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "told.txt"
    write_atomically(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["told.txt"]


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "told.txt"
    with pytest.raises(OSError, match=r"No space left.*told\.txt"), replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())
