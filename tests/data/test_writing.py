import errno

import pytest

from tsformer.data.writing import naming_full_disk, replacing, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "told.txt"
    write_atomically(path, "old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"new", "text"])
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["told.txt"]


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "told.txt"
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match=r"No space left.*told\.txt"), replacing(path):
        raise full
    assert not list(tmp_path.iterdir())


def test_the_innermost_name_is_told(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device", "file")
    with pytest.raises(OSError, match="'file'"), naming_full_disk(tmp_path):
        raise full
    with pytest.raises(OSError, match="'file'"), naming_full_disk(tmp_path):
        raise RuntimeError("no reason") from full
    with pytest.raises(RuntimeError, match="no reason"), naming_full_disk(tmp_path):
        raise RuntimeError("no reason") from OSError(errno.EACCES, "Permission denied")
