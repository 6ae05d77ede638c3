"""A person at a terminal, for the tests of the chat: chat.py YGGC ARGUMENT... Ends with 0 if all went as it should."""
import os
import pty
import re
import select
import signal
import sys
import time

PATIENCE = 120


class Terminal:
    def __init__(self, command):
        self.seen = ""
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)

    def read(self):
        ready, _, _ = select.select([self.file], [], [], 0.2)
        if not ready:
            return
        try:
            self.seen += os.read(self.file, 256).decode(errors="replace")
        except OSError:  # the program is gone
            raise EOFError(self.seen) from None

    def wait_for(self, pattern):
        """Reads until the pattern comes, and forgets everything up to it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                said, self.seen = self.seen[: found.end()], self.seen[found.end() :]
                return said
            if time.monotonic() > deadline:
                sys.exit(f"no {pattern!r} came, but {self.seen!r}")
            self.read()

    def prompt(self):
        return self.wait_for("> ")

    def type(self, text):
        os.write(self.file, text.encode())

    def end(self):
        try:
            while True:
                self.read()
        except EOFError:
            return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def tokens(stats):
    return int(re.search(r"tokens +(\d+) in", stats).group(1))


def main():
    terminal = Terminal(sys.argv[1:])
    signal.alarm(4 * PATIENCE)
    terminal.prompt()
    terminal.type("/stats\r")
    terminal.wait_for("no answer yet")
    terminal.prompt()

    # The answer is far longer than what a terminal holds that nobody reads, so it is still coming when Ctrl-C is typed.
    terminal.type("hello\r")
    terminal.wait_for(r"hello[\s\S]{300}")
    terminal.type("\x03")
    terminal.wait_for("stopped")
    terminal.prompt()
    terminal.type("/stats\r")
    stopped = tokens(terminal.wait_for(r"tokens +\d+ in \d+ steps"))
    if not 0 < stopped < 30000:
        sys.exit(f"{stopped} tokens came: the answer was not stopped")

    # At the prompt Ctrl-C drops the line, and the line before comes back with the arrow.
    terminal.prompt()
    terminal.type("/quit\x03")
    terminal.prompt()
    terminal.type("\x1b[A\r")
    terminal.wait_for(r"tokens +\d+ in \d+ steps")
    terminal.prompt()
    terminal.type("/help\r")
    terminal.wait_for("/reset")
    terminal.prompt()
    terminal.type("/nonsense\r")
    terminal.wait_for("no command /nonsense")
    terminal.prompt()
    terminal.type("/reset\r")
    terminal.prompt()
    terminal.type("\x04")
    sys.exit(terminal.end())


main()
