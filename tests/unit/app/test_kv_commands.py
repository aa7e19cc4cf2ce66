"""`splice kv`: asked of a server, and of the folder while there is none."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from app.cli import app
from model.tiers.base import Hold
from model.tiers.cipher import Cipher
from model.tiers.disk import DiskStorage
from model.tiers.folder import LockedFolder
from model.tiers.holds import HoldLog
from tests.support.front_end import serving
from tests.support.tier_records import IDENTITY, payload, record

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _wide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SPLICE_KV_KEY", raising=False)


def run(*args, url=NOBODY):
    return CliRunner().invoke(app, ["kv", *args, "--url", url])


@asynccontextmanager
async def asking():
    """A server, and a command that asks it, in a thread as it isn't asynchronous."""
    async with serving() as front:
        await front.manager.create("anonymous", title="A cat")
        url = str(front.client.make_url(""))

        async def ask(*args):
            return await asyncio.to_thread(run, *args, url=url)

        yield ask


@pytest.fixture
def folder(tmp_path):
    """Ann's only block, as a server left it."""
    return stored(tmp_path)


def stored(tmp_path, cipher=None):
    root = tmp_path / "data" / "kv"
    storage, holds = DiskStorage(root, IDENTITY, 1 << 20, cipher=cipher), HoldLog(root, IDENTITY)
    storage.open()
    holds.open()
    storage.write(record(1), payload(1))
    holds.put(
        Hold(
            conversation_id="conv_ann",
            turn_id="resp_1",
            tail=record(1).key,
            num_tokens=16,
            used_at=1.0,
        )
    )
    holds.close()
    storage.close()
    return storage.path


async def test_a_server_lists_conversations_and_where_they_are():
    async with asking() as ask:
        shown = (await ask("ls")).stdout
        (row,) = json.loads((await ask("ls", "--json")).stdout)

    assert "A cat" in shown
    assert "4 KiB" in shown
    assert (row["title"], row["tier"], row["bytes"]) == ("A cat", "disk", 4096)


async def test_no_id_is_cut_in_a_pipe(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    async with asking() as ask:
        shown = (await ask("ls")).stdout
        (row,) = json.loads((await ask("ls", "--json")).stdout)

    assert row["id"] in shown


async def test_a_server_says_what_its_tiers_hold():
    async with asking() as ask:
        shown = (await ask("stats")).stdout
        (tier,) = json.loads((await ask("stats", "--json")).stdout)

    assert "512 bytes of 2 KiB" in shown
    assert (tier["name"], tier["num_restored"]) == ("disk", 3)


async def test_a_server_verifies_and_damage_is_an_exit_code():
    async with asking() as ask:
        result = await ask("verify")

    assert result.exit_code == 1
    assert "2 damaged records are dropped" in result.stdout


def test_the_folder_is_read_while_no_server_answers(folder):
    (row,) = json.loads(run("ls", "--json").stdout)
    (about,) = json.loads(run("stats", "--json").stdout)
    verified = run("verify")

    assert row["id"] == "conv_ann"
    assert (about["folder"], about["num_conversations"]) == (str(folder), 1)
    assert (verified.exit_code, verified.stdout) == (0, "all records are whole\n")


def test_it_is_said_that_only_the_files_were_asked(folder, tmp_path):
    said = run("ls").stderr

    assert f"no server answers at {NOBODY} (Connection refused)" in said
    assert str(tmp_path / "data" / "kv") in said


def test_a_flipped_bit_in_the_folder_is_found(folder):
    (segment,) = folder.glob("*.kv")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    assert json.loads(run("verify", "--json").stdout) == {"num_lost": 1}
    assert run("verify").exit_code == 0


def test_a_folder_that_a_server_has_is_refused(folder):
    taken = LockedFolder(folder.parent, IDENTITY)

    result = run("verify")
    taken.close()

    assert result.exit_code == 1
    assert "another process uses this folder" in result.stderr


def test_what_another_key_sealed_is_left_alone(tmp_path, monkeypatch):
    key = base64.b64encode(b"k" * 32).decode()
    path = stored(tmp_path, Cipher.from_text(key))
    before = [file.read_bytes() for file in sorted(path.glob("*.kv"))]

    refused = run("verify")
    monkeypatch.setenv("SPLICE_KV_KEY", key)
    verified = run("verify")

    assert (refused.exit_code, "encrypted with another key" in refused.stderr) == (1, True)
    assert (verified.exit_code, verified.stdout) == (0, "all records are whole\n")
    assert [file.read_bytes() for file in sorted(path.glob("*.kv"))] == before


def test_only_a_server_knows_what_is_needed(folder):
    result = run("gc")

    assert result.exit_code == 1
    assert "no server answers" in result.stderr
