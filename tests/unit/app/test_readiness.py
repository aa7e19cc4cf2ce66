"""The server says whether it takes work, and why not."""

from app.readiness import Readiness


def test_it_is_ready_only_with_everything_loaded_and_a_ready_engine():
    readiness = Readiness()
    assert not readiness.is_ready("ready")

    readiness.loaded()
    assert readiness.is_ready("ready")
    assert not readiness.is_ready("restarting")
    assert readiness.report("restarting")["state"] == "restarting"


def test_starting_tells_how_far_it_is():
    readiness = Readiness()
    readiness.progress("weights 40 %")

    assert readiness.report("starting") == {"state": "starting", "detail": "weights 40 %"}


def test_a_failed_start_tells_why():
    readiness = Readiness()
    readiness.failed("no such model")
    readiness.loaded()

    assert readiness.report("failed") == {"state": "failed", "detail": "no such model"}
    assert not readiness.is_ready("ready")


def test_draining_has_the_last_word():
    readiness = Readiness()
    readiness.loaded()
    readiness.draining()
    readiness.loaded()

    assert not readiness.is_ready("ready")
    assert readiness.is_draining
