"""What .ci/style counts: a rule that cannot be broken would hold nothing."""
import os
import runpy
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STYLE = runpy.run_path(os.path.join(ROOT, ".ci", "style"))


def functions(text):
    code, _ = STYLE["blank"](text, "cc")
    return [(name, lines) for name, _, lines in STYLE["functions"](code)]


class Style(unittest.TestCase):
    def test_functions(self):
        self.assertEqual(functions("namespace a {\nint f(int x) {\n  return x;\n}\n}\n"), [("f", 3)])
        self.assertEqual(functions("struct S {\n  S() : a_{1} {\n  }\n  int g() const { return 1; }\n};\n"), [("S", 2), ("g", 1)])
        self.assertEqual(functions("int f(const X& x = {}, int y = 1) {\n}\nX g() const {\n}\n"), [("f", 2), ("g", 2)])
        self.assertEqual(functions('void f(\n    int x) {\n  if (x) { g("}"); }   // }\n  auto h = [&](int) {\n  };\n}\n'), [("f", 6)])
        self.assertEqual(functions('const char* t = R"(\nint f() {\n}\n)";\nint g() {\n}\n'), [("g", 2)])
        self.assertEqual(functions("enum class E { kA };\nint t[] = {1,\n2};\nauto l = [](int) {\n};\n"), [])

    def test_lines_of_literals_are_data(self):
        _, inside = STYLE["blank"]('int a;\nauto s = R"(x\ny\nz)";\nint b;  // "\n', "cc")
        self.assertEqual(inside, {1, 2, 3})

    def test_what_is_over_is_found(self):
        path = "test/python/over_the_limits.cc"
        full = os.path.join(ROOT, path)
        with open(full, "w", encoding="utf-8") as f:
            f.write("int f() {\n" + "  g();\n" * 60 + "}\n// " + "x" * 140 + "\n")
        try:
            over, where = STYLE["measure"]([path])
        finally:
            os.remove(full)
        self.assertEqual(over, {("columns", path): 1, ("function", path + " f"): 62})
        self.assertEqual(where["function", path + " f"], path + ":1")

    def test_folders(self):
        paths = ["test/python/none_%d.cuh" % i for i in range(25)]
        self.assertEqual(STYLE["measure"](paths)[0], {("folder", "test/python"): 25})


if __name__ == "__main__":
    unittest.main()
