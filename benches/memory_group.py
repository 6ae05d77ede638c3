"""A control group that limits the memory of programs, page cache included; version 2 where it has the controller, else version 1."""

import os
import pathlib
import sys

# Where groups are, the file of the limit, that of the most memory used, and whether a controller has to be switched on first.
KINDS = (
    (pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.peak", "cgroup.subtree_control"),
    (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes", None),
)


class MemoryGroup:
    """Limits programs that are started with `preexec_fn=group.enter` to `limit` bytes together. Needs root."""

    def __init__(self, limit):
        refusals = []
        for root, limit_file, peak_file, switch in KINDS:
            self.folder = root / f"yggc_bench_{os.getpid()}"
            try:
                if switch and "memory" not in (root / "cgroup.controllers").read_text().split():
                    raise OSError(f"{root} has no memory controller")
                if switch:
                    (root / switch).write_text("+memory")
                self.folder.mkdir()
                (self.folder / limit_file).write_text(str(limit))
            except OSError as error:
                refusals.append(str(error))
                if self.folder.is_dir():
                    self.folder.rmdir()
                continue
            self.peak_file = self.folder / peak_file
            return
        sys.exit(f"no control group can limit memory here: {'; '.join(refusals)}; run as root, or under `systemd-run --scope -p MemoryMax=...`")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        """The most bytes that were in use, if the kernel counts them."""
        return int(self.peak_file.read_text()) if self.peak_file.exists() else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.rmdir()


def forget(path):
    """Drops a file from the page cache: pages that are there are charged to whoever read them first."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
