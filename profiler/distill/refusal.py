"""How the program refuses: one error class per cause, each message with what was expected, found and to do."""


class Refusal(Exception):
    """Bad input: a model, a corpus or a folder that cannot be used. Ends the program with exit code 3."""


def require(holds: bool, message: str) -> None:
    """Raises `Refusal(message)` unless `holds`."""
    if not holds:
        raise Refusal(message)
