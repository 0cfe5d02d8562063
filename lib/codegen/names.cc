// Name mangling for generated text. Names of tensors are judged by ir/reserved_names.h, which the spec reader warns from; names of
// libraries and Python modules by the table here.
#include "codegen/names.h"
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include "mirage/codegen/module.h"
#include "mirage/ir/reserved_names.h"

namespace mirage {
namespace {

// Libraries that lib<name>.so must not stand in for, and Python modules that <name>.py, which imports torch, must not hide.
constexpr std::string_view kTakenModules[] = {"False",
                                              "None",
                                              "True",
                                              "abc",
                                              "aifc",
                                              "and",
                                              "antigravity",
                                              "argparse",
                                              "array",
                                              "as",
                                              "assert",
                                              "ast",
                                              "async",
                                              "asynchat",
                                              "asyncio",
                                              "asyncore",
                                              "atexit",
                                              "atomic",
                                              "audioop",
                                              "await",
                                              "base64",
                                              "bdb",
                                              "binascii",
                                              "bisect",
                                              "break",
                                              "builtins",
                                              "bz2",
                                              "c",
                                              "c10",
                                              "c10_cuda",
                                              "cProfile",
                                              "calendar",
                                              "cgi",
                                              "cgitb",
                                              "chunk",
                                              "class",
                                              "cmath",
                                              "cmd",
                                              "code",
                                              "codecs",
                                              "codeop",
                                              "collections",
                                              "colorsys",
                                              "compileall",
                                              "concurrent",
                                              "configparser",
                                              "contextlib",
                                              "contextvars",
                                              "continue",
                                              "copy",
                                              "copyreg",
                                              "crypt",
                                              "crypto",
                                              "csv",
                                              "ctypes",
                                              "cublas",
                                              "cublasLt",
                                              "cuda",
                                              "cudadevrt",
                                              "cudart",
                                              "cudnn",
                                              "cufft",
                                              "cupy",
                                              "curand",
                                              "curses",
                                              "cusolver",
                                              "cusparse",
                                              "dataclasses",
                                              "datetime",
                                              "dbm",
                                              "decimal",
                                              "def",
                                              "del",
                                              "difflib",
                                              "dis",
                                              "distutils",
                                              "dl",
                                              "doctest",
                                              "elif",
                                              "else",
                                              "email",
                                              "encodings",
                                              "ensurepip",
                                              "enum",
                                              "errno",
                                              "except",
                                              "faulthandler",
                                              "fcntl",
                                              "filecmp",
                                              "fileinput",
                                              "filelock",
                                              "finally",
                                              "fnmatch",
                                              "for",
                                              "fractions",
                                              "from",
                                              "fsspec",
                                              "ftplib",
                                              "functools",
                                              "gc",
                                              "gcc",
                                              "gcc_s",
                                              "genericpath",
                                              "getopt",
                                              "getpass",
                                              "gettext",
                                              "glob",
                                              "global",
                                              "gomp",
                                              "graphlib",
                                              "grp",
                                              "gzip",
                                              "hashlib",
                                              "heapq",
                                              "hmac",
                                              "html",
                                              "http",
                                              "idlelib",
                                              "if",
                                              "imaplib",
                                              "imghdr",
                                              "imp",
                                              "import",
                                              "importlib",
                                              "in",
                                              "inspect",
                                              "io",
                                              "ipaddress",
                                              "is",
                                              "itertools",
                                              "jinja2",
                                              "json",
                                              "keyword",
                                              "lambda",
                                              "lib2to3",
                                              "linecache",
                                              "locale",
                                              "logging",
                                              "lzma",
                                              "m",
                                              "mailbox",
                                              "mailcap",
                                              "marshal",
                                              "math",
                                              "mimetypes",
                                              "mirage",
                                              "mirage_opt",
                                              "mmap",
                                              "modulefinder",
                                              "msilib",
                                              "msvcrt",
                                              "multiprocessing",
                                              "nccl",
                                              "netrc",
                                              "networkx",
                                              "nis",
                                              "nntplib",
                                              "nonlocal",
                                              "not",
                                              "nsl",
                                              "nt",
                                              "ntpath",
                                              "nturl2path",
                                              "numbers",
                                              "numpy",
                                              "nvJitLink",
                                              "nvml",
                                              "nvrtc",
                                              "opcode",
                                              "operator",
                                              "optparse",
                                              "or",
                                              "os",
                                              "ossaudiodev",
                                              "packaging",
                                              "pass",
                                              "pathlib",
                                              "pdb",
                                              "pickle",
                                              "pickletools",
                                              "pip",
                                              "pipes",
                                              "pkg_resources",
                                              "pkgutil",
                                              "platform",
                                              "plistlib",
                                              "poplib",
                                              "posix",
                                              "posixpath",
                                              "pprint",
                                              "profile",
                                              "pstats",
                                              "pthread",
                                              "pty",
                                              "pwd",
                                              "py_compile",
                                              "pyclbr",
                                              "pydoc",
                                              "pydoc_data",
                                              "pyexpat",
                                              "queue",
                                              "quopri",
                                              "raise",
                                              "random",
                                              "re",
                                              "readline",
                                              "reprlib",
                                              "resolv",
                                              "resource",
                                              "return",
                                              "rlcompleter",
                                              "rt",
                                              "runpy",
                                              "sched",
                                              "secrets",
                                              "select",
                                              "selectors",
                                              "setuptools",
                                              "shelve",
                                              "shlex",
                                              "shutil",
                                              "signal",
                                              "site",
                                              "six",
                                              "smtpd",
                                              "smtplib",
                                              "sndhdr",
                                              "socket",
                                              "socketserver",
                                              "spwd",
                                              "sqlite3",
                                              "sre_compile",
                                              "sre_constants",
                                              "sre_parse",
                                              "ssl",
                                              "stat",
                                              "statistics",
                                              "stdc",
                                              "string",
                                              "stringprep",
                                              "struct",
                                              "subprocess",
                                              "sunau",
                                              "sympy",
                                              "symtable",
                                              "sys",
                                              "sysconfig",
                                              "syslog",
                                              "tabnanny",
                                              "tarfile",
                                              "telnetlib",
                                              "tempfile",
                                              "termios",
                                              "textwrap",
                                              "this",
                                              "threading",
                                              "time",
                                              "timeit",
                                              "tkinter",
                                              "token",
                                              "tokenize",
                                              "tomllib",
                                              "torch",
                                              "torch_cpu",
                                              "torch_cuda",
                                              "torch_python",
                                              "trace",
                                              "traceback",
                                              "tracemalloc",
                                              "triton",
                                              "try",
                                              "tty",
                                              "turtle",
                                              "turtledemo",
                                              "tvm_ffi",
                                              "types",
                                              "typing",
                                              "typing_extensions",
                                              "unicodedata",
                                              "unittest",
                                              "urllib",
                                              "util",
                                              "uu",
                                              "uuid",
                                              "venv",
                                              "warnings",
                                              "wave",
                                              "weakref",
                                              "webbrowser",
                                              "while",
                                              "winreg",
                                              "winsound",
                                              "with",
                                              "wsgiref",
                                              "xdrlib",
                                              "xml",
                                              "xmlrpc",
                                              "yaml",
                                              "yield",
                                              "z",
                                              "zipapp",
                                              "zipfile",
                                              "zipimport",
                                              "zlib",
                                              "zoneinfo"};

template <size_t N> bool contains(const std::string_view (&table)[N], std::string_view name) {
  return std::binary_search(std::begin(table), std::end(table), name);
}

}  // namespace

bool is_reserved_module_name(std::string_view name) {
  return name.starts_with('_') || contains(kTakenModules, name);
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

std::string mangle_module_name(std::string_view name) {
  std::string out;
  for (char c : name) out += is_word(c) ? c : '_';
  if (out.empty()) out = "program";
  if (out[0] == '_' || (out[0] >= '0' && out[0] <= '9')) out = "m" + out;
  while (is_reserved_module_name(out)) out += '_';
  return out;
}

std::string module_name(std::string_view program) { return mangle_module_name(program); }

std::vector<std::string> mangle_tensor_names(const std::vector<std::string>& names, const std::string& module) {
  const auto owned_start = [](const std::string& n) { return n.starts_with('_') || n == "mirage" || n.starts_with("mirage_"); };
  const auto taken = [&](const std::string& n) { return is_reserved_name(n) || owned_start(n) || n == module + "_dims"; };
  std::set<std::string> used;
  std::vector<std::string> out(names.size());
  for (size_t i = 0; i < names.size(); i++)   // free names first, so that a changed name never takes one that the spec itself uses
    if (!names[i].empty() && !taken(names[i]) && used.insert(names[i]).second) out[i] = names[i];
  for (size_t i = 0; i < names.size(); i++) {
    if (!out[i].empty()) continue;
    std::string base;   // without doubled and trailing underscores: a suffix must not make new ones
    for (char c : names[i])
      if (c != '_' || base.empty() || base.back() != '_') base += c;
    while (!base.empty() && base.back() == '_') base.pop_back();
    if (base.empty()) base = "t";
    while (owned_start(base)) base = "t" + base;
    std::string candidate = base;
    for (int k = 1; taken(candidate) || used.count(candidate); k++) candidate = base + (k == 1 ? "_" : "_" + std::to_string(k));
    used.insert(candidate);
    out[i] = candidate;
  }
  return out;
}

std::string c_literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') { out += '\\'; out += c; }
    else if (c == '\n') out += "\\n";
    // octal ends after three digits; '?' could begin a trigraph
    else if (u < 0x20 || u >= 0x7f || c == '?') { char b[8]; std::snprintf(b, sizeof b, "\\%03o", u); out += b; }
    else out += c;
  }
  return out + "\"";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') { out += '\\'; out += c; }
    else if (u < 0x20) { char b[8]; std::snprintf(b, sizeof b, "\\u%04x", u); out += b; }
    else out += c;
  }
  return out + "\"";
}

}  // namespace mirage
