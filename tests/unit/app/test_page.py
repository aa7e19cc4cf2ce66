"""The built page is served, and nothing beside it."""

import gzip
import socket

import pytest

from tests.support.front_end import serving


@pytest.fixture
def page_dir(tmp_path):
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>the page")
    (folder / "theme.js").write_text("1")
    script = "console.log(1)" * 50
    (folder / "assets" / "app-1a2b.js").write_text(script)
    (folder / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(script.encode()))
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


async def test_the_index_is_asked_for_again_each_time(page_dir):
    async with serving(page_dir=page_dir) as front, front.client.get("/") as answer:
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.content_type == "text/html"
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "the page" in await answer.text()


async def test_a_hashed_asset_is_kept_for_ever_and_sent_compressed(page_dir):
    async with serving(page_dir=page_dir) as front:
        async with front.client.get("/assets/app-1a2b.js") as answer:
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert answer.headers["Content-Encoding"] == "gzip"
            assert (await answer.text()).startswith("console.log")
        async with front.client.get("/theme.js") as answer:
            assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/link.txt",
        "/assets",
        "/assets/",
        "//etc/passwd",
        "/nothing.js",
    ],
)
async def test_no_path_leads_out_of_the_folder(page_dir, path):
    async with serving(page_dir=page_dir) as front:
        # A client would tidy the path, so it is written by hand.
        with socket.create_connection(("127.0.0.1", front.port)) as raw:
            raw.setblocking(False)
            answer = await _ask(raw, path)
    assert b" 404 " in answer.split(b"\r\n")[0]
    assert b"secret" not in answer.split(b"\r\n\r\n")[-1]


async def _ask(raw, path):
    import asyncio

    loop = asyncio.get_running_loop()
    await loop.sock_sendall(
        raw, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    answer = b""
    while data := await loop.sock_recv(raw, 65536):
        answer += data
    return answer


async def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path):
    async with serving(page_dir=tmp_path) as front, front.client.get("/") as answer:
        assert answer.status == 404
        assert answer.content_type == "text/plain"
        assert "make page" in await answer.text()
