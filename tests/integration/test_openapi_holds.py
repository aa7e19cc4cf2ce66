"""Requests made from `/openapi.json` against the running server: none is answered by an error of
ours, by a status or a body that the document doesn't have, or is taken though it is wrong.

Two of schemathesis' checks don't fit. That what a schema allows is accepted: no schema knows which
ids exist, and a `head` that is none of the file's turns is as wrong as a missing field. That
`Allow` has the document's methods and no more: `/v1/sessions/import` is also a session's address.
"""

import asyncio
import subprocess
import sys

import pytest

from tests.support.real_keys import make_keys
from tests.support.scripted_server import ScriptedServer

DURATION_S = 90


@pytest.mark.full
@pytest.mark.timeout(DURATION_S + 120)
def test_no_generated_request_finds_a_failure_or_an_undocumented_answer(tmp_path):
    secrets = asyncio.run(make_keys(tmp_path / "splice.db", "ann"))
    flags = ("--max-context-tokens", "400")
    with ScriptedServer(tmp_path, *flags, step_ms=0.1) as server:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {secrets['ann']}"]
        command += ["--exclude-checks", "positive_data_acceptance,allow_header_conformance"]
        command += ["--max-time", str(DURATION_S), "--continue-on-failure", "--no-color"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    print(done.stdout[-20_000:], done.stderr)
    assert done.returncode == 0
