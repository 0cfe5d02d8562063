// What a machine can do to mirage-opt: kills, full disks, folders that cannot be written, others in the same folder, compilers that are
// missing, fail, hang or lie, and specs made to hurt. MIRAGE_KILLS sets how many random moments are tried (10; 200 for the long run).
#include <catch2/catch.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-outside.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name, std::ios::binary) << text;
    return path + "/" + name;
  }
  /// A program that takes nvcc's place.
  std::string script(const std::string& name, const std::string& text) const {
    write(name, "#!/bin/sh\n" + text);
    fs::permissions(path + "/" + name, fs::perms::owner_all);
    return path;
  }
};

/// Starts the binary without a shell; standard error goes to `err`. `environment`: NAME=VALUE.
pid_t start(Words words, const std::string& err, const Words& environment = {}) {
  words.insert(words.begin(), std::string(MIRAGE_BINARY_DIR) + "/mirage-opt");
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const std::string& e : environment) putenv(const_cast<char*>(e.c_str()));
  const int in = ::open("/dev/null", O_RDWR), log = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  dup2(in, 0), dup2(in, 1), dup2(log, 2);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(126);
}

/// Exit code, or 128 + signal.
int finish(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Run { int exit = -1; std::string err; double seconds = 0; };

Run opt(const Words& words, const Words& environment = {}) {
  TempFolder t;
  const auto begin = Clock::now();
  const int exit = finish(start(words, t.path + "/err", environment));
  return {exit, read_file(t.path + "/err").value(), std::chrono::duration<double>(Clock::now() - begin).count()};
}

const std::string kTexts = "--emit=cu,h,graph,dot,certificate,harness,python,cmake,makefile";

std::string spec(const std::string& name, int width = 64) {
  return R"({"name": ")" + name + R"(", "inputs": {"x": {"shape": [8, 64], "dtype": "float16"}, "w": {"shape": [64, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "outputs": {"y": {"shape": [8, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";
}

/// What a user sees in a folder, and whether something hidden was left.
std::map<std::string, std::string> contents(const std::string& folder, bool* hidden = nullptr) {
  std::map<std::string, std::string> out;
  std::error_code error;
  for (const auto& e : fs::directory_iterator(folder, error)) {
    const std::string name = e.path().filename().string();
    if (name[0] != '.') out[name] = read_file(e.path().string()).value();
    else if (hidden) *hidden = true;
  }
  return out;
}

int from_environment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text ? std::max(1, std::atoi(text)) : fallback;
}

/// A small file system of our own; empty where that is not allowed.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const std::string& size) : path_(path) {
    fs::create_directories(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    if (!mounted_) WARN("SKIPPED: no right to mount a small file system");
  }
  ~SmallDisk() { if (mounted_) ::umount2(path_.c_str(), MNT_DETACH); }
  bool ok() const { return mounted_; }
  bool read_only() const { return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0; }
 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("killed at any moment: files are whole, of the old result or the new one, and the next run leaves no trace") {
  TempFolder t;
  // One name, two programs: each run replaces what the other left.
  const std::string specs[] = {t.write("a.json", spec("one", 64)), t.write("b.json", spec("one", 96))};
  std::map<std::string, std::string> whole[2];
  double length = 0;
  for (int i : {0, 1}) {
    const Run r = opt({specs[i], "-o", t.path + "/whole" + std::to_string(i), kTexts});
    REQUIRE(r.exit == 0);
    length = std::max(length, r.seconds);
    whole[i] = contents(t.path + "/whole" + std::to_string(i));
  }
  const std::string out = t.path + "/out";
  fs::create_directories(out);
  std::ofstream(out + "/mine.txt") << "not yours";
  Rng rng(2024);
  const int kills = from_environment("MIRAGE_KILLS", 10);
  int killed = 0;
  for (int k = 0; k < kills || (killed == 0 && k < 10 * kills); k++) {
    const pid_t pid = start({specs[k % 2], "-o", out, kTexts}, t.path + "/err");
    // a machine that stood still meanwhile is not waited for
    std::this_thread::sleep_for(std::chrono::duration<double>(1.1 * std::min(length, 10.0) * rng.uniform()));
    kill(pid, SIGKILL);
    const bool ended_before = finish(pid) != 128 + SIGKILL;
    killed += !ended_before;
    if (ended_before) length *= 0.8;   // the runs that were timed stood still, or waited for the disk
    for (const auto& [file, text] : contents(out)) {
      INFO(file << " after kill " << k);
      if (file == "mine.txt") CHECK(text == "not yours");
      else CHECK(((whole[0].count(file) && text == whole[0][file]) || (whole[1].count(file) && text == whole[1][file])));
    }
  }
  CHECK(killed > 0);
  REQUIRE(opt({specs[1], "-o", out, kTexts}).exit == 0);
  bool hidden = false;
  auto all = contents(out, &hidden);
  CHECK(!hidden);   // what the killed ones left in staging
  CHECK(all.erase("mine.txt") == 1);
  CHECK(all == whole[1]);
}

TEST_CASE("disk full: exit 11, and what was there before is still there") {
  TempFolder t;
  const std::string disk = t.path + "/disk";
  const SmallDisk small(disk, "100k");
  if (!small.ok()) return;
  const std::string a = t.write("a.json", spec("one"));
  std::ofstream(disk + "/old.txt") << std::string(1000, 'x');
  const Run r = opt({a, "-o", disk + "/out", kTexts});
  INFO(r.err);
  CHECK(r.exit == 11);
  CHECK(r.err.find("No space left") != std::string::npos);
  bool hidden = false;
  CHECK(contents(disk + "/out", &hidden).empty());
  CHECK(!hidden);
  CHECK(read_file(disk + "/old.txt").value() == std::string(1000, 'x'));
  CHECK(opt({a, "-o", t.path + "/elsewhere", kTexts, "--report", disk + "/out/../full/r.json"}).exit == 11);   // no such folder
}

TEST_CASE("a compiler that finds the disk full is a full disk, not a compiler error") {
  TempFolder t;
  const std::string path =
      "PATH=" + t.script("nvcc", "echo 'fatal: error writing to x.o: No space left on device' >&2; exit 1") + ":/usr/bin:/bin";
  CHECK(opt({t.write("a.json", spec("one")), "-o", t.path + "/out", "--emit=cu,so"}, {path}).exit == 11);
}

TEST_CASE("a folder that cannot be written: exit 11 at once") {
  TempFolder t;
  const std::string disk = t.path + "/disk";
  const SmallDisk small(disk, "1m");
  if (!small.ok() || !small.read_only()) return;
  const Run r = opt({t.write("a.json", spec("one")), "-o", disk, kTexts});
  CHECK(r.exit == 11);
  CHECK(r.err.find("Read-only file system") != std::string::npos);
  CHECK(r.err.find("search:") == std::string::npos);   // before the long work
  CHECK(opt({t.path + "/a.json", "-o", t.path + "/a.json", kTexts}).exit == 11);   // a file of that name
}

TEST_CASE("two processes with one folder: the result is of one of them") {
  TempFolder t;
  const std::string specs[] = {t.write("a.json", spec("one", 64)), t.write("b.json", spec("one", 96))};
  std::map<std::string, std::string> whole[2];
  for (int i : {0, 1}) {
    REQUIRE(opt({specs[i], "-o", t.path + "/whole" + std::to_string(i), kTexts}).exit == 0);
    whole[i] = contents(t.path + "/whole" + std::to_string(i));
  }
  for (int round = 0; round < 5; round++) {
    pid_t pids[2];
    for (int i : {0, 1}) pids[i] = start({specs[i], "-o", t.path + "/out", kTexts}, t.path + "/err" + std::to_string(i));
    for (pid_t p : pids) CHECK(finish(p) == 0);
    bool hidden = false;
    const auto all = contents(t.path + "/out", &hidden);
    CHECK(!hidden);
    CHECK((all == whole[0] || all == whole[1]));
  }
}

TEST_CASE("eight runs at once give the same bytes") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one"));
  std::vector<pid_t> pids;
  for (int i = 0; i < 8; i++)
    pids.push_back(start({a, "-o", t.path + "/out" + std::to_string(i), kTexts}, t.path + "/err" + std::to_string(i)));
  for (pid_t p : pids) CHECK(finish(p) == 0);
  for (int i = 1; i < 8; i++) CHECK(contents(t.path + "/out" + std::to_string(i)) == contents(t.path + "/out0"));
}

TEST_CASE("a compiler that fails: exit 7, its words, and every text") {
  TempFolder t;
  // asked for its version it is in our folder
  const std::string half =
      "[ \"$*\" = --version ] && exit; echo 'one.cu(7): error: no such luck' >&2; echo half > libone.so; exit 2";
  const std::string path = "PATH=" + t.script("nvcc", half) + ":/usr/bin:/bin";
  const Run r = opt({t.write("a.json", spec("one")), "-o", t.path + "/out", "--emit=cu,h,so"}, {path});
  CHECK(r.exit == 7);
  CHECK(r.err.find("no such luck") != std::string::npos);
  const auto all = contents(t.path + "/out");
  CHECK(all.count("one.cu") == 1);
  CHECK(all.count("libone.so") == 0);
}

TEST_CASE("a compiler that hangs is ended with everything it started") {
  TempFolder t;
  const std::string path = "PATH=" + t.script("nvcc", "sleep 1000 & echo $! > '" + t.path + "/child'; wait") + ":/usr/bin:/bin";
  const Run r = opt({t.write("a.json", spec("one")), "-o", t.path + "/out", "--emit=cu,so", "--tool-timeout=1s"}, {path});
  CHECK(r.exit == 7);
  CHECK(r.seconds < 60);
  CHECK(r.err.find("within 1 s") != std::string::npos);
  const int child = std::atoi(read_file(t.path + "/child").value().c_str());
  REQUIRE(child > 1);
  // a zombie until init reaps it
  for (int i = 0; i < 100 && kill(child, 0) == 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::ifstream state("/proc/" + std::to_string(child) + "/stat");
  std::string pid, name, letter;
  CHECK((!(state >> pid >> name >> letter) || letter == "Z"));
}

TEST_CASE("a compiler that says it worked and left nothing: exit 7") {
  TempFolder t;
  // asked for its version it is in our folder
  for (const char* lie : {"exit 0", "[ \"$*\" = --version ] || : > libone.so"}) {
    const std::string path = "PATH=" + t.script("nvcc", lie) + ":/usr/bin:/bin";
    const Run r = opt({t.write("a.json", spec("one")), "-o", t.path + "/out", "--emit=cu,so"}, {path});
    INFO(lie << "\n" << r.err);
    CHECK(r.exit == 7);
    CHECK(contents(t.path + "/out").count("libone.so") == 0);
  }
}

TEST_CASE("a library that fails its check is not left behind") {
  // A driver and a compiler that are neither: the device is claimed, what the compiler leaves as check program says no.
  TempFolder t;
  t.write("cuda.cc", R"(extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int) { *d = 0; return 0; }
int cuDeviceGetAttribute(int* v, int what, int) { *v = what == 75 ? 9 : what == 16 ? 132 : 0; return 0; }
int cuDeviceGetName(char* name, int, int) { name[0] = 'x'; name[1] = 0; return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
})");
  if (std::system(("g++ -shared -fPIC -o " + t.path + "/libcuda.so.1 " + t.path + "/cuda.cc").c_str()) != 0) {
    WARN("skipped: there is no C++ compiler");
    return;
  }
  const std::string compiler = R"x(out=
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift;; -o*) out=${1#-o};; esac; shift; done
case $out in *.so) cp LIB "$out"; exit;; esac
printf '#!/bin/sh\necho it is wrong; exit %s\n' "$(cat CODE)" >"$out"
chmod +x "$out")x";
  std::string script = compiler;
  script.replace(script.find("CODE"), 4, t.path + "/code");
  script.replace(script.find("LIB"), 3, t.path + "/libcuda.so.1");   // something that looks like a library
  const std::string path = "PATH=" + t.script("nvcc", script) + ":/usr/bin:/bin";
  for (const char* code : {"8", "0"}) {
    t.write("code", code);
    const Run r = opt({t.write("a.json", spec("one")), "-o", t.path + "/out" + code, "--emit=cu,h,so", "--measure", "--gate=none"},
                      {path, "LD_LIBRARY_PATH=" + t.path});
    INFO(code << "\n" << r.err);
    CHECK(r.exit == std::atoi(code));
    if (*code == '8') {
      CHECK(r.err.find("it is wrong") != std::string::npos);
      CHECK((!fs::exists(t.path + "/out8") || contents(t.path + "/out8").empty()));
    } else {
      CHECK(contents(t.path + "/out0").count("libone.so") == 1);
    }
  }
}

TEST_CASE("a compiler does not outlive mirage-opt") {
  TempFolder t;
  const std::string path =
      "PATH=" + t.script("nvcc", "echo $$ > '" + t.path + "/pid.new'; mv '" + t.path + "/pid.new' '" + t.path + "/pid'; exec sleep 1000") +
      ":/usr/bin:/bin";
  const pid_t pid = start({t.write("a.json", spec("one")), "-o", t.path + "/out", "--emit=cu,so"}, t.path + "/err", {path});
  for (int i = 0; i < 3000 && !fs::exists(t.path + "/pid"); i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(fs::exists(t.path + "/pid"));
  const int child = std::atoi(read_file(t.path + "/pid").value().c_str());
  kill(pid, SIGKILL);
  finish(pid);
  bool gone = false;
  for (int i = 0; i < 500 && !gone; i++) {
    std::ifstream state("/proc/" + std::to_string(child) + "/stat");
    std::string number, name, letter;
    gone = !(state >> number >> name >> letter) || letter == "Z";
    if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(gone);
}

TEST_CASE("names and texts of a spec reach no shell, no other folder and no code") {
  TempFolder t;
  fs::create_directories(t.path + "/in/side");
  for (const char* name :
       {"../../evil", "/tmp/evil", "a/b", "$(touch evil)", "`touch evil`", "a;touch evil", "-o", "..", "", "a b", "a\\nb"}) {
    const Run r = opt({t.write("a.json", spec(name)), "-o", t.path + "/in/side/out", kTexts});
    INFO(name << ": " << r.err);
    CHECK(r.exit == 3);
    CHECK(contents(t.path + "/in/side/out").empty());
  }
  for (const auto& e : fs::recursive_directory_iterator(t.path)) CHECK(e.path().string().find("evil") == std::string::npos);
  CHECK(!fs::exists("/tmp/evil"));
  // The file's name where the spec has none.
  std::string unnamed = spec("x");
  unnamed.replace(unnamed.find(R"("name": "x", )"), 13, "");
  CHECK(opt({t.write("$(touch evil).json", unnamed), "-o", t.path + "/out", kTexts}).exit == 0);
  for (const auto& [file, bytes] : contents(t.path + "/out")) CHECK(file.find_first_of("$() ;`'\"") == std::string::npos);
  fs::remove(t.path + "/$(touch evil).json");
  // Words that end comments and strings.
  std::string text = spec("calm");
  text.insert(1, R"("description": "*/ #error evil \\\n\" \"\"\" <script>alert(1)</script> \u0000 ?\u003f/\n", )");
  const Run r = opt({t.write("c.json", text), "-o", t.path + "/calm", "--emit=cu,h,python,harness,makefile,cmake,html,report"});
  INFO(r.err);
  REQUIRE((r.exit == 0 || r.exit == 3));
  for (const auto& [file, bytes] : contents(t.path + "/calm"))
    if (file != "report.json") CHECK((bytes.find("#error evil") == std::string::npos && bytes.find("<script>alert") == std::string::npos));
  // Folders with any name.
  const std::string odd = t.path + "/$(touch evil) '\" ; &";
  CHECK(opt({t.write("d.json", spec("fine")), "-o", odd, kTexts}).exit == 0);
  CHECK(fs::exists(odd + "/fine.cu"));
  CHECK(opt({t.path + "/d.json", "-o", odd + "2", kTexts, "-MD"}).exit == 2);   // make would read the semicolon as the start of a command
  CHECK(!fs::exists(odd + "2"));
  CHECK(!fs::exists(t.path + "/evil"));
}

TEST_CASE("huge and deep specs are refused or done, never died of") {
  TempFolder t;
  auto refused = [&](const std::string& text) {
    const Run r = opt({"--check", t.write("a.json", text)});
    INFO(text.substr(0, 60) << "... " << r.err.substr(0, 300));
    CHECK(r.exit == 3);
    CHECK(r.seconds < 30);
    CHECK(r.err.size() < 20000);
  };
  refused(std::string(200000, '['));
  refused(std::string(200000, '{'));
  refused("{\"name\": \"" + std::string(1 << 20, 'a') + "\"}");
  refused("{\"x-pad\": \"" + std::string(17 << 20, 'a') + "\"}");
  refused(std::string(1 << 20, '\0'));
  refused("kernel k {\n  %0 = input 0 : f32[4]\n  %1 = " + std::string(100000, '('));
  refused(R"({"name": "n", "inputs": {"x": {"shape": [1e999], "dtype": "float32"}}, "outputs": {}, "nodes": []})");
  refused(R"({"name": "n", "inputs": {"x": {"shape": [99999999999999999999], "dtype": "float32"}}, "outputs": {}, "nodes": []})");
  auto chain = [](int n) {
    std::string s = R"({"name": "chain", "inputs": {"v0": {"shape": [4, 8], "dtype": "float32"}}, "outputs": {"v)" + std::to_string(n) +
                    R"(": {"shape": [4, 8], "dtype": "float32"}}, "nodes": [)";
    for (int i = 0; i < n; i++)
      s += std::string(i ? "," : "") + R"({"op": ")" + (i % 2 ? "exp" : "neg") + R"(", "inputs": ["v)" + std::to_string(i) +
           R"("], "output": "v)" + std::to_string(i + 1) + "\"}";
    return s + "]}";
  };
  refused(chain(5000));
  const Run long_chain = opt({t.write("chain.json", chain(2000)), "-o", t.path + "/out", "--emit=cu", "--states=1000"});
  INFO(long_chain.err.substr(0, 2000));
  CHECK(long_chain.exit == 0);
  CHECK(long_chain.seconds < 300);
}
