#!/usr/bin/env python3
"""A spec at other extents: reshape_spec.py SPEC NAME AXIS=VALUE... writes the JSON to standard output. For the rows of a benchmark table
that differ in one number."""

import json
import sys


def main():
    path, name, *changes = sys.argv[1:]
    with open(path) as f:
        spec = json.load(f)
    spec["name"] = name
    for change in changes:
        axis, value = change.split("=")
        if axis not in spec["axes"]:
            sys.exit("reshape_spec.py: %s has no axis %s" % (path, axis))
        spec["axes"][axis] = int(value)
    spec.pop("description", None)
    json.dump(spec, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
