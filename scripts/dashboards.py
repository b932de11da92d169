"""The Grafana dashboard and Prometheus' alert rules, made from the metrics that the code has. Run by `make docs`.

A panel or an alert names metrics; its description is what the reference says of the first of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import reference
import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "dashboards"
_PIPELINE = '{pipeline=~"$pipeline"}'

# (title, [(expression, legend)], unit of Grafana, width of 24)
PANELS: list[tuple[str, list[tuple[str, str]], str, int]] = [
    ("Lag", [(f"atonce_lag_records{_PIPELINE}", "{{pipeline}}")], "short", 12),
    ("Rows per second", [(f"rate(atonce_rows_total{_PIPELINE}[1m])", "{{pipeline}}")], "short", 12),
    ("Time of the last batch", [(f"atonce_last_batch_seconds{_PIPELINE}", "{{pipeline}}")], "s", 8),
    ("Batches per minute", [(f"60 * rate(atonce_batches_total{_PIPELINE}[5m])", "{{pipeline}}")], "short", 8),
    (
        "In doubt for",
        [
            (
                f"(time() - atonce_in_doubt_since_timestamp_seconds{_PIPELINE}) * "
                f"(atonce_in_doubt_since_timestamp_seconds{_PIPELINE} > bool 0)",
                "{{pipeline}}",
            )
        ],
        "s",
        8,
    ),
    (
        "Trouble in ten minutes",
        [
            (f"increase(atonce_retries_total{_PIPELINE}[10m])", "{{pipeline}} retries"),
            (f"increase(atonce_restarts_total{_PIPELINE}[10m])", "{{pipeline}} restarts"),
            (f"increase(atonce_aborted_total{_PIPELINE}[10m])", "{{pipeline}} aborted"),
        ],
        "short",
        12,
    ),
    (
        "What became of the input",
        [
            (f"rate(atonce_read_offsets_total{_PIPELINE}[5m])", "{{pipeline}} {{became}}"),
            (f"rate(atonce_filtered_records_total{_PIPELINE}[5m])", "{{pipeline}} filtered"),
        ],
        "short",
        12,
    ),
    (
        "Embedded broker: bytes in and out",
        [("rate(atonce_bytes_in_total[1m])", "in"), ("rate(atonce_bytes_out_total[1m])", "out")],
        "Bps",
        8,
    ),
    ("Embedded broker: log", [("atonce_log_bytes", "log")], "bytes", 8),
    (
        "Embedded broker: transactions and partitions",
        [("atonce_open_transactions", "open transactions"), ("atonce_partitions_offline", "partitions offline")],
        "short",
        8,
    ),
]

# (name, expression, for, severity, what it means and what to do)
ALERTS: list[tuple[str, str, str, str, str]] = [
    (
        "AtOncePipelineFallsBehind",
        "deriv(atonce_lag_records[10m]) > 0 and atonce_lag_records > 1000",
        "10m",
        "warning",
        "The lag has grown for ten minutes: the pipeline is slower than its input, or it waits. Its log line says.",
    ),
    (
        "AtOnceTroubleDoesNotPass",
        "increase(atonce_retries_total[10m]) > 0",
        "30m",
        "warning",
        "A temporary failure has been waited out for half an hour and does not go away. Its log line says which.",
    ),
    (
        "AtOnceBatchesAreAborted",
        "increase(atonce_aborted_total[10m]) > 3",
        "5m",
        "warning",
        "Tasks are lost, or batches outlive their transaction: make them smaller, or raise transaction_timeout_ms.",
    ),
    (
        "AtOnceCommitInDoubt",
        "atonce_in_doubt_since_timestamp_seconds > 0 and time() - atonce_in_doubt_since_timestamp_seconds > 60",
        "0m",
        "critical",
        "A commit has been without an answer for a minute. Nothing is lost: it is found out when the server is back.",
    ),
    (
        "AtOnceFilesPassedOver",
        "increase(atonce_files_passed_over_total[10m]) > 0",
        "0m",
        "warning",
        "The source left files unread. The log line says which, and why.",
    ),
    (
        "AtOnceInputIsGone",
        'increase(atonce_read_offsets_total{became="gone"}[10m]) > 0',
        "0m",
        "critical",
        "Input was removed before it was read, and fail_on_data_loss: false goes on without it.",
    ),
    (
        "AtOncePartitionOffline",
        "atonce_partitions_offline > 0",
        "0m",
        "critical",
        "A disk of the embedded broker failed: the partition takes nothing more until a restart.",
    ),
]


def meanings() -> dict[str, str]:
    """Metric → what the reference says of it."""
    return dict(re.findall(r"^\| `(atonce_\w+)` \| \w+ \| (.*) \|$", reference.metrics(), re.MULTILINE))


def metrics_in(expression: str) -> list[str]:
    return re.findall(r"\batonce_\w+", expression)


def dashboard() -> str:
    said = meanings()
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, (title, queries, unit, width) in enumerate(PANELS, start=1):
        if x + width > 24:
            x, y = 0, y + 8
        panels.append(
            {
                "id": number,
                "type": "timeseries",
                "title": title,
                "description": said[metrics_in(queries[0][0])[0]],
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"h": 8, "w": width, "x": x, "y": y},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
                    for index, (expression, legend) in enumerate(queries)
                ],
            }
        )
        x += width
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "pipeline",
            "label": "Pipeline",
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": "label_values(atonce_batches_total, pipeline)",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        },
    ]
    made = {
        "title": "AtOnce",
        "uid": "atonce",
        "schemaVersion": 39,
        "tags": ["atonce", "kafka", "spark"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def alerts() -> str:
    said = meanings()
    rules = [
        {
            "alert": name,
            "expr": expression,
            "for": lasting,
            "labels": {"severity": severity},
            "annotations": {"summary": words, "metric": said[metrics_in(expression)[0]]},
        }
        for name, expression, lasting, severity, words in ALERTS
    ]
    text = yaml.safe_dump({"groups": [{"name": "atonce", "rules": rules}]}, sort_keys=False, width=1000)
    return f"# Made by `make docs` from the code; do not edit.\n{text}"


def files() -> dict[Path, str]:
    return {FOLDER / "grafana.json": dashboard(), FOLDER / "alerts.yaml": alerts()}
