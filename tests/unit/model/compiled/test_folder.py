"""A compiled step's folder: what is read is what was written."""

import pytest

from model.compiled.folder import DamagedStepError, check, discard, publish, seal


@pytest.fixture
def folder(tmp_path):
    built = tmp_path / "built"
    (built / "package").mkdir(parents=True)
    (built / "package" / "step.so").write_bytes(b"code" * 1000)
    (built / "constants").write_bytes(b"numbers")
    seal(built)
    publish(built, tmp_path / "step")
    return tmp_path / "step"


def test_what_was_sealed_is_whole_under_its_new_name(folder):
    check(folder)

    assert not (folder.parent / "built").exists()


def test_a_step_takes_the_place_of_another(folder, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    seal(again)
    publish(again, folder)

    check(folder)
    assert [p.name for p in folder.iterdir()] == ["seal.json"]


def test_a_changed_byte_is_damage_and_named(folder):
    (folder / "package" / "step.so").write_bytes(b"code" * 999 + b"cod!")

    with pytest.raises(DamagedStepError, match=r"package/step\.so"):
        check(folder)


def test_a_cut_file_a_missing_and_a_strange_one_are_damage(folder):
    (folder / "constants").write_bytes(b"num")
    with pytest.raises(DamagedStepError, match="constants"):
        check(folder)
    (folder / "constants").unlink()
    with pytest.raises(DamagedStepError, match="constants"):
        check(folder)
    (folder / "constants").write_bytes(b"numbers")
    (folder / "more").touch()
    with pytest.raises(DamagedStepError, match="more"):
        check(folder)


def test_a_seal_that_is_not_there_or_no_json_is_damage(folder):
    (folder / "seal.json").write_text("{")
    with pytest.raises(DamagedStepError, match="can't be read"):
        check(folder)
    (folder / "seal.json").unlink()
    with pytest.raises(DamagedStepError, match="can't be read"):
        check(folder)


def test_what_is_discarded_is_gone_and_what_is_gone_may_be_discarded(folder):
    discard(folder)
    discard(folder)

    assert not folder.exists()
