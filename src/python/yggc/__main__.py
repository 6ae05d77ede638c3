"""``python -m yggc``: the program of this package, with the same arguments."""

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Runs the program in place of this process, or, where systems cannot do that, as its child."""
    name = "yggc.exe" if os.name == "nt" else "yggc"
    program = Path(__file__).parent / "bin" / name
    if not program.exists():
        print(f"error: {program} is missing: expected the program there, as wheels have it; install yggc from a wheel", file=sys.stderr)
        return 1
    if os.name == "posix":
        os.execv(program, [str(program), *sys.argv[1:]])
    return subprocess.call([program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
