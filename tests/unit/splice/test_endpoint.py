"""Where a server is."""

import pytest

from splice.endpoint import Endpoint


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9",
        "http://127.0.0.1:9/",
        "http://127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1/",
        "127.0.0.1:9",
        "127.0.0.1:9/v1",
    ],
)
def test_an_address_may_be_written_as_people_do(url):
    endpoint = Endpoint.at(url)

    assert endpoint.base_url == "http://127.0.0.1:9"
    assert endpoint.openai_url == "http://127.0.0.1:9/v1"


def test_a_path_before_the_api_stays():
    assert Endpoint.at("https://ann.example/chat/v1").base_url == "https://ann.example/chat"


def test_a_key_is_sent_and_never_shown():
    endpoint = Endpoint.at(api_key="sk-splice-secret", headers={"x-team": "ann"})

    assert endpoint.sent_headers == {
        "Authorization": "Bearer sk-splice-secret",
        "x-team": "ann",
    }
    assert "secret" not in repr(endpoint)
