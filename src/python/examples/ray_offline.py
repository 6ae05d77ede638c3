"""One command over many files or values on the machines of a Ray cluster, such as a corpus store of each text, the parts of a corpus to distill from, or a
measurement of each plan with each set of prompts.

    pip install 'ray[default]'
    python ray_offline.py stores --each text texts/*.txt -- yggc corpus build -m model.gguf --threads 4 --input {text} -o {output}
    python ray_offline.py measured --cpus 8 --each plan *.plan --each prompts sets/*.jsonl -- \\
        yggc bench -m model.gguf --plan {plan} --prompts {prompts} --json
    python ray_offline.py parts --cpus 4 --each seed $(seq 40) -- \\
        yggc distill -m model.gguf --corpus-only --tokens 25000 --seed {seed} --threads 4 -o {output}
    yggc distill -m model.gguf -o drafter --corpus parts/*/

- The command is run once for every combination of the values after `--each`. A value that is a file travels to the machine that runs it; everything
  else of the command, such as the program and the model, must be there under the same name. A result is what the command writes to {output}, a
  file or a folder, or else what it prints. It comes back, through memory, to the folder of this program's first argument.
- It can be ended at any time and begun again: a result that is there is not made again, unless the command or a file of it has changed. A machine that is
  lost, or a worker that dies, costs what it ran, which another repeats.
- Results that depend on nothing but their input are those of one machine, byte for byte: corpus stores on machines with the same class
  of activations, which compute the same bits, and parts of `distill` on machines of one kind with as many threads, since PyTorch's arithmetic is less
  strict. Measurements depend on the machine; `--cpus` processors are kept for each, so give all of one.
"""

import argparse
import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ray

# How often what a machine loses is run again.
RETRIES = 3


def arguments(given=None):
    given = sys.argv[1:] if given is None else given
    split = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__.split(",")[0], usage="ray_offline.py OUT --each NAME VALUE... [--cpus N] -- COMMAND...")
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--each", nargs="+", action="append", required=True, metavar=("NAME", "VALUE"))
    parser.add_argument("--cpus", type=int, default=1, help="processors that a run takes")
    options = parser.parse_args(given[:split])
    options.command = given[split + 1:]
    if not options.command:
        parser.error("expected -- and a command")
    options.each = {name: values for name, *values in options.each}
    for name, values in options.each.items():
        if not values:
            parser.error(f"--each {name}: expected at least one value")
        if not any(f"{{{name}}}" in word for word in options.command):
            parser.error(f"expected {{{name}}} in the command")
    return options


def label(values):
    """The name of a result: readable, and no other's."""
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:8]
    return "-".join([*(Path(value).name for value in values.values()), digest])


def content(value):
    """The bytes of a value that is a file."""
    return Path(value).read_bytes() if os.path.isfile(value) else None


def identity(command, values, files):
    """What a result depends on."""
    digests = {name: files[name] is not None and hashlib.sha256(files[name]).hexdigest() for name in values}
    return {"command": command, "values": values, "files": digests}


@ray.remote(max_retries=RETRIES)
def run(command, values, files):
    """The exit status of one run, its result, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        filled = dict(values)
        for name, data in files.items():
            if data is not None:
                place = Path(folder, name)
                place.mkdir()
                place /= Path(values[name]).name
                place.write_bytes(data)
                filled[name] = str(place)
        output = Path(folder, "output")
        words = []
        for word in command:
            for name, value in {**filled, "output": str(output)}.items():
                word = word.replace(f"{{{name}}}", value)
            words.append(word)
        ended = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
        if output.is_dir():
            files = [path for path in output.rglob("*") if path.is_file()]
            result = {str(path.relative_to(output)): path.read_bytes() for path in sorted(files)}
        else:
            result = output.read_bytes() if output.exists() else ended.stdout
        return ended.returncode, result, ended.stderr


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep(out, name, about, result):
    """Writes a result, the bytes of a file or those of a folder's files, so that it is there as a whole or not at all."""
    for path, data in ((out / name, result), (out / f"{name}.json", json.dumps(about).encode())):
        part = path.with_name(path.name + ".part")
        remove(part)
        if isinstance(data, dict):
            part.mkdir()
            for place, content in data.items():
                (part / place).parent.mkdir(parents=True, exist_ok=True)
                (part / place).write_bytes(content)
        else:
            part.write_bytes(data)
        # A folder is not renamed over what is there. A result that is missing is made again, whatever is said of it.
        if part.is_dir() or path.is_dir():
            remove(path)
        part.rename(path)


def size(result):
    return sum(map(len, result.values())) if isinstance(result, dict) else len(result)


def is_kept(out, name, about):
    try:
        return (out / name).exists() and json.loads((out / f"{name}.json").read_text()) == about
    except (OSError, ValueError):
        return False


def main(given=None):
    """Runs what is left to run; how many runs failed."""
    options = arguments(given)
    options.out.mkdir(parents=True, exist_ok=True)
    if not ray.is_initialized():
        ray.init()
    limit = max(1, 2 * int(ray.cluster_resources().get("CPU", 1)) // options.cpus)
    combinations = [dict(zip(options.each, values)) for values in itertools.product(*options.each.values())]
    pending, failed, left = {}, 0, iter(combinations)

    def submit():
        """Gives the cluster work until it has enough: files are read when their turn comes."""
        for values in left:
            files = {name: content(value) for name, value in values.items()}
            name, about = label(values), identity(options.command, values, files)
            if is_kept(options.out, name, about):
                print(f"{name}: there already", flush=True)
                continue
            task = run.options(num_cpus=options.cpus, name=name).remote(options.command, values, files)
            pending[task] = (name, about)
            if len(pending) >= limit:
                return

    submit()
    while pending:
        [done], _ = ray.wait(list(pending))
        name, about = pending.pop(done)
        try:
            status, result, said = ray.get(done)
        except ray.exceptions.RayError as error:
            status, result, said = None, b"", str(error).encode()
        if status == 0:
            keep(options.out, name, about, result)
            print(f"{name}: {size(result)} bytes", flush=True)
        else:
            failed += 1
            print(f"{name}: ended with {status}: {shlex.join(options.command)}\n{said.decode(errors='replace')}", file=sys.stderr, flush=True)
        submit()
    print(f"{len(combinations) - failed} of {len(combinations)} results are in {options.out}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
