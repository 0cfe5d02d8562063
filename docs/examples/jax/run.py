"""A library of mirage-opt in a jitted JAX program, through jax-tvm-ffi: libNAME.so exports __tvm_ffi_NAME (inputs, then outputs).

mirage-opt norm_linear.json -o norm_linear && pip install jax[cuda12] jax-tvm-ffi && python run.py
"""

import jax
import jax.numpy as jnp
import jax_tvm_ffi
import tvm_ffi

module = tvm_ffi.load_module("norm_linear/libnorm_linear.so")
jax_tvm_ffi.register_ffi_target("mirage_opt.norm_linear", module.norm_linear, platform="gpu")


@jax.jit
def norm_linear(x, w):
    result = jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype)
    return jax.ffi.ffi_call("mirage_opt.norm_linear", result)(x, w)


x = jax.random.normal(jax.random.key(0), (16, 4096), jnp.bfloat16)
w = jax.random.normal(jax.random.key(1), (4096, 6144), jnp.bfloat16)
wide = x.astype(jnp.float32)
wanted = (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)) @ w.astype(jnp.float32)
print(jnp.linalg.norm(norm_linear(x, w).astype(jnp.float32) - wanted) / jnp.linalg.norm(wanted))
