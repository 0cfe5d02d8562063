"""python -m mirage_opt farm. What needs Ray is skipped where there is none: three simulated machines, one of which dies."""

import json
import os
import subprocess
import threading
import time
import unittest
from pathlib import Path

from helpers import COMMAND, Case
from mirage_opt import farm
from mirage_opt.command import CommandError

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    ray = None

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


if __name__ == "__main__":
    unittest.main()
