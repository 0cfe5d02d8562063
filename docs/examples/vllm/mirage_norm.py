"""A vLLM plugin: RMSNorm of one hidden size by a library of mirage-opt, everything else as it was. No file of vLLM is changed.

mirage-opt ../flashinfer/rmsnorm_h4096.json -o rmsnorm_h4096 && pip install . && vllm serve MODEL   (PYTHONPATH=rmsnorm_h4096)
"""


def register():
    """The entry point vllm.general_plugins; vLLM calls it in each of its processes."""
    from rmsnorm_h4096 import rmsnorm_h4096
    from vllm.model_executor.custom_op import CustomOp
    from vllm.model_executor.layers.layernorm import RMSNorm

    @CustomOp.register_oot(name="RMSNorm")
    class MirageRMSNorm(RMSNorm):
        def forward_cuda(self, x, residual=None):
            rows, size = x.numel() // x.shape[-1], x.shape[-1]
            if residual is not None or size != 4096 or rows > 64 or self.variance_epsilon != 1e-6 or not x.is_contiguous():
                return super().forward_cuda(x, residual)
            return rmsnorm_h4096(x.view(rows, size), self.weight, pad=True).view(x.shape)
