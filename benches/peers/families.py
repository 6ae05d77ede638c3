#!/usr/bin/env python3
"""Reads the GGUF file of every tiny model in tests/data/families with a peer, and compares its most probable tokens with float32's.

usage: families.py ENGINE WHERE VARIANT [FAMILY...]

ENGINE, WHERE and VARIANT as for peer_worker.py. Prints one JSON line a family: of each text the positions where the margin of the expected
token exceeds 0.05, those of them where the peer agrees, and the mean negative log-likelihood of both; or why the peer cannot read the file. Ends with 1 if a peer that reads a file disagrees. Each family is a process of its own, since an assertion ends a peer.
"""

import importlib
import json
import pathlib
import subprocess
import sys

MARGIN = 0.05
FAMILIES = pathlib.Path(__file__).resolve().parents[2] / "tests/data/families"


def compare(engine, where, variant, family):
    import numpy
    from peer_worker import Worker

    texts = json.loads((FAMILIES / family / "expected.json").read_text())["texts"]
    longest = max(len(text["token_ids"]) for text in texts)
    peer = importlib.import_module(engine).Engine(where, variant, 1)
    worker = Worker(peer, str(FAMILIES / family / "model.gguf"), 1, longest)
    worker.use("off")
    found = []
    for text in texts:
        ids = text["token_ids"]
        worker.forget(0)
        logits = numpy.array(worker.forward(ids, 0, len(ids)), dtype=numpy.float64)
        sure = numpy.array(text["margin"]) > MARGIN
        shifted = logits - logits.max(1, keepdims=True)
        log_probabilities = shifted - numpy.log(numpy.exp(shifted).sum(1, keepdims=True))
        found.append(
            {
                "positions": int(sure.sum()),
                "agreed": int((logits.argmax(1) == numpy.array(text["argmax"]))[sure].sum()),
                "mean_nll": round(-log_probabilities[numpy.arange(len(ids) - 1), ids[1:]].mean(), 5),
                "expected_mean_nll": round(text["mean_nll"], 5),
            }
        )
    return {"family": family, "peer": peer.version, "texts": found}


def main():
    if len(sys.argv) == 6 and sys.argv[4] == "--one":
        print(json.dumps(compare(*sys.argv[1:4], sys.argv[5])))
        return
    if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    families = sys.argv[4:] or sorted(path.parent.name for path in FAMILIES.glob("*/model.gguf"))
    disagrees = False
    for family in families:
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:4], "--one", family], capture_output=True, text=True)
        if run.returncode:
            said = [line for line in run.stderr.splitlines() if "error" in line.lower()]
            print(json.dumps({"family": family, "unread": pathlib.Path(said[0]).name if said else "no message"}), flush=True)
            continue
        print(run.stdout.strip(), flush=True)
        disagrees |= any(text["agreed"] < text["positions"] for text in json.loads(run.stdout)["texts"])
    sys.exit(disagrees)


if __name__ == "__main__":
    main()
