"""What a call of NAME.py costs on the host, in processor time, with a library that launches nothing. Usage: python host_cost.py NAME.py"""

import os
import re
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


if __name__ == "__main__":
    main()
