"""Tests of the pieces: `python3 -m unittest distill.tests` in the folder of the package."""

from .test_drafting import *  # noqa: F403
from .test_families import *  # noqa: F403
from .test_pieces import *  # noqa: F403
