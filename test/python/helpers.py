"""What the tests of this folder share. MIRAGE_OPT: the command under test."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = os.environ.get("MIRAGE_OPT") or os.path.join(ROOT, "build", "mirage-opt")
os.environ["MIRAGE_OPT"] = COMMAND
sys.path.insert(0, os.path.join(ROOT, "lib", "python"))


def opt(*arguments, expect=0):
    """Runs mirage-opt; its standard output and error."""
    run = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)
    if run.returncode != expect:
        raise AssertionError("exit %d, not %d: %s\n%s" % (run.returncode, expect, " ".join(arguments), run.stdout + run.stderr))
    return run.stdout + run.stderr


def compile_spec(folder, spec, *arguments):
    path = os.path.join(folder, spec["name"] + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(spec, f)
    opt(path, "-o", folder, "--states", "0", "--gate", "none", "--quiet", *arguments)


class Case(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.folder = keep.name
