"""A base path, what a proxy says about its clients, and https."""

import asyncio
import logging
import ssl
from ipaddress import ip_network

import pytest
from aiohttp import ClientSession, TCPConnector, web

from app import serving as https
from tests.support.certificate import CERTIFICATE, KEY
from tests.support.front_end import receive, serving

PROXY = (ip_network("127.0.0.1/32"), ip_network("10.0.0.0/8"))


@pytest.fixture
def page_dir(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<p>hello")
    (tmp_path / "assets" / "a.js").write_text("1")
    return tmp_path


async def test_everything_is_below_the_base_path(page_dir):
    async with serving(base_path="/chat", page_dir=page_dir) as front:
        for path, status in (
            ("/chat/", 200),
            ("/chat/assets/a.js", 200),
            ("/chat/v1/sessions", 200),
            ("/chat/healthz", 200),
            ("/healthz", 200),
            ("/health", 200),
            ("/chat/version", 200),
            ("/", 404),
            ("/v1/sessions", 404),
            ("/assets/a.js", 404),
            ("/chatv1/sessions", 404),
        ):
            async with front.client.get(path) as answer:
                assert answer.status == status, path
        async with front.client.ws_connect("/chat/v1/ws") as ws:
            await ws.send_json({"type": "ping", "nonce": 1})
            assert (await receive(ws))["type"] == "pong"
        async with front.client.get("/metrics") as answer:
            assert 'route="/v1/sessions",status="200"' in await answer.text()


async def test_the_base_path_without_its_slash_leads_to_the_page(page_dir):
    async with (
        serving(base_path="/a/b", page_dir=page_dir) as front,
        front.client.get("/a/b", allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (308, "/a/b/")


@pytest.mark.parametrize("path", ["/chat/v1/sessions", "/chat/metrics", "/metrics", "/chat/v1/ws"])
async def test_a_base_path_is_no_way_around_the_keys(path):
    async with serving(base_path="/chat") as front:
        front.keys.add("ann")

        assert (await front.call("GET", path))[0] == 401


async def test_a_ticket_works_below_a_base_path():
    async with serving(base_path="/chat") as front:
        headers = {"Authorization": f"Bearer {front.keys.add('ann')}"}
        _, body = await front.call("POST", "/chat/v1/ws-tickets", headers=headers)
        async with front.client.ws_connect(f"/chat/v1/ws?ticket={body['ticket']}") as ws:
            await ws.send_json({"type": "ping", "nonce": 1})
            assert (await receive(ws))["type"] == "pong"


FROM_OUTSIDE = {
    "Host": "127.0.0.1:8000",
    "X-Forwarded-Host": "chat.example",
    "Origin": "https://chat.example",
}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"trusted_proxies": PROXY, "allowed_hosts": ("chat.example",)}, 201),
        ({"trusted_proxies": PROXY}, 403),
        ({"allowed_hosts": ("chat.example",)}, 403),
        ({"trusted_proxies": PROXY[1:], "allowed_hosts": ("chat.example",)}, 403),
    ],
)
async def test_a_forwarded_host_counts_from_a_trusted_proxy_only(changes, status):
    async with serving(**changes) as front:
        got, _ = await front.call("POST", "/v1/sessions", headers=FROM_OUTSIDE)

    assert got == status


@pytest.mark.parametrize(
    ("proxies", "sent", "peer"),
    [
        (PROXY, "203.0.113.7", "203.0.113.7"),
        (PROXY, "1.2.3.4, 203.0.113.7, 10.1.1.1", "203.0.113.7"),
        (PROXY, "2001:db8::1", "2001:db8::1"),
        (PROXY, "nonsense", "127.0.0.1"),
        (PROXY, None, "127.0.0.1"),
        ((), "203.0.113.7", "127.0.0.1"),
    ],
)
async def test_the_log_names_the_client_that_a_trusted_proxy_names(proxies, sent, peer, caplog):
    caplog.set_level(logging.INFO)
    headers = {} if sent is None else {"X-Forwarded-For": sent}
    async with serving(trusted_proxies=proxies) as front:
        await front.call("GET", "/v1/sessions", headers=headers)

    assert [r.peer for r in caplog.records if hasattr(r, "peer")] == [peer]


async def test_https_is_served_from_two_files(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text(CERTIFICATE)
    key.write_text(KEY)
    app = web.Application()

    async def scheme(request):
        return web.Response(text=request.scheme)

    app.add_routes([web.get("/", scheme)])
    sock = https.bind("127.0.0.1", 0)
    server = https.Serving(sock, https.tls_context(cert, key))
    url = https.url_of(sock, is_secure=True)
    trusting = TCPConnector(ssl=ssl.create_default_context(cadata=CERTIFICATE))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run(app, _nothing, _nothing))
        async with ClientSession(connector=trusting) as http, http.get(url) as answer:
            text = await answer.text()
        server.stop()

    assert url.startswith("https://127.0.0.1:")
    assert text == "https"


async def _nothing(_app):
    return None


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text("no key")

    with pytest.raises(OSError, match=r".+"):
        https.tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")
