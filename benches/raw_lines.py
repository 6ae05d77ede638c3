"""Reads files of measurements, one JSON object per line, and makes tables of them."""

import collections
import json
import statistics
import sys


def read(path, writers):
    """Rows by measure, of a file that one of `writers` wrote."""
    rows = collections.defaultdict(list)
    with open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                rows[row.pop("measure")].append(row)
            except (ValueError, KeyError):
                sys.exit(f"{path}, line {number}: expected a measurement of {writers}")
    if not rows["header"]:
        sys.exit(f"{path}: no header: expected a file that {writers} wrote")
    return rows


def spread(numbers, digits=2):
    if not numbers:
        return "-"
    middle, least, most = statistics.median(numbers), min(numbers), max(numbers)
    return f"{middle:.{digits}f} [{least:.{digits}f}-{most:.{digits}f}]"


def table(title, head, body):
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in body]
    return "\n".join(lines) + "\n"
