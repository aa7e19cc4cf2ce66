"""Log records as lines."""

import json
import logging
import sys

from app.logs import JsonFormatter, TextFormatter


def record(message, *args, **extra):
    made = logging.LogRecord("splice.test", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def test_a_json_line_has_what_extra_gave():
    entry = json.loads(JsonFormatter().format(record("took %d", 3, turn_id="resp_1")))

    assert entry["message"] == "took 3"
    assert (entry["level"], entry["logger"], entry["turn_id"]) == (
        "warning",
        "splice.test",
        "resp_1",
    )


def test_a_json_line_keeps_the_traceback_and_what_json_does_not_know():
    try:
        raise KeyError("k")
    except KeyError:
        failed = record("broke", path=object)
        failed.exc_info = sys.exc_info()

    line = JsonFormatter().format(failed)

    assert "\n" not in line
    assert "KeyError" in json.loads(line)["exception"]


def test_a_line_for_people_ends_with_the_ids():
    line = TextFormatter().format(record("took 3", turn_id="resp_1", owner="ann", other="x"))

    assert line.endswith("splice.test: took 3 [turn_id=resp_1 owner=ann]")
    assert TextFormatter().format(record("took 3")).endswith("took 3")
