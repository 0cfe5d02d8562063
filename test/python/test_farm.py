"""python -m mirage_opt farm. What needs Ray is skipped where there is none: three simulated machines, one of which dies."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

from helpers import COMMAND, Case
from mirage_opt import farm
from mirage_opt.command import CommandError

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    ray = None

# A driver that says what it has to of an H200, and a compiler whose libraries are empty and whose check programs say that all is well.
DRIVER = """int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetAttribute(int* v, int what, int d) { *v = d == 0 && what == 75 ? 9 : what == 16 ? 132 : 0; return 0; }
int cuDeviceGetName(char* name, int n, int d) { name[0] = n > 1 && d == 0 ? 'x' : 0; name[1] = 0; return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
"""
COMPILER = """#!/bin/sh
case "$*" in --version) echo "Build stub"; exit;; esac
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift;; esac; shift; done
case $out in *.so) cp FOLDER/libcuda.so.1 "$out"; exit;; *_check) ;; *) echo >"$out"; exit;; esac
cat >"$out" <<'END'
#!/bin/sh
echo "$0 $RAY_NODE_ID" >>FOLDER/checked
echo '{"name": "x", "ok": true, "rel_err": 0.0, "bits_equal": true, "canaries_ok": true, "cold_us": 3.5, "warm_us": 2.5,' \\
  '"cold_samples_us": [3.5, 3.5, 3.5], "warm_samples_us": [2.5, 2.5, 2.5], "outputs": []}'
END
chmod +x "$out"
"""

FAST = ["--gate", "none", "--emit=cu,h,graph,certificate,report,html"]


def spec(name, width):
    x, w = {"shape": [8, 64], "dtype": "float16"}, {"shape": [64, width], "dtype": "float16"}
    nodes = [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]
    return {"name": name, "inputs": {"x": x, "w": w}, "outputs": {"y": {"shape": [8, width], "dtype": "float16"}}, "nodes": nodes}


def files_below(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


class Farm(Case):
    def corpus(self, number):
        for i in range(number):
            folder = Path(self.folder, "specs", "sub" if i % 3 == 0 else "")
            folder.mkdir(parents=True, exist_ok=True)
            Path(folder, f"s{i}.json").write_text(json.dumps(spec(f"s{i}", 32 + 16 * i)), encoding="utf-8")
        return str(Path(self.folder, "specs"))

    def test_specs_and_results(self):
        specs = self.corpus(4)
        found = farm.find_specs([specs], self.folder + "/out")
        self.assertEqual([s.under for s in found], ["", "", "sub", "sub"])
        done = farm.compile_here(found[0], FAST, "here")
        self.assertEqual((done.exit_code, done.name), (0, "s1"))
        farm.write_result(done, Path(specs, "result"))
        self.assertEqual(files_below(Path(specs, "result")), done.files)
        self.assertEqual(len(farm.find_specs([specs], self.folder + "/out")), 4)  # results are no specs
        self.assertEqual(farm.find_specs([found[0].path], "x")[0].under, "")

    @unittest.skipIf(ray is not None, "Ray is there")
    def test_without_ray(self):
        with self.assertRaisesRegex(CommandError, "Ray is needed"):
            farm.farm([self.corpus(1)], self.folder + "/out", [])

    @unittest.skipIf(ray is None, "there is no Ray")
    def test_three_machines_of_which_one_dies(self):
        specs, out = self.corpus(9), Path(self.folder, "out")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
        self.addCleanup(cluster.shutdown)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        self.addCleanup(ray.shutdown)

        def kill():  # as soon as it has work
            while not out.exists() or not any(out.iterdir()):
                time.sleep(0.05)
            cluster.remove_node(nodes[0], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        report = Path(self.folder, "report.json")
        code = farm.farm([specs], str(out), FAST, report=str(report))
        killer.join()
        self.assertEqual(code, 0)
        alone = Path(self.folder, "alone")
        subprocess.run([COMMAND, specs, "-o", str(alone), "--quiet", *FAST], check=True)
        self.assertEqual(files_below(out), files_below(alone))
        folders = [s["folder"] for s in json.loads(report.read_text(encoding="utf-8"))["specs"]]
        self.assertEqual(len(folders), 9)
        self.assertEqual(len(set(folders)), 9)
        self.assertTrue(os.path.isfile(out / "index.html"))

    def cluster(self, *nodes):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.addCleanup(cluster.shutdown)
        added = [cluster.add_node(**n) for n in nodes]
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        self.addCleanup(ray.shutdown)
        return added

    def farmed(self, specs, *flags):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = farm.farm([specs], self.folder + "/out", [*FAST, "--measure", *flags], report=self.folder + "/report.json")
        return code, said.getvalue()

    @unittest.skipIf(ray is None or not shutil.which("cc"), "there is no Ray, or no C compiler")
    def test_measuring_on_the_machine_of_the_target(self):
        specs = self.corpus(2)
        Path(self.folder, "driver.c").write_text(DRIVER, encoding="utf-8")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.folder + "/libcuda.so.1", self.folder + "/driver.c"], check=True)
        nvcc = Path(self.folder, "bin", "nvcc")
        nvcc.parent.mkdir()
        nvcc.write_text(COMPILER.replace("FOLDER", self.folder), encoding="utf-8")
        nvcc.chmod(0o755)
        path = {"PATH": f"{nvcc.parent}:{os.environ['PATH']}", "LD_LIBRARY_PATH": self.folder}
        with unittest.mock.patch.dict(os.environ, path):
            nodes = self.cluster(
                {"num_cpus": 2},
                {"num_cpus": 2, "num_gpus": 1, "resources": {"sm_80": 1}},
                {"num_cpus": 2, "num_gpus": 1, "resources": {"sm_90a": 1}},
            )
            code, said = self.farmed(specs, "--machine", "h100")
        self.assertEqual((code, said.count(" done, last ")), (0, 2), said)
        self.assertEqual(said.count("/" + nodes[2].node_id[:8] + ": "), 2, said)
        checks = Path(self.folder, "checked").read_text(encoding="utf-8")
        self.assertTrue("s0_check" in checks and "s1_check" in checks)
        for one in json.loads(Path(self.folder, "report.json").read_text(encoding="utf-8"))["specs"]:
            self.assertEqual(one["measured"]["cold_us"], 3.5)

    @unittest.skipIf(ray is None, "there is no Ray")
    def test_measuring_without_a_gpu_says_so(self):
        specs = self.corpus(1)
        with self.assertRaisesRegex(CommandError, "unknown flag"):
            self.farmed(specs, "--nonsense")
        self.cluster({"num_cpus": 1}, {"num_cpus": 1, "num_gpus": 0})
        with self.assertRaisesRegex(CommandError, "no machine of the cluster has a GPU"):
            self.farmed(specs)

    @unittest.skipIf(ray is None or os.path.exists("/dev/nvidiactl"), "there is no Ray, or a GPU")
    def test_measuring_where_ray_only_thinks_that_there_is_a_gpu(self):
        specs = self.corpus(1)
        self.cluster({"num_cpus": 1, "num_gpus": 1})
        code, said = self.farmed(specs)
        self.assertEqual(code, 7, said)
        self.assertIn("there is no NVIDIA driver on this machine", said)


if __name__ == "__main__":
    unittest.main()
