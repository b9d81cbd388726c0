"""What a person is told of a file that could not be written."""

import shutil

import pytest
from driftnet.util.files import disk_error


def test_a_folder_that_cannot_be_copied_is_told_by_what_its_first_file_met(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "case.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(shutil.Error) as error:
        shutil.copytree(tmp_path / "from", tmp_path / "to")
    message = disk_error(tmp_path / "to", error.value).message
    assert message.startswith(f"cannot write {tmp_path / 'to'}: [Errno 2] No such file or directory")
    assert "[(" not in message
