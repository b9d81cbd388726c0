"""What a person is told of a file that could not be written."""

import errno
import shutil

import pytest
from driftnet.util.errors import UserError
from driftnet.util.files import disk_error, held, leave_nothing, make_folder


def test_a_folder_that_cannot_be_copied_is_told_by_what_its_first_file_met(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "case.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(shutil.Error) as error:
        shutil.copytree(tmp_path / "from", tmp_path / "to")
    message = disk_error(tmp_path / "to", error.value).message
    assert message.startswith(f"cannot write {tmp_path / 'to'}: [Errno 2] No such file or directory")
    assert "[(" not in message


def test_what_is_refused_leaves_the_lock_of_another_process_and_no_folder_of_its_own(tmp_path):
    make_folder(tmp_path / "new")
    make_folder(tmp_path / "held")
    with held(tmp_path / "held" / "lock"):  # of another handle, as if another process had it
        with pytest.raises(UserError, match="is writing into"), held(tmp_path / "held" / "lock"):
            pass
        (tmp_path / "held" / "what it writes").touch()
        leave_nothing()
        assert (tmp_path / "held" / "lock").exists(), "a third process could take it"
    assert not (tmp_path / "new").exists()


def test_a_folder_whose_name_is_too_long_is_told_as_one_that_cannot_be_made(tmp_path):
    with pytest.raises(UserError) as raised:
        make_folder(tmp_path / ("x" * 300))
    assert raised.value.kind == "disk"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some space, or name another folder"),
        (errno.EACCES, "mend its permissions, or name another folder"),
        (errno.EROFS, "name another folder"),
    ],
)
def test_what_is_advised_mends_what_keeps_a_file_from_being_written(tmp_path, number, hint):
    assert disk_error(tmp_path, OSError(number, "it fails")).hint == hint
