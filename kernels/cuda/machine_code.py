#!/usr/bin/env python3
"""Judges the machine code of every CUDA kernel by the table `budgets.txt` in the folder of this program.

usage: machine_code.py CUOBJDUMP IMAGE... [--table]

IMAGE is what nvcc made (a fatbin or a cubin). For every kernel and architecture: registers, memory of spills and stack, bytes of parameters,
warps that a multiprocessor holds at once, by registers, shared memory and threads of a block; and of the loop that loads most from global
memory: bytes per thread and trip, the narrowest load, instructions for each tile of 16 outputs and 64 inputs where it multiplies tiles, of a trip
where it does not, and bytes of weights that a warp has under way between two waits for all of them.
Ends with 1 if something is beyond its budget, a kernel is missing or none is named for it.
"""
import pathlib
import re
import subprocess
import sys
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
# Layouts of packed weights whose products are joined with sums of inputs.
WITH_MINIMA = {"nibbles", "nibbles_wide", "fives_wide"}
# Of a multiprocessor: most warps, most blocks, bytes of shared memory (CUDA programming guide, technical specifications by compute
# capability), and those that every block takes in addition to what its code says.
MULTIPROCESSORS = {
    "sm_80": (64, 32, 164 << 10, 1 << 10),
    "sm_86": (48, 16, 100 << 10, 1 << 10),
    "sm_87": (48, 16, 164 << 10, 1 << 10),
    "sm_89": (48, 24, 100 << 10, 1 << 10),
    "sm_90a": (64, 32, 228 << 10, 0),
    "sm_100": (64, 32, 228 << 10, 0),
    "sm_110": (48, 24, 228 << 10, 0),
    "sm_120": (48, 24, 100 << 10, 0),
    "sm_121": (48, 24, 100 << 10, 0),
}
# Those that the second number of a budget of warps is for.
LARGE = {"sm_90a", "sm_100"}
# Registers of a quarter of a multiprocessor, and those that a warp takes at a time.
QUARTER_REGISTERS, REGISTERS_AT_A_TIME = 16 << 10, 256
# Bytes of loads by what their names have in them.
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


class Instruction(NamedTuple):
    """Its address, its text, and the upper half of its word, which says among other things what it waits for."""

    address: int
    text: str
    control: int

    @property
    def sets(self):
        """The scoreboard, of six, that counts it until its result is there; 7 is none."""
        return self.control >> 46 & 7

    def waits_for(self, scoreboards):
        """Whether it stands still until one of them is empty: until everything that it counts has come."""
        return any(self.control >> 52 + scoreboard & 1 for scoreboard in scoreboards)


def told(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def load_bytes(text):
    """Bytes of a load from global memory, to registers or to shared memory; 0 of every other instruction."""
    name = re.match(r"(?:@!?U?P\w+ )?LDG(?:STS)?(?!\w)((?:\.\w+)*)", text)
    if not name:
        return 0
    return next((WIDTHS[part] for part in name[1].split(".") if part in WIDTHS), 4)


def loops(code):
    """The instructions of every loop, without those of loops in it: between a branch backwards and where it goes."""
    found = []
    for address, text, _ in code:
        to = re.search(r"\bBRA(?:\.\w+)* (?:\S+, )?`?\(?(?:0x|\.L_x_)?(0x)?([0-9a-f]+)\)? ?;?", text)
        if to and "BRA" in text and int(to[2], 16) < address:
            found.append((int(to[2], 16), address))
    inner = {loop: [b for b in found if b != loop and loop[0] <= b[0] and b[1] <= loop[1]] for loop in found}

    def is_own(loop, address):
        return loop[0] <= address <= loop[1] and not any(first <= address <= last for first, last in inner[loop])

    return [[one for one in code if is_own(loop, one.address)] for loop in found]


def weight_bytes(text):
    """Bytes of a load of weights: one to registers that leaves the first cache alone."""
    return load_bytes(text) if re.search(r"\bLDG(?:\.\w+)*\.NA\b", text) else 0


def bytes_under_way(loop):
    """Bytes of weights that a warp asks for between two waits for all that it asked for; what a trip loads for each such wait.

    A wait ends when everything that its scoreboard counts has come. So what is asked tiles ahead is under way only until the next
    wait for the scoreboard that it shares, however many registers hold it: every one is a round trip to memory that nothing hides."""
    scoreboards = {one.sets for one in loop if weight_bytes(one.text)} - {7}
    waits = 0
    is_asked = False
    # The second time around loads of the trip before are under way at first, as in all but the first trip.
    for is_counted in (False, True):
        for one in loop:
            if is_asked and one.waits_for(scoreboards):
                is_asked = False
                waits += is_counted
            is_asked |= weight_bytes(one.text) > 0
    return 32 * sum(weight_bytes(one.text) for one in loop) // max(waits, 1)


def facts_of_code(code):
    """Bytes per thread and trip, narrowest load, instructions per tile, bytes of weights under way, of the loop that loads most."""
    hot = max(loops(code), key=lambda loop: sum(load_bytes(one.text) for one in loop), default=[])
    loads = [bytes for bytes in (load_bytes(one.text) for one in hot) if bytes]
    products = sum("HMMA" in one.text for one in hot)
    return {"loaded": sum(loads), "narrowest": min(loads, default=0), "trip": len(hot), "products": products, "asked": bytes_under_way(hot)}


def read(cuobjdump, image):
    """Facts by (architecture, kernel)."""
    facts = defaultdict(dict)
    arch = kernel = None
    code = defaultdict(list)
    begun = None
    for line in told(cuobjdump, "-sass", image).splitlines():
        if found := re.search(r"^\s*(?:arch = |\.target\s+|code for )(sm_\w+)", line):
            arch = found[1]
        elif found := re.search(r"Function : (\w+)", line):
            kernel = found[1]
        elif found := re.search(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?;)", line):
            begun = int(found[1], 16), found[2]
        elif begun and (found := re.search(r"^\s*/\* 0x([0-9a-f]{16}) \*/", line)):
            code[arch, kernel].append(Instruction(*begun, int(found[1], 16)))
            begun = None
    for key, lines in code.items():
        facts[key] = facts_of_code(lines)
    for line in told(cuobjdump, "-res-usage", image).splitlines():
        if found := re.search(r"^\s*arch = (sm_\w+)", line):
            arch = found[1]
        elif found := re.search(r"Function (\w+):", line):
            kernel = found[1]
        elif found := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            facts[arch, kernel] |= {"registers": int(found[1]), "spilled": int(found[2]) + int(found[4]), "shared": int(found[3])}
    for line in re.findall(r"arch = sm_\w+|\.nv\.info\.ygg_\w+|EIATTR_PARAM_CBANK\s+Format:\s+EIFMT_SVAL\s+Value:\s+0x\w+ 0x\w+", told(cuobjdump, "-elf", image)):
        if line.startswith("arch"):
            arch = line.split()[-1]
        elif line.startswith(".nv"):
            kernel = line.removeprefix(".nv.info.")
        else:
            facts[arch, kernel]["parameters"] = int(line.split("0x")[-1], 16) >> 16
    return facts


def told_shared(kernel, numbers):
    """Bytes of shared memory that a launch of the kernel asks for in addition to its own: those of attention at the widest head it takes, as
    `attention_shared` of the backend counts them, and those of `WideProduct`. Of the others it is none, or a few bytes for each range of
    logits."""
    if found := re.fullmatch(r"ygg_(?:linear|gated)_\w+_w(16|32|64)", kernel):
        stages, results = numbers["YGG_WIDE_STAGES"] * 2 * numbers["YGG_TILE_K"] // 2, numbers["YGG_WIDE_TILES"] * numbers["YGG_TILE_N"] * 3 // 2
        return int(found[1]) * (stages + results) * 4
    found = re.fullmatch(r"ygg_attention_(f16|f32)_d(\d+)", kernel)
    if not found:
        return 0
    element, wide = (2 if found[1] == "f16" else 4), int(found[2])
    queries, places, slot = numbers["YGG_QUERY_TILE"], numbers["YGG_PARTITION"], wide * element + 16
    if wide > 256:
        section = numbers["YGG_SECTION_BYTES"]
        of_sections = wide * element // section * (2 * (section + 16) if element == 2 else section)
        dots = places + 8 if element == 2 else numbers["YGG_ATTENTION_THREADS"]
        return queries * (of_sections + 4 * dots) + numbers["YGG_SECTIONS_HELD"] * places * (section + 16)
    of_query = 2 * slot + (places + 8) * 4 if element == 2 else (wide + numbers["YGG_ATTENTION_THREADS"]) * 4
    return queries * of_query + (2 if wide * element <= 512 else 1) * places * slot


def warps_at_once(arch, fact, threads, shared):
    """Warps of a kernel that a multiprocessor holds: as many whole blocks as its registers, shared memory and places allow."""
    most_warps, most_blocks, memory, reserved = MULTIPROCESSORS[arch]
    of_block = -(-threads // 32)
    of_warp = -(-fact["registers"] * 32 // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
    by_registers = QUARTER_REGISTERS // of_warp * 4 // of_block
    by_memory = memory // max(1, fact["shared"] + shared + reserved)
    return min(by_registers, by_memory, most_warps // of_block, most_blocks) * of_block


def budgets():
    """Rows of the table: pattern of names, structure, most registers, least warps at once, least bytes of a trip, narrowest load, most
    instructions of a tile or a trip, least bytes of weights under way."""
    rows = []
    for line in (HERE / "budgets.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, structure, registers, warps, *others = line.split()
            warps = tuple(map(int, warps.split("/")))
            rows.append((name, structure, int(registers), warps, *(None if n == "-" else int(n) for n in others)))
    return rows


def sizes():
    """Bytes of every structure of parameters, as bindgen asserts them."""
    text = (HERE.parent / "src/cuda/abi.rs").read_text()
    return {name: int(size) for name, size in re.findall(r"size_of::<(\w+)>\(\)\s*-\s*(\d+)usize", text)}


def numbers():
    """The constants that kernels share with the backend."""
    return {name: int(number) for name, number in re.findall(r"(YGG_\w+) = (\d+)", (HERE / "abi.h").read_text())}


def kernels():
    """Threads of a block of every kernel of the sources, as the preprocessor of their macros writes them."""
    text = subprocess.run(["g++", "-E", "-P", "-D__CUDACC__", "-x", "c++", HERE / "kernels.cu"], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"__launch_bounds__\((\w+)[^)]*\)\s*(ygg_\w+)\(", text)
    return {kernel: numbers().get(threads) or int(threads) for threads, kernel in found}


def judge(facts, wanted):
    complaints, table, bytes_of = [], budgets(), sizes()
    for arch in sorted({arch for arch, _ in facts}):
        complaints += [f"{arch}: {name} is not there" for name in sorted(set(wanted) - {kernel for of, kernel in facts if of == arch})]
    for (arch, kernel), fact in sorted(facts.items()):
        row = next((row for row in table if fnmatchcase(kernel, row[0])), None)
        if row is None:
            complaints.append(f"{kernel}: no row of budgets.txt is for it; add one")
            continue
        _, structure, registers, warps, loaded, narrowest, instructions, asked = row

        def expect(holds, what, expected, found):
            if not holds:
                complaints.append(f"{arch} {kernel}: {what}: expected {expected}, found {found}")

        expect(fact["spilled"] == 0, "bytes of stack and spills", 0, fact["spilled"])
        expect(fact["registers"] <= registers, "registers", f"at most {registers}", fact["registers"])
        warps = warps[-1] if arch in LARGE else warps[0]
        expect(fact["warps"] >= warps, "warps of a multiprocessor", f"at least {warps}", fact["warps"])
        expect(fact.get("parameters") == bytes_of[structure], f"bytes of parameters ({structure})", bytes_of[structure], fact.get("parameters"))
        if loaded is not None:
            expect(fact["loaded"] >= loaded, "bytes loaded by a trip", f"at least {loaded}", fact["loaded"])
        if narrowest is not None:
            expect(fact["narrowest"] >= narrowest, "bytes of the narrowest load", f"at least {narrowest}", fact["narrowest"])
        if instructions is not None:
            found = instructions_of_tile(kernel, fact) or fact["trip"]
            expect(found <= instructions, "instructions of a tile or a trip", f"at most {instructions}", found)
        if asked is not None:
            expect(fact["asked"] >= asked, "bytes of weights of a warp under way", f"at least {asked}", fact["asked"])
    return complaints


def instructions_of_tile(kernel, fact):
    """A tile is 4 products for every 8 rows of tokens, and where weights have minima as many sums of inputs, which two tiles may share."""
    found = re.search(r"ygg_(gated|linear|routed_gated|routed)_(?!f32$|join$)(\w+?)(?:_w(\d+))?$", kernel)
    if not found:
        return None
    if not fact["products"]:
        return float("inf")
    # Pieces of experts have 8 rows.
    kind, layout, rows = found[1], found[2], int(found[3] or 8)
    sums = 0 if layout not in WITH_MINIMA else 0.5 if "gated" in kind or rows > 8 else 1
    return round(fact["trip"] * 4 * rows / 8 * (1 + sums) / fact["products"])


def main():
    arguments = [a for a in sys.argv[1:] if a != "--table"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    facts = {}
    for image in arguments[1:]:
        facts |= read(arguments[0], image)
    if not facts:
        sys.exit(f"no kernel is in {arguments[1:]}: expected what nvcc made of kernels.cu")
    wanted, shared_numbers = kernels(), numbers()
    for (arch, kernel), fact in facts.items():
        # One that is not of the sources is complained about, as no budget is for it.
        fact["warps"] = warps_at_once(arch, fact, wanted.get(kernel, 1), told_shared(kernel, shared_numbers))
    if "--table" in sys.argv:
        print("kernel arch registers warps spilled parameters loaded narrowest trip asked tile")
        for (arch, kernel), fact in sorted(facts.items(), key=lambda pair: pair[0][::-1]):
            of_tile = instructions_of_tile(kernel, fact)
            print(kernel, arch, *(fact.get(k) for k in ("registers", "warps", "spilled", "parameters", "loaded", "narrowest", "trip", "asked")), of_tile or "-")
    complaints = judge(facts, wanted)
    print(*complaints, sep="\n")
    print(f"{len(facts)} kernels of {len({arch for arch, _ in facts})} architectures: {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
