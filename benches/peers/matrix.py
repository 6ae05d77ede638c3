#!/usr/bin/env python3
"""Runs compare.py for every model and number of threads, a file each, and prints one table of all.

usage: benches/peers/matrix.py OUT MODEL.gguf... --threads 1,2 --peers DIR [--ik TREE] [options of compare.py]

Files in the folder OUT that are there are kept, so that a run that was stopped goes on where it was. Without --only, what the
matrix is made of is measured: plain decoding, forwards of 1 to 64 rows, prefill, and decoding behind a long prompt.
"""

import copy
import os
import pathlib
import sys

import compare
import summary

MEASURES = "ar,widths,prefill,deep"


def main():
    asked = compare.parser()
    asked.description = __doc__
    asked.set_defaults(only=MEASURES)
    asked.add_argument("out", help="the folder of the files")
    asked.add_argument("models", nargs="+", metavar="MODEL.gguf")
    asked.add_argument("--threads", default="1,2", help="separated by commas [%(default)s]")
    given = asked.parse_intermixed_args()
    compare.check(asked, given)
    for model in given.models:
        if not os.path.isfile(model):
            asked.error(f"no file `{model}`; models.py makes those of the matrix")
    pathlib.Path(given.out).mkdir(parents=True, exist_ok=True)
    files = []
    for model in given.models:
        for threads in map(int, given.threads.split(",")):
            one = copy.copy(given)
            one.model, one.threads = model, threads
            one.out = f"{given.out}/{pathlib.Path(model).stem}.{threads}t.jsonl"
            del one.models
            files.append(one.out)
            if not os.path.exists(one.out):
                print(f"{one.out}", file=sys.stderr, flush=True)
                compare.measure(one)
    print(summary.tables([summary.read(file) for file in files]))


if __name__ == "__main__":
    main()
