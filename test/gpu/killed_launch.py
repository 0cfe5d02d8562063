#!/usr/bin/env python3
"""Launches that are killed half-way leave nothing behind that spoils the next one.

    killed_launch.py [--rounds N] [--seed S] DIR...        DIR holds one result with its library built (DIR/libNAME.so)

A library's tensors and workspace belong to this process; a child that opened the same memory (CUDA IPC) launches into them without end
until SIGKILL ends it at a random moment, so that its last kernel is torn down with slots half
posted (drivers seen so far let the kernel that runs end first). Then, as the header asks after a launch that did not run to its end,
workspace_init, one launch here: the bits must be those of a launch before any kill; and once
more with random bytes in the workspace before workspace_init, as if torn down anywhere. All libraries' children run at once. No PyTorch,
only libcudart.
Exit code 8 if bits differ; a hang is for the caller's timeout.
"""

import argparse
import ctypes
import glob
import json
import os
import random
import signal
import subprocess
import sys
import time


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def cudart():
    found = [
        p
        for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") + ["/usr/local/cuda/lib64"]
        for p in sorted(glob.glob(os.path.join(d, "libcudart.so*")))
    ]
    lib = ctypes.CDLL(found[0] if found else "libcudart.so")
    for f in ("cudaMalloc", "cudaMemcpy", "cudaDeviceSynchronize", "cudaIpcGetMemHandle", "cudaIpcOpenMemHandle"):
        getattr(lib, f).restype = ctypes.c_int
    lib.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    lib.cudaIpcOpenMemHandle.argtypes = [ctypes.POINTER(ctypes.c_void_p), Handle, ctypes.c_uint]
    lib.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
    return lib


def must(status, what):
    if status != 0:
        raise SystemExit("killed_launch.py: %s: status %d" % (what, status))


class Library:
    """A library and where its tensors and workspace lie in one allocation."""

    def __init__(self, folder):
        self.path = glob.glob(os.path.join(os.path.abspath(folder), "lib*.so"))[0]
        self.name = os.path.basename(self.path)[3:-3]
        lib = ctypes.CDLL(self.path)
        self.call = lambda f: getattr(lib, self.name + "_" + f)
        self.call("info_json").restype = ctypes.c_char_p
        info = json.loads(self.call("info_json")())
        self.tensors = info["inputs"] + info["outputs"]
        self.inputs = len(info["inputs"])
        size = ctypes.c_size_t()
        must(self.call("workspace_size")(None, ctypes.byref(size)), self.name)
        self.workspace_bytes = size.value
        self.offsets, at = [], 0
        for t in self.tensors + [{"span_bytes": self.workspace_bytes}]:
            self.offsets.append(at)
            at += (t["span_bytes"] + 255) // 256 * 256
        self.bytes = max(at, 4 << 20)
        self.call("workspace_init").argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.call("launch").argtypes = [ctypes.c_void_p] * (2 + len(self.tensors)) + [ctypes.c_size_t, ctypes.c_void_p]

    def init(self, base):
        must(self.call("workspace_init")(base + self.offsets[-1], self.workspace_bytes, None), self.name + "_workspace_init")

    def launch(self, base):
        must(self.call("launch")(None, *[base + o for o in self.offsets], self.workspace_bytes, None), self.name + "_launch")


def values(dtype, size, seed):
    """Numbers of a type, below one in magnitude."""
    mask = {"float16": b"\xff\xbb", "bfloat16": b"\xff\xbf", "float32": b"\xff\xff\xff\xbe"}.get(dtype, b"\x01")
    whole = (size + len(mask) - 1) // len(mask) * len(mask)
    bits = int.from_bytes(random.Random(seed).randbytes(whole), "little") & int.from_bytes(mask * (whole // len(mask)), "little")
    return bits.to_bytes(whole, "little")[:size]


def child(folder):
    cuda, library = cudart(), Library(folder)
    handle = Handle.from_buffer_copy(bytes.fromhex(sys.stdin.readline().strip()))
    base = ctypes.c_void_p()
    must(cuda.cudaIpcOpenMemHandle(ctypes.byref(base), handle, 1), "cudaIpcOpenMemHandle")
    library.init(base.value)
    library.launch(base.value)
    must(cuda.cudaDeviceSynchronize(), "the child's first launch")
    print("running", flush=True)
    while True:
        for _ in range(200):
            library.launch(base.value)
        must(cuda.cudaDeviceSynchronize(), "the child's launches")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child")
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    if args.child:
        child(args.child)
    cuda, draw = cudart(), random.Random(args.seed)

    def read(at, size):
        out = ctypes.create_string_buffer(size or 1)
        must(cuda.cudaMemcpy(out, at, size, 2), "cudaMemcpy")
        return out.raw[:size]

    libraries = []
    for k, folder in enumerate(args.folders):
        library, base, handle = Library(folder), ctypes.c_void_p(), Handle()
        must(cuda.cudaMalloc(ctypes.byref(base), library.bytes), "cudaMalloc")
        must(cuda.cudaIpcGetMemHandle(ctypes.byref(handle), base), "cudaIpcGetMemHandle")
        for i in range(library.inputs):
            t = library.tensors[i]
            must(
                cuda.cudaMemcpy(base.value + library.offsets[i], values(t["dtype"], t["span_bytes"], 100 * k + i), t["span_bytes"], 1),
                "cudaMemcpy",
            )
        outputs = lambda l=library, b=base.value: [
            read(b + l.offsets[i], l.tensors[i]["span_bytes"]) for i in range(l.inputs, len(l.tensors))
        ]
        library.init(base.value)
        library.launch(base.value)
        must(cuda.cudaDeviceSynchronize(), library.name)
        libraries.append((folder, library, base.value, bytes(handle).hex(), outputs, outputs()))
    kills, left, wrong = 0, {}, 0
    for _ in range(args.rounds):
        running = []
        for folder, library, base, handle, outputs, want in libraries:
            process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--child", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            process.stdin.write(handle + "\n")
            process.stdin.flush()
            running.append(process)
        for process in running:
            if process.stdout.readline().strip() != "running":
                raise SystemExit("killed_launch.py: a child did not start")
        order = list(range(len(running)))
        draw.shuffle(order)
        for k in order:
            folder, library, base, handle, outputs, want = libraries[k]
            time.sleep(draw.uniform(0.002, 0.03))
            running[k].send_signal(signal.SIGKILL)
            running[k].wait()
            time.sleep(0.05)   # its context goes after the process
            kills += 1
            before = read(base + library.offsets[-1], library.workspace_bytes)
            library.init(base)
            must(cuda.cudaDeviceSynchronize(), library.name)
            if read(base + library.offsets[-1], library.workspace_bytes) != before:
                left[library.name] = left.get(library.name, 0) + 1
            for torn in (False, True):
                if torn:
                    must(
                        cuda.cudaMemcpy(base + library.offsets[-1], draw.randbytes(library.workspace_bytes), library.workspace_bytes, 1),
                        "cudaMemcpy",
                    )
                    library.init(base)
                for _ in range(3):
                    library.launch(base)
                must(cuda.cudaDeviceSynchronize(), library.name + " after a kill")
                if outputs() != want:
                    wrong += 1
                    print("WRONG: %s after a kill%s" % (library.name, ", workspace torn" if torn else ""))
    print(
        "killed launches: %d libraries, %d kills, something left in the workspace after %d (%s), %d wrong"
        % (len(libraries), kills, sum(left.values()), ", ".join("%s %d" % x for x in sorted(left.items())), wrong)
    )
    sys.exit(8 if wrong else 0)


if __name__ == "__main__":
    main()
