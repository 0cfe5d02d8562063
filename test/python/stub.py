"""A library with a result's C ABI that launches nothing, so that NAME.py can be tried where there is no GPU: its CUDA calls are answered
by the CPU.
"""

import importlib.util
import os
import subprocess

_SOURCE = """
#include <stddef.h>
#include <string.h>
static void* seen[64];
static double values[64];
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
