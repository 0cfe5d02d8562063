"""A library with a result's C ABI that launches nothing, so that NAME.py can be tried where there is no GPU: its CUDA calls are answered
by the CPU.
"""

import importlib.util
import os
import subprocess

_SOURCE = """
#include <stddef.h>
#include <string.h>
static void* seen[128];
static double values[128];
static long long seen_dims[8];
static int calls, next_status;
int NAME_workspace_size(const void* dims, size_t* bytes) { (void)dims; *bytes = WORKSPACE; return 0; }
int NAME_workspace_init(void* w, size_t bytes, void* stream) { (void)w; (void)bytes; (void)stream; return 0; }
int NAME_launch(const void* dimsPARAMETERS, void* workspace, size_t bytes, void* stream) {
  void* const all[] = {ARGUMENTSworkspace};
  memcpy(seen, all, sizeof all);
  NUMBERS
  calls++;
  memset(seen_dims, 0, sizeof seen_dims);
  if (dims) memcpy(seen_dims, (const char*)dims + 8, AXES * sizeof seen_dims[0]);
  (void)dims; (void)bytes; (void)stream;
  return next_status;
}
const char* NAME_status_string(int s) { (void)s; return "a status"; }
const char* NAME_info_json(void) { return "{\\"spec_id\\":\\"SPEC\\"}"; }
unsigned NAME_abi_version(void) { return 1; }
double stub_value(int i) { return values[i]; }
long long stub_dim(int i) { return seen_dims[i]; }
void* stub_seen(int i) { return seen[i]; }
int stub_calls(void) { return calls; }
void stub_status(int s) { next_status = s; }
"""


def build(folder, name, tensors, workspace, spec_id, numbers=None, axes=0):
    """Writes lib<name>.so beside <name>.py; raises subprocess.CalledProcessError where there is no C compiler. numbers: the C type of each
    argument that is passed by value, by its place; axes: those of NAME_dims.
    """
    numbers = numbers or {}
    parameters = "".join(", %s t%d" % (numbers.get(i, "void*"), i) for i in range(tensors))
    arguments = "".join("%s, " % ("NULL" if i in numbers else "t%d" % i) for i in range(tensors))
    source = _SOURCE.replace("PARAMETERS", parameters).replace("ARGUMENTS", arguments).replace("AXES", str(axes))
    source = source.replace("NUMBERS", " ".join("values[%d] = t%d;" % (i, i) for i in numbers))
    source = source.replace("NAME", name).replace("WORKSPACE", str(workspace)).replace("SPEC", spec_id)
    path = os.path.join(folder, name + "_stub.c")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", os.path.join(folder, "lib%s.so" % name), path], check=True)


_RUNTIME = """
int cudaDeviceGetAttribute(int* value, int what, int device) {
  (void)device;
  *value = what == 75 ? MAJOR : what == 76 ? MINOR : 1 << 20;
  return 0;
}
int cudaGetDevice(int* device) { *device = 0; return 0; }
static int encoded(void) { return 0; }
int cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned version, unsigned long long flags, int* found) {
  (void)name, (void)version, (void)flags;
  *entry = (void*)encoded;
  *found = 0;
  return 0;
}
"""


def build_ffi(folder, name, text, capability):
    """libNAME.so of the text of NAME.cu, for __tvm_ffi_NAME on tensors of the CPU: what it calls of the CUDA runtime succeeds and does
    nothing. Raises subprocess.CalledProcessError where nvcc does.
    """
    for old, new in ((".type != 2 &&", ".type != 1 &&"), ("kDlCuda = 2,", "kDlCuda = 1,")):
        assert old in text, old
        text = text.replace(old, new)
    path = os.path.join(folder, name + "_ffi")
    with open(path + ".cu", "w", encoding="utf-8") as f:
        f.write(text)
    arch = ["-gencode", "arch=compute_%d%s,code=sm_%d%s" % (capability[0], capability[1], capability[0], capability[1])]
    subprocess.run(["nvcc", "-O3", "-std=c++17", "-Xcompiler", "-fPIC", *arch, "-c", "-o", path + ".o", path + ".cu"], check=True)
    wanted = subprocess.run(["nm", "-u", path + ".o"], check=True, capture_output=True, text=True).stdout.split()
    source = _RUNTIME.replace("MAJOR", str(capability[0] // 10)).replace("MINOR", str(capability[0] % 10))
    source += "".join(
        "int %s(void) { return 0; }\n" % w
        for w in wanted
        if w.lstrip("_").startswith("cuda") and w + "(" not in source and w != "cudaGetErrorString"
    )
    with open(path + "_runtime.c", "w", encoding="utf-8") as f:
        f.write(source + "const char* cudaGetErrorString(int e) { (void)e; return \"an error\"; }\n")
    library = os.path.join(folder, "lib%s_ffi.so" % name)
    own = ["-shared", "-fPIC", "-Wl,-Bsymbolic"]  # PyTorch has a runtime of the same names
    subprocess.run(["cc", "-O1", "-w", *own, "-o", library, path + ".o", path + "_runtime.c", "-lstdc++"], check=True)
    return library


def on_cpu(text):
    """The text of NAME.py with device 0 of the type "cuda" standing for the CPU; per call it does otherwise what it does on a GPU."""
    changes = (
        ('_DEVICE_TYPE = "cuda"', '_DEVICE_TYPE = "cpu"'),
        (".get_device()", ".get_device().__add__(1)"),
        ("_torch.cuda.current_device()", "0"),
        ("_torch.device(_DEVICE_TYPE, index)", '_torch.device("cpu")'),
        ("_raw_stream = ", "_raw_stream = (lambda index: 0) or "),
        ("_is_capturing = ", "_is_capturing = (lambda: False) or "),
    )
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def import_on_cpu(folder, name):
    """NAME.py on the CPU, as a module."""
    with open(os.path.join(folder, name + ".py"), encoding="utf-8") as f:
        text = on_cpu(f.read())
    path = os.path.join(folder, name + "_on_cpu.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    spec = importlib.util.spec_from_file_location(name + "_on_cpu", path)
    module = importlib.util.module_from_spec(spec)
    os.environ["MIRAGE_OPT_LIBRARY_" + name] = os.path.join(folder, "lib%s.so" % name)
    try:
        spec.loader.exec_module(module)
    finally:
        del os.environ["MIRAGE_OPT_LIBRARY_" + name]
    return module
