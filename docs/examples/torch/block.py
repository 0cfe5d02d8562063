"""A module of one's own as an operator: export, compile, import, call. Without a GPU everything but the call is done.

python block.py [DIR] [FLAG...]: DIR (default out) receives the result, FLAGs go to mirage-opt.
"""

import subprocess
import sys
from pathlib import Path

import mirage_opt
import torch
from mirage_opt import command


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(512, dtype=torch.float16))
        self.weight = torch.nn.Parameter(torch.randn(768, 512, dtype=torch.float16) / 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(torch.nn.functional.rms_norm(x, (512,), self.gain, 1e-6), self.weight)


def main() -> None:
    out, flags = Path(sys.argv[1] if len(sys.argv) > 1 else "out"), sys.argv[2:]
    module, x = Block().eval(), torch.randn(16, 512, dtype=torch.float16)
    out.mkdir(parents=True, exist_ok=True)
    spec = mirage_opt.export(module, (x,))
    spec.write(str(out / "block.json"))
    subprocess.run([command.find(), "-q", str(out / "block.json"), "-o", str(out), *flags], check=True)
    print("inputs, in order:", ", ".join(f"{s.input} ({s.kind} {s.name})" for s in spec.sources))
    library = sorted(out.glob("lib*.so"))
    if not torch.cuda.is_available() or not library:
        print("not called: there is no GPU" if library else "not called: there is no nvcc, and so no library")
        return
    sys.path.insert(0, str(out))
    name = library[0].stem[3:]
    operator = getattr(__import__(name), name)
    module, x = module.cuda(), x.cuda()
    stored = dict(module.named_parameters())
    y = operator(*(x if s.kind == "user" else stored[s.name] for s in spec.sources))
    print("largest difference to PyTorch:", (y - module(x)).abs().max().item())


if __name__ == "__main__":
    main()
