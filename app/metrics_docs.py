"""docs/metrics.md, written from the metrics themselves.

`make docs` writes it again; a test fails while it differs.
"""

from pathlib import Path

from app.metric_families import ENGINE, FRONT_END, Family

_PAGE = """# Metrics

`GET /metrics` answers in Prometheus' text format, in every state of the server; once there are API
keys it needs one with the scope `admin`. While the engine starts or restarts its part is missing,
and its counters begin at 0 again with a new process, as `rate()` and `increase()` expect.

```yaml
# prometheus.yml
scrape_configs:
  - job_name: splice
    authorization: {credentials_file: /etc/prometheus/splice.key}
    static_configs: [{targets: ["127.0.0.1:8000"]}]
```

[grafana/splice.json](grafana/splice.json) is a dashboard over them: in Grafana, Dashboards, New,
Import. Worth an alert: `splice_ready == 0` for minutes, `splice_queue_depth > 0` for minutes (the
cache is too small for what is asked of it), and any rise of `splice_books_failures_total` or
`splice_engine_restarts_total`.

A histogram `name` is queried as `name_bucket`, `name_sum` and `name_count`.
"""


def page() -> str:
    """The whole of docs/metrics.md."""
    parts = [_PAGE]
    for heading, families in (("The front end", FRONT_END), ("The engine", ENGINE)):
        head = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
        parts.append(f"\n## {heading}\n\n" + "\n".join([*head, *map(_row, families)]) + "\n")
    return "".join(parts)


def _row(family: Family) -> str:
    name = family.series[0].removesuffix("_bucket")
    labels = "; ".join(f"`{label}`: {values}" for label, values in family.labels)
    return f"| `{name}` | {family.kind} | {labels} | {family.meaning} |"


def main() -> None:
    """Write the page into the checkout this module lies in."""
    path = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
