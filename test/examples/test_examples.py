"""docs/examples, built as their readers build them, against an installed mirage-opt. A stub stands for nvcc, so that each library takes
a moment. What needs PyTorch is skipped where there is none.

BUILD: the build folder to install from; MIRAGE_OPT: the command that was built in it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", ROOT / "build"))
EXAMPLES = ROOT / "docs" / "examples"
QUICK = ["--states", "0", "--gate", "none"]


def setUpModule():
    global WORK, PREFIX, ENVIRONMENT
    WORK = Path(tempfile.mkdtemp(prefix="mirage-examples."))
    PREFIX = WORK / "prefix"
    (WORK / "bin").mkdir()
    shutil.copy(ROOT / "test" / "examples" / "nvcc_stub.sh", WORK / "bin" / "nvcc")
    for component in ("command", "development"):
        subprocess.run(["cmake", "--install", BUILD, "--prefix", PREFIX, "--component", component], check=True, capture_output=True)
    ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MIRAGE_OPT", "NVCC_APPEND_FLAGS")}
    ENVIRONMENT["PATH"] = f"{WORK / 'bin'}:{PREFIX / 'bin'}:{os.environ['PATH']}"
    ENVIRONMENT["PYTHONPATH"] = str(ROOT / "lib" / "python")
    ENVIRONMENT["STUB_LOG"] = str(WORK / "stub.log")


def tearDownModule():
    shutil.rmtree(WORK, ignore_errors=True)


def run(*command, cwd=None, expect=0, **environment):
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != expect:
        raise AssertionError(f"exit {done.returncode}, not {expect}: {command}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def built():
    """Libraries that the stub made since the last call, sorted."""
    log = WORK / "stub.log"
    names = sorted(Path(n).name for n in log.read_text().split()) if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def cuda():
    """Words that let CMake find the real toolkit; nothing where there is none."""
    for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if root and os.path.exists(os.path.join(root, "bin", "nvcc")):
            return [f"-DCUDAToolkit_ROOT={root}"]
    return []


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = WORK / self.id().split(".")[-1]
        shutil.copytree(EXAMPLES, self.folder)
        built()

    def touch_spec(self, name):
        """Another program: the attribute changes what is decided."""
        path = self.folder / f"{name}.json"
        text = path.read_text().replace('"M": 16', '"M": 24').replace('"M": 8', '"M": 24')
        time.sleep(0.02)
        path.write_text(text)

    def test_make(self):
        make = ["make", "-j4", "MIRAGE_OPT_FLAGS=" + " ".join(QUICK)]
        folder = self.folder / "make"
        run(*make, cwd=folder)
        self.assertEqual(built(), ["libgated.so", "libnorm_linear.so"])
        self.assertIn("gated: wrong device", run("./app", cwd=folder))
        run(*make, cwd=folder)
        self.assertEqual(built(), [])
        self.touch_spec("gated")
        run(*make, cwd=folder)
        self.assertEqual(built(), ["libgated.so"])
        self.assertEqual(len(json.loads((folder / "lock.json").read_text())["decisions"]), 3)
        run(*make, cwd=folder)
        self.assertEqual(built(), [])
        os.utime(folder / "lock.json")  # somebody else changed it
        run(*make, cwd=folder)
        self.assertEqual(built(), ["libgated.so", "libnorm_linear.so"])

    def test_static_library_of_a_makefile(self):
        out = self.folder / "out"
        run("mirage-opt", "-q", self.folder / "gated.json", "-o", out, "--emit", "cu,h,makefile", *QUICK)
        run("make", "-C", out, "libgated.a")
        self.assertTrue((out / "libgated.a").exists())
        run("make", "-C", out, "NVCC=sh " + str(WORK / "bin" / "nvcc"))
        self.assertTrue((out / "libgated.so").exists())
        self.assertIn("install the CUDA Toolkit, or say make NVCC=/path/to/nvcc", run("make", "-B", "-C", out, "NVCC=", expect=2))

    def cmake(self, *words):
        build = self.folder / "build"
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        run(
            "cmake",
            *generator,
            "-S",
            self.folder / "cmake",
            "-B",
            build,
            f"-DCMAKE_PREFIX_PATH={PREFIX}",
            "-Dflags=" + ";".join(QUICK),
            *words,
        )
        return build

    @unittest.skipUnless(cuda(), "there is no CUDA Toolkit, which the application needs")
    def test_cmake_application_runs_from_where_it_was_moved(self):
        build = self.cmake(*cuda())
        run("cmake", "--build", build)
        self.assertEqual(built(), ["libgated.so", "libnorm_linear.so"])
        run("cmake", "--build", build)
        self.assertEqual(built(), [])
        self.touch_spec("gated")
        run("cmake", "--build", build)
        self.assertEqual(built(), ["libgated.so"])
        run("cmake", "--install", build, "--prefix", self.folder / "installed")
        os.rename(self.folder / "installed", self.folder / "moved")
        shutil.rmtree(build)
        self.assertIn("norm_linear: wrong device", run(self.folder / "moved" / "bin" / "app"))
        config = next((self.folder / "moved").rglob("gatedConfig.cmake"))
        (self.folder / "user").mkdir()
        (self.folder / "user" / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES C)\nfind_package(gated REQUIRED)\nget_target_property(at"
            " gated::gated IMPORTED_LOCATION)\nmessage(STATUS \"at ${at}\")\n"
        )
        said = run("cmake", "-S", self.folder / "user", "-B", self.folder / "user" / "build", f"-Dgated_DIR={config.parent}")
        self.assertIn(f"at {config.parent.parent.parent / 'libgated.so'}", said)

    def toolkit(self):
        """What CMake takes for a CUDA Toolkit, where neither linker nor loader looks."""
        root = self.folder / "toolkit"
        for folder in ("bin", "include", "lib64"):
            (root / folder).mkdir(parents=True)
        shutil.copy(WORK / "bin" / "nvcc", root / "bin")
        (root / "include" / "cuda_runtime.h").touch()
        (self.folder / "empty.c").write_text("int cublasLtCreate(void) { return 0; }\n")
        for name in ("cudart", "cublasLt"):
            library = root / "lib64" / f"lib{name}.so"
            run("cc", "-shared", "-fPIC", f"-Wl,-soname=lib{name}.so.9", "-o", f"{library}.9", self.folder / "empty.c")
            library.symlink_to(f"lib{name}.so.9")
        return root

    def test_cmake_library_with_cublas_works_where_it_was_moved(self):
        toolkit = self.toolkit()
        shape = {"shape": [4096, 4096], "dtype": "float16"}
        node = {"op": "matmul", "inputs": ["x", "w"], "output": "y"}
        spec = {"name": "product", "inputs": {"x": shape, "w": shape}, "outputs": {"y": shape}, "nodes": [node]}
        (self.folder / "product.json").write_text(json.dumps(spec))
        small = {**spec, "name": "small", "inputs": {"x": {**shape, "shape": [8, 512]}, "w": {**shape, "shape": [512, 64]}}}
        (self.folder / "small.json").write_text(json.dumps({**small, "outputs": {"y": {**shape, "shape": [8, 64]}}}))
        kernels = self.folder / "kernels"
        kernels.mkdir()
        options = " ".join(["--allow-cublas", *QUICK])
        (kernels / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(kernels LANGUAGES C)\nfind_package(mirage-opt REQUIRED)\n"
            + "".join(f"mirage_opt_add_kernel({n} SPEC ../{n}.json OPTIONS {options})\n" for n in ("product", "small"))
        )
        build, moved, stub = self.folder / "build", self.folder / "moved", {"STUB_TOOLKIT": str(toolkit)}
        run("cmake", "-S", kernels, "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCUDAToolkit_ROOT={toolkit}", **stub)
        run("cmake", "--build", build, **stub)
        self.assertEqual(built(), ["libproduct.so", "libsmall.so"])
        run("cmake", "--install", build, "--prefix", self.folder / "installed")
        os.rename(self.folder / "installed", moved)
        shutil.rmtree(build)
        user = self.folder / "user"
        user.mkdir()
        (user / "user.c").write_text(
            "int product_launch(void), small_launch(void); int main(void) { return product_launch() + small_launch() + 10; }"
        )
        (user / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES C)\nfind_package(small REQUIRED)\n"
            "if(CUDAToolkit_FOUND)\nmessage(FATAL_ERROR \"nothing needs it\")\nendif()\nfind_package(product REQUIRED)\n"
            "add_executable(user user.c)\ntarget_link_libraries(user PRIVATE product::product small::small)\n"
        )
        needed = run("readelf", "-d", next(moved.rglob("libproduct.so")))
        self.assertIn("libcublasLt.so.9", needed)
        self.assertNotIn("libcublasLt", run("readelf", "-d", next(moved.rglob("libsmall.so"))))
        for where in ("here", "elsewhere"):  # with the toolkit where it was, and where CMake alone finds it
            build = self.folder / where
            run("cmake", "-S", user, "-B", build, f"-DCMAKE_PREFIX_PATH={moved}", f"-DCUDAToolkit_ROOT={toolkit}")
            run("cmake", "--build", build)
            run(build / "user", LD_LIBRARY_PATH=str(toolkit / "lib64") if where == "elsewhere" else "")
            toolkit = toolkit.rename(self.folder / "other")

    def test_libraries_in_a_cache_are_told_apart_by_what_nvcc_reads_itself(self):
        command = ["mirage-opt", "-q", self.folder / "gated.json", "--cache", self.folder / "cache", *QUICK]
        for out, flags, libraries in (("a", "", ["libgated.so"]), ("b", "", []), ("c", "-rpath=/opt", ["libgated.so"])):
            run(*command, "-o", self.folder / out, **({"NVCC_APPEND_FLAGS": flags} if flags else {}))
            self.assertEqual(built(), libraries)

    def test_cxx(self):
        build = self.folder / "build"
        run("cmake", "-S", self.folder / "cxx", "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DCMAKE_BUILD_TYPE=Debug")
        run("cmake", "--build", build)
        said = run(build / "compile_spec", self.folder / "gated.json", self.folder / "out")
        self.assertIn("gated.cu: ", said)
        self.assertTrue((self.folder / "out" / "gated.cu").exists())
        pc = next(PREFIX.rglob("mirage.pc"))
        said = run("pkg-config", "--cflags", "--libs", "mirage", PKG_CONFIG_PATH=str(pc.parent))
        self.assertIn("-lmirage", said)

    def test_ci(self):
        flags = {"MIRAGE_OPT_FLAGS": " ".join(QUICK)}
        specs, lock, out = self.folder / "kernels", self.folder / "lock.json", self.folder / "out"
        specs.mkdir()
        shutil.copy(self.folder / "gated.json", specs)
        run("sh", "ci/check.sh", specs, lock, out, cwd=self.folder, expect=10, **flags)
        run("sh", "ci/check.sh", specs, lock, out, cwd=self.folder, FROZEN="", **flags)
        run("sh", "ci/check.sh", specs, lock, out, cwd=self.folder, **flags)
        run("sh", "ci/check.sh", specs, lock, self.folder / "again", f"{out}.json", cwd=self.folder, **flags)
        self.assertEqual((out / "gated" / "gated.cu").read_text(), (self.folder / "again" / "gated" / "gated.cu").read_text())

    @unittest.skipUnless(has_torch(), "there is no PyTorch")
    def test_torch(self):
        said = run(sys.executable, self.folder / "torch" / "block.py", self.folder / "out", *QUICK)
        self.assertIn("not called: there is no ", said)

    @unittest.skipUnless(has_torch(), "there is no PyTorch")
    def test_kernelbench(self):
        run("sh", self.folder / "kernelbench" / "run.sh", self.folder / "out", PYTHON=sys.executable, MIRAGE_OPT_FLAGS=" ".join(QUICK))
        self.assertEqual(len(list((self.folder / "out" / "kernels").rglob("*_kernelbench.py"))), 1)


class Installed(unittest.TestCase):
    def test_what_is_installed(self):
        files = {str(p.relative_to(PREFIX)) for p in PREFIX.rglob("*") if p.is_file()}
        for file in (
            "bin/mirage-opt",
            "share/man/man1/mirage-opt.1.gz",
            "share/bash-completion/completions/mirage-opt",
            "share/zsh/vendor-completions/_mirage-opt",
            "share/fish/vendor_completions.d/mirage-opt.fish",
            "share/mirage-opt/spec.schema.json",
            "share/mirage-opt/specs/odd.json",
            "include/mirage/driver/compile.h",
            "include/mirage/support/options.def",
        ):
            self.assertIn(file, files)
        for end in ("cmake/mirage-opt/mirage-optConfig.cmake", "pkgconfig/mirage.pc", "libmirage.a"):
            self.assertTrue(any(f.endswith(end) for f in files), end)

    def test_headers_need_no_other_library(self):
        foreign = {
            f"{path.relative_to(PREFIX)}: {name}"
            for path in (PREFIX / "include").rglob("*.h")
            for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", path.read_text(encoding="utf-8"), re.M)
            if not re.fullmatch(r"[a-z_0-9]+|stdint\.h", name)
        }
        self.assertEqual(foreign, set())  # no package says that it needs one

    def test_nothing_needs_cuda(self):
        said = run("ldd", PREFIX / "bin" / "mirage-opt")
        self.assertNotIn("cuda", said)
        self.assertNotIn("nvrtc", said)
        self.assertNotIn("not found", said)


if __name__ == "__main__":
    unittest.main()
