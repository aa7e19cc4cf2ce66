"""Settings: where a value comes from, and what is refused."""

from pathlib import Path

import pytest

from app.settings import Settings, SettingsError, kv_key, load_settings
from model.config import AttentionName, Device, Mode


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    """No splice.toml but the test's own."""
    monkeypatch.chdir(tmp_path)


def load(flags=None, /, **environ):
    return load_settings(flags or {}, environ=environ)


def refusal(flags=None, /, **environ):
    with pytest.raises(SettingsError) as caught:
        load(flags, **environ)
    return str(caught.value)


def test_without_sources_the_defaults_stand():
    settings = load()

    assert settings == Settings()
    assert (settings.host, settings.port, settings.model) == ("127.0.0.1", 8000, "default")


def test_a_variable_wins_over_the_file_and_a_flag_over_both():
    Path("splice.toml").write_text("port = 1\nblock_size = 2\ntoken_budget = 3\n")

    settings = load({"token_budget": "9"}, SPLICE_BLOCK_SIZE="8", SPLICE_TOKEN_BUDGET="8")

    assert (settings.port, settings.block_size, settings.token_budget) == (1, 8, 9)


def test_a_misspelt_variable_is_refused_naming_the_nearest():
    assert refusal(SPLICE_PROT="1") == "unknown variable SPLICE_PROT: did you mean SPLICE_PORT?"


def test_what_the_chat_command_reads_is_no_setting():
    assert load(SPLICE_URL="http://127.0.0.1:9", SPLICE_API_KEY="sk-splice-x") == load()


def test_a_misspelt_key_is_refused_naming_the_nearest():
    Path("splice.toml").write_text("token_buget = 1\n")

    assert refusal() == "unknown key of splice.toml token_buget: did you mean token_budget?"


def test_a_name_like_no_other_is_refused_pointing_to_the_list():
    assert "`splice settings` lists them all" in refusal(SPLICE_QQQQQQ="1")


def test_variables_of_other_programs_are_left_alone():
    assert load(PORT="1", SPLICER="2", HF_HUB_OFFLINE="1") == Settings()


def test_every_fault_is_named_with_its_source_at_once():
    lines = refusal({"port": "x"}, SPLICE_TOKEN_BUDGET="0").splitlines()

    assert [line.partition(" = ")[0] for line in lines] == [
        "port (flag --port)",
        "token_budget (variable SPLICE_TOKEN_BUDGET)",
    ]


def test_sizes_take_units():
    assert load(SPLICE_CACHE_BYTES="2GiB").cache_bytes == 2 * 1024**3
    assert load(SPLICE_MAX_BODY_BYTES="512").max_body_bytes == 512


def test_lists_are_separated_by_commas_in_variables_and_are_lists_in_the_file():
    Path("splice.toml").write_text('allowed_origins = ["https://a.example"]\n')

    settings = load(SPLICE_ALLOWED_HOSTS="a.example, b.example,")

    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.allowed_origins == ("https://a.example",)


def test_none_takes_an_optional_value_back():
    Path("splice.toml").write_text("num_blocks = 5\n")

    assert load({"num_blocks": "none"}).num_blocks is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])
def test_a_loopback_host_needs_neither_keys_nor_leave(host):
    assert load({"host": host}).is_guarded_by_address


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "chat.example"])
def test_a_host_that_others_reach_needs_keys_or_leave(host):
    assert not load({"host": host}).is_guarded_by_address
    assert load({"host": host, "allow_remote": True}).is_guarded_by_address


def test_a_proxy_lets_others_in_as_an_address_does():
    settings = load(SPLICE_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8")

    assert [str(network) for network in settings.trusted_proxies] == ["127.0.0.1/32", "10.0.0.0/8"]
    assert not settings.is_guarded_by_address


def test_a_network_that_is_none_is_refused():
    assert "trusted_proxies" in refusal(SPLICE_TRUSTED_PROXIES="proxy.example")


@pytest.mark.parametrize("path", ["chat", "/chat/", "/", "/a//b", "/{a}", "/a b", "/ü"])
def test_a_base_path_has_a_plain_form(path):
    assert "base_path begins with a slash" in refusal({"base_path": path})


@pytest.mark.parametrize("path", ["", "/chat", "/a/b-c.d"])
def test_a_base_path_may_have_levels(path):
    assert load({"base_path": path}).base_path == path


def test_half_a_certificate_is_refused():
    assert "go together" in refusal({"tls_cert": "cert.pem"})


def test_two_sizes_for_one_cache_are_refused():
    assert "leave one out" in refusal({"num_blocks": "64", "cache_bytes": "1GiB"})


@pytest.mark.parametrize("attention", ["batched", "cpu"])
def test_exact_mode_with_a_quicker_attention_is_refused(attention):
    assert f"not {attention}" in refusal({"mode": "exact", "attention": attention})


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_exact_mode_with_quantised_weights_is_refused(quantization):
    assert f"not in {quantization}" in refusal({"mode": "exact", "quantization": quantization})
    for left in ("auto", "none"):
        assert load({"mode": "exact", "quantization": left}).quantization == left


def test_another_file_is_named_by_argument_or_variable(tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("port = 7\n")

    assert load_settings({}, config_file=other, environ={}).port == 7
    assert load(SPLICE_CONFIG=str(other)).port == 7


def test_a_named_file_that_is_missing_is_refused():
    assert "there is no settings file" in refusal(SPLICE_CONFIG="nowhere.toml")


def test_a_file_with_tables_is_refused():
    Path("splice.toml").write_text("[server]\nport = 1\n")

    assert refusal() == "splice.toml has the table [server]: write the settings without tables"


def test_a_size_that_is_none_is_told_what_a_size_is():
    assert "as in 512MiB" in refusal({"cache_bytes": "lots"})


def test_a_file_that_is_no_toml_is_refused():
    Path("splice.toml").write_text("port: 1")

    assert "can't be read" in refusal()


def test_the_database_lies_in_the_data_folder_unless_it_is_named(tmp_path):
    url = load({"data_dir": str(tmp_path / "d")}).effective_database_url

    assert url == f"sqlite+aiosqlite:///{tmp_path}/d/splice.db"
    assert load({"database_url": "postgresql://h/d"}).effective_database_url == "postgresql://h/d"


def test_the_engine_gets_what_was_set(tmp_path):
    config = load(
        {"data_dir": str(tmp_path), "device": "cpu", "mode": "exact", "attention": "reference"},
        SPLICE_CACHE_BYTES="1MiB",
        SPLICE_MAX_RUNNING="3",
    ).engine_config()

    assert (config.device, config.mode) == (Device.CPU, Mode.EXACT)
    assert config.attention is AttentionName.REFERENCE
    assert (config.cache_bytes, config.max_running) == (1 << 20, 3)
    assert config.models_dir == tmp_path / "models"


def test_every_setting_of_the_engine_is_a_setting_of_the_server():
    renamed = {"disk_tier_bytes": "disk_cache_bytes", "cpu_tier_bytes": "cpu_cache_bytes"}
    engine = set(Settings().engine_config().__dataclass_fields__)
    engine -= {"models_dir", "cpu_tier_fd", "kv_key"}

    assert {renamed.get(name, name) for name in engine} <= set(Settings.model_fields)


def test_the_tiers_are_where_the_data_is_unless_they_are_off():
    on, off = load(SPLICE_DATA_DIR="/srv/splice"), load(SPLICE_DISK_CACHE_BYTES="0")

    assert on.engine_config().kv_dir == Path("/srv/splice/kv")
    assert on.engine_config().disk_tier_bytes == 10 * 1024**3
    assert off.engine_config().kv_dir is None


def test_the_tiers_key_comes_from_the_environment_and_is_no_setting():
    secret = "c2VjcmV0"

    settings = load(SPLICE_KV_KEY=secret)

    assert kv_key({"SPLICE_KV_KEY": secret}) == secret
    assert kv_key({}) is None
    assert secret not in repr(settings)
    assert secret not in repr(settings.engine_config(secret))
    assert "kv_key" not in Settings.model_fields
    Path("splice.toml").write_text(f'kv_key = "{secret}"\n')
    assert "unknown key" in refusal()


def test_every_setting_says_what_it_is():
    assert all(field.description for field in Settings.model_fields.values())
