"""FlashInfer's calls answered by a library of mirage-opt, in a server that is not changed (SGLang, vLLM).

mirage-opt rmsnorm_h4096.json -o rmsnorm_h4096 && PYTHONPATH=rmsnorm_h4096 python serve.py
"""

import flashinfer
import flashinfer.trace_apply
import torch
from rmsnorm_h4096 import rmsnorm_h4096  # NAME.py: one library for the batch sizes of the spec


def rmsnorm(hidden_states, weight, eps=1e-6):
    """Rows are independent of each other, so a batch size between two of the library's is padded to the next."""
    if eps != 1e-6 or hidden_states.shape[0] > 64:  # the library is for one epsilon and up to 64 rows
        y = hidden_states.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(hidden_states.dtype)
    return rmsnorm_h4096(hidden_states, weight, pad=True)


flashinfer.trace_apply.enable_apply(
    {"rmsnorm_h4096": rmsnorm}
)  # the key is the definition's name: FLASHINFER_TRACE_DUMP=1 writes those of a run
x = torch.randn(5, 4096, device="cuda", dtype=torch.bfloat16)
w = torch.rand(4096, device="cuda", dtype=torch.bfloat16)
print(flashinfer.rmsnorm(x, w).shape, flashinfer.trace_apply.stats())
