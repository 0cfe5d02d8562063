"""What a call of NAME.py costs on the host, in processor time, with a library that launches nothing; and one of __tvm_ffi_NAME, where
apache-tvm-ffi, nvcc and NAME.cu are there. Usage: python host_cost.py NAME.py
"""

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time

import torch

import stub


def cost(function, calls=20000, rounds=8):
    """Microseconds of processor time per call, the least of some rounds."""
    for _ in range(500):
        function()
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(calls // rounds):
            function()
        best = min(best, (time.thread_time() - begin) / (calls // rounds))
    return best * 1e6


def ffi_costs(path, name, m):
    """One line: __tvm_ffi_NAME, an empty function of tvm_ffi, torch.add."""
    import tvm_ffi

    with open(path, encoding="utf-8") as f:
        text = f.read()
    machine = re.search(r"target: *sm_(\d+)(\w?)", text)
    with tempfile.TemporaryDirectory() as folder:
        call = tvm_ffi.load_module(stub.build_ffi(folder, name, text, (int(machine.group(1)), machine.group(2))))[name]
        tensors = [torch.zeros(t.shape, dtype=t.dtype) for t in m._INPUTS + m._OUTPUTS]
        empty, a = tvm_ffi.get_global_func("testing.nop"), torch.zeros(4)
        print(
            "tvm_ffi: call %.2f us, of an empty function %.2f us, torch.add %.2f us"
            % (cost(lambda: call(*tensors)), cost(lambda: empty(*tensors)), cost(lambda: torch.add(a, a)))
        )


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read()
    name = os.path.basename(sys.argv[1])[:-3]
    spec_id = re.search(r"spec id (\w+)", text).group(1)
    for workspace in (0, 4096):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as f:
                f.write(text)
            stub.build(folder, name, text.count("    _Tensor("), workspace, spec_id)
            m = stub.import_on_cpu(folder, name)
            inputs = [torch.zeros(t.shape, dtype=t.dtype) for t in m._INPUTS]
            outputs = [torch.zeros(t.shape, dtype=t.dtype) for t in m._OUTPUTS]
            out, call, a = outputs[0] if len(outputs) == 1 else tuple(outputs), getattr(m, name), torch.zeros(4)
            print(
                "workspace %d: call %.2f us, with out= %.2f us, torch.add %.2f us"
                % (workspace, cost(lambda: call(*inputs)), cost(lambda: call(*inputs, out=out)), cost(lambda: torch.add(a, a)))
            )
    source = sys.argv[1][:-2] + "cu"
    if os.path.exists(source) and shutil.which("nvcc") and importlib.util.find_spec("tvm_ffi"):
        ffi_costs(source, name, m)


if __name__ == "__main__":
    main()
