"""What a comparison is about: prompts, machine, files, commit."""

import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

IDLE_WINDOW_S, IDLE_SHARE = 0.3, 0.1


def read_prompts(path):
    """`{id, category, text}` of every line; of Spec-Bench's lines the first turn, as `yggc bench` asks it."""
    prompts = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text = row.get("text") or row.get("prompt") or row.get("question") or row["turns"][0]
        except (ValueError, KeyError, IndexError, AttributeError, TypeError):
            sys.exit(f"{path}, line {number}: expected a JSON object with `text` (or `prompt`, `question`, `turns`)")
        category = row.get("kind") or row.get("category") or "prompt"
        prompts.append({"id": str(row.get("id", row.get("question_id", number))), "category": category, "text": text})
    if not prompts:
        sys.exit(f"{path}: expected at least one prompt, found none")
    return prompts


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def machine():
    names = {"model name": "cpu", "cpu family": "family", "model": "model", "flags": "flags"}
    facts = {"processors": len(os.sched_getaffinity(0)), "kernel": platform.release(), "load_1min": os.getloadavg()[0]}
    for line in open("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in names:
            facts.setdefault(names[key.strip()], value.strip())
    return facts | {"tier": tier(facts.get("flags", "").split())}


def tier(flags):
    """The instructions that decide how fast products of small integers are."""
    names = {"amx_int8": "AMX", "avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "avx512bw": "AVX-512", "avx2": "AVX2"}
    return next((name for flag, name in names.items() if flag in flags), "portable")


def processor_times():
    """Busy and all time of all processors since the machine started, in ticks; waiting for a disk is not busy."""
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def wait_until_idle(seconds):
    """Waits `seconds` at most for other work on the processors to end; returns their busy share at the end of it."""
    until = time.monotonic() + seconds
    while True:
        busy, all_of = processor_times()
        time.sleep(IDLE_WINDOW_S)
        later_busy, later_all = processor_times()
        share = (later_busy - busy) / max(1, later_all - all_of)
        if share < IDLE_SHARE or time.monotonic() >= until:
            return share


class Load:
    """What other programs take of the processors from now on; ours are this one, its children and `processes`."""

    def __init__(self, processes):
        self.processes = processes
        self.start = self.ticks()

    def ticks(self):
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        for process in self.processes:
            # Behind the name, which may hold spaces, utime and stime are the twelfth and thirteenth fields.
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            own += int(fields[11]) + int(fields[12])
        busy, every = processor_times()
        return busy - own, every

    def others(self):
        """Their share of the processors' time so far."""
        others, every = (now - then for now, then in zip(self.ticks(), self.start))
        return max(0.0, others / max(1, every))


def git(*arguments):
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
