#!/usr/bin/env python3
"""Compares the machine code of two builds' kernels: says whether a change of emitted text or of the device library changed what a GPU runs.

  same_code.py OLD NEW [--arch sm_90a] [--jobs 2]

OLD and NEW are a .cu file each, or folders with the same .cu files in them at any depth (what two compilers wrote; *_check.cu is left out).
Every file is compiled by nvcc to a cubin, and the sections that hold code,
constants, registers and shared memory are compared, kernel by kernel. Names of source files and lines take no part. Exit code 0: all the
same; 1: some differ, which are named; 2: something could not be compared.
Needs nvcc only: the cubin is read as the ELF file that it is."""

import argparse
import concurrent.futures
import pathlib
import struct
import subprocess
import sys
import tempfile

KEPT = (".text.", ".nv.constant", ".nv.shared.", ".nv.info.", ".nv.capmerc.text.")


def sections(elf):
    """Bytes of the sections that matter by name, with the header's sh_info, which holds the number of registers."""
    assert elf[:4] == b"\x7fELF" and elf[4] == 2, "no 64-bit ELF file"
    offset, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]
    names = headers[names_at]
    out = {}
    for name, kind, _, _, at, length, _, info, _, _ in headers:
        start = names[4] + name
        text = elf[start:elf.index(b"\0", start)].decode()
        if text.startswith(KEPT):
            # 8: no bytes in the file
            out[text] = (info >> 24 if text.startswith(".text.") else 0, b"" if kind == 8 else elf[at:at + length], length)
    return out


def code_of(path, arch, folder):
    out = pathlib.Path(folder) / (str(abs(hash(str(path)))) + ".cubin")
    run = subprocess.run(
        ["nvcc", "-cubin", "-arch", arch, "-O3", "-std=c++17", "-o", str(out), str(path)], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        return None, run.stderr.strip()[-400:]
    return sections(out.read_bytes()), ""


def files(root):
    root = pathlib.Path(root)
    if root.is_file():
        return {"": root}
    return {str(p.relative_to(root)): p for p in sorted(root.rglob("*.cu")) if not p.name.endswith("_check.cu")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    old, new = files(args.old), files(args.new)
    status = 0
    for name in sorted(set(old) ^ set(new)):
        print(f"only in {'OLD' if name in old else 'NEW'}: {name}")
        status = 2
    both = sorted(set(old) & set(new))
    if not both:
        print("nothing to compare")
        return 2
    kernels = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        codes = {
            (side, name): pool.submit(code_of, paths[name], args.arch, folder)
            for name in both
            for side, paths in (("OLD", old), ("NEW", new))
        }
        for name in both:
            (a, why_a), (b, why_b) = codes["OLD", name].result(), codes["NEW", name].result()
            if a is None or b is None:
                print(f"{name}: does not compile: {why_a or why_b}")
                status = 2
                continue
            kernels += sum(s.startswith(".text.") for s in a)
            different = sorted(s for s in set(a) | set(b) if a.get(s) != b.get(s))
            for s in different:
                x, y = a.get(s), b.get(s)
                print(
                    f"{name or args.new}: {s}: "
                    + (
                        "missing"
                        if x is None or y is None
                        else f"{x[2]} and {y[2]} bytes" + (f", {x[0]} and {y[0]} registers" if x[0] != y[0] else "")
                    )
                )
            if different:
                status = max(status, 1)
    print(
        f"{len(both)} files, {kernels} kernels: "
        + ("the same machine code" if status == 0 else "different" if status == 1 else "not all could be compared")
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
