// Kernel mutants: see the header.
#include "driver/gate/mutations.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "mirage/support/hash.h"

namespace mirage {

namespace {

struct Edit { std::string what; size_t at, length; std::string by; };

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Statements that order threads or copies; each is dropped. (registers_grow, wgmma_pin, prefetches and the launch of the next kernel say
/// nothing about results.)
constexpr const char* kOrdering[] = {"barrier",          "warp_barrier",
                                     "named_barrier",    "named_barrier_arrive",
                                     "cluster_wait",     "cluster_arrive_relaxed",
                                     "mbarrier_wait",    "mbarrier_wait_cluster",
                                     "mbarrier_arrive",  "mbarrier_expect",
                                     "mbarrier_publish", "fence_async_proxy",
                                     "copy_commit",      "copy_wait",
                                     "wgmma_fence",      "wgmma_commit",
                                     "wgmma_wait"};
/// Statements that do the work of a pipeline.
constexpr const char* kWork[] = {"mbarrier_init", "copy_box", "copy_async", "store_async", "slot_post", "slots_take", "clear"};

/// Lines of kernels that only set the order of work, the names of unused things, or what the compiler checks by itself, and sizes of
/// register arrays (a larger one is no mistake).
bool is_exempt(const std::string& line) {
  for (const char* word : {"turn = ", "rotate = ", "__launch_bounds__", "using T", "#", "static_assert", "constexpr int kThreads",
                           "mo::real x", "mo::real y", "mo::real r"})
    if (line.find(word) != std::string::npos) return true;
  return line.find("(void)") != std::string::npos && line.find("tile<") == std::string::npos;
}

/// The end of the call whose opening bracket is at or behind `at`, or npos.
size_t call_end(const std::string& line, size_t at) {
  int depth = 0;
  for (size_t i = at; i < line.size(); i++) {
    if (line[i] == '(') depth++;
    if (line[i] == ')' && --depth == 0) return i + 1;
  }
  return std::string::npos;
}

/// Calls of `name` as statements on the line: begin (of the object too) and length.
std::vector<std::pair<size_t, size_t>> calls_of(const std::string& line, const std::string& name, size_t first) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t at = line.find(name, first); at != std::string::npos; at = line.find(name, at + 1)) {
    if (at > 0 && is_word(line[at - 1])) continue;
    size_t open = at + name.size();
    if (open < line.size() && line[open] == '<') open = line.find('>', open) == std::string::npos ? line.size() : line.find('>', open) + 1;
    if (open >= line.size() || line[open] != '(') continue;
    const size_t end = call_end(line, open);
    if (end == std::string::npos || end >= line.size() || line[end] != ';') continue;
    size_t begin = at;
    while (begin > first && (is_word(line[begin - 1]) || line[begin - 1] == '.' || line[begin - 1] == ':' || line[begin - 1] == '[' ||
                             line[begin - 1] == ']'))
      begin--;
    out.emplace_back(begin, end - begin);
  }
  return out;
}

void number_edits(const std::string& line, size_t first, size_t from, std::vector<Edit>& out) {
  for (size_t i = first; i < line.size(); i++) {
    if (!is_digit(line[i]) || (i > 0 && (is_word(line[i - 1]) || line[i - 1] == '.'))) continue;
    size_t e = i;
    while (e < line.size() && is_digit(line[e])) e++;
    if (e < line.size() && (is_word(line[e]) || line[e] == '.')) { i = e; continue; }
    const long long n = std::atoll(line.substr(i, e - i).c_str());
    const bool in_template =
        line.rfind('<', i) != std::string::npos && line.find('>', i) != std::string::npos && line.find('(', line.rfind('<', i)) > i;
    const auto behind = [&](const char* w) { const size_t l = std::string(w).size(); return i >= l && line.compare(i - l, l, w) == 0; };
    const bool scales = n >= 1 && (behind(" * ") || behind(" / ") || behind(" % ") || behind(" >> ") || behind(" << ") || behind(" & "));
    if ((n >= 8 || scales) && !in_template) {
      const bool offset = behind("smem + ");
      out.push_back({offset ? "offset in shared memory off by one element" : "number off by one", from + i, e - i,
                     std::to_string(offset ? n + 16 : n + 1)});
    }
    i = e;
  }
}

/// All edits of one line that begins at `from` of the text, at or behind its place `first`.
void edits_of(const std::string& whole, size_t first, size_t from, std::vector<Edit>& out) {
  const std::string line = whole.substr(0, whole.find("//"));
  if (line.find_first_not_of(' ') == std::string::npos || is_exempt(line)) return;
  std::set<size_t> taken;   // a call and what is inside of it is one mistake
  const auto drop = [&](const char* name, const char* what) {
    for (auto [at, length] : calls_of(line, name, first)) {
      if (!taken.insert(at).second) continue;
      out.push_back({fmt::format("{} {}", what, name), from + at, length, "(void)0"});
      if (std::string(name) != "copy_wait" && std::string(name) != "wgmma_wait") continue;
      const size_t open = line.find('<', at);
      const int groups = std::atoi(line.c_str() + open + 1);
      if (is_digit(line[open + 1]))
        out.push_back({"wait for one group less", from + open + 1, line.find('>', open) - open - 1, std::to_string(groups + 1)});
    }
  };
  for (const char* name : kOrdering) drop(name, "dropped");
  if (!taken.empty()) return;
  for (const char* name : kWork) drop(name, "left out");
  for (const char* what : {" < ", "slot", "begin", "block_x"}) {
    const size_t at = line.find(what, first);
    if (at == std::string::npos) continue;
    const std::string w = what;
    if (w == "slot" && line.find("const T") != std::string::npos) out.push_back({"swapped buffer", from + line.rfind("slot"), 4, "0"});
    if (w == "begin" && line.find("auto") != std::string::npos) out.push_back({"starts one later", from + at, 5, "begin + 1"});
    if (w == "block_x" && line.find("tile") != std::string::npos) out.push_back({"wrong block", from + at, 7, "(block_x + 1)"});
  }
  number_edits(line, first, from, out);
  static const std::tuple<const char*, const char*, const char*> swaps[] = {
      {"wrong function", "mul(", "add("}, {"wrong function", "div(", "mul("}, {"wrong function", "sub(", "add("},
      {"wrong function", "Sum", "Max"}, {"wrong function", "Max", "Sum"}, {"wrong function", "max(", "min("},
      {"transposed operand", ".transposed()", ""}, {"swizzle left out", ", true>", ", false>"}, {"swizzle put in", ", false>", ", true>"},
      {"swizzle left out", " ^ (", " + 0 * ("},
      {"wrong rank of the cluster", "cluster_rank()", "(cluster_rank() ^ 1)"}, {"wrong parity", "& 1)", "& 1 ^ 1)"},
      {"swapped buffer", "stage(", "1 - stage("}, {"swapped buffer", " % kStages", " / kStages"},
      {"wrong coordinate", "copy_box(", "copy_box(128 + "}, {"predicate off by one", " < ", " <= "},
      {"predicate off by one", " <= ", " < "}, {"predicate off by one", " >= ", " > "}, {"wrong lane", " == 0", " == 1"},
      {"operator", " += ", " = "}, {"operator", " % ", " / "}, {"operator", " && ", " || "}, {"operator", " - ", " + "}};
  for (const auto& [what, of, by] : swaps)
    if (const size_t at = line.find(of, first); at != std::string::npos && !(is_word(of[0]) && at > 0 && is_word(line[at - 1])))
      out.push_back({what, from + at, std::string(of).size(), by});
}

/// A function or type of the device library: its text's range and its name.
struct Item { size_t begin, end; std::string name; };

size_t skip_quiet(const std::string& s, size_t at) {   // comments and strings
  if (s.compare(at, 2, "//") == 0) { const size_t e = s.find('\n', at); return e == std::string::npos ? s.size() : e; }
  if (s[at] != '"') return at;
  size_t i = at + 1;
  while (i < s.size() && s[i] != '"') i += s[i] == '\\' ? 2 : 1;
  return std::min(i + 1, s.size());
}

std::string name_of(const std::string& head) {
  for (const char* word : {"struct ", "class "})
    if (const size_t at = head.find(word); at != std::string::npos && head.find('(') == std::string::npos) {
      size_t b = at + std::string(word).size(), e = b;
      while (e < head.size() && is_word(head[e])) e++;
      if (e > b && head.compare(b, 8, "alignas(") != 0) return head.substr(b, e - b);
    }
  const size_t from = head.rfind("MO_FN"), open = head.find('(', from == std::string::npos ? 0 : from);
  if (open == std::string::npos) return "";
  size_t b = open;
  while (b > 0 && is_word(head[b - 1])) b--;
  return head.substr(b, open - b);
}

std::vector<Item> items_of(const std::string& s) {
  std::vector<Item> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < s.size();) {
    if (const size_t e = skip_quiet(s, i); e != i) {
      i = e;
      if (depth <= 1 && s.compare(begin, std::string::npos, "") == 0) begin = i;
      continue;
    }
    if (s[i] == '#' && (i == 0 || s[i - 1] == '\n')) {
      while (i < s.size() && !(s[i] == '\n' && s[i - 1] != '\\')) i++;
      if (depth <= 1) begin = i;
      continue;
    }
    if (s[i] == '{' && ++depth == 1) begin = i + 1;   // a namespace
    if (s[i] == '}' && --depth == 1) { out.push_back({begin, i + 1, name_of(s.substr(begin, s.find('{', begin) - begin))}); begin = i + 1; }
    if (s[i] == ';' && depth <= 1) begin = i + 1;
    i++;
  }
  return out;
}

void add_words(const std::string& text, std::set<std::string>& to) {
  for (size_t i = 0; i < text.size();) {
    if (const size_t e = skip_quiet(text, i); e != i) { i = e; continue; }
    if (!is_word(text[i])) { i++; continue; }
    size_t e = i;
    while (e < text.size() && is_word(text[e])) e++;
    to.insert(text.substr(i, e - i));
    i = e;
  }
}

/// Lines from `begin` to `end` of the text. in_library: only bodies of functions.
void collect(const std::string& source, size_t begin, size_t end, KernelMutant like, std::vector<KernelMutant>& out) {
  begin = source.find_first_not_of(" \n", begin);
  int64_t number = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  std::map<std::pair<std::string, int64_t>, int> seen;
  for (size_t at = begin; at < end; number++) {
    const size_t stop = std::min(source.find('\n', at), end);
    const std::string line = source.substr(at, stop - at);
    size_t first = 0;
    if (const size_t fn = line.find("MO_FN"); fn != std::string::npos)
      first = line.find('{', fn) == std::string::npos ? line.size() : line.find('{', fn) + 1;
    std::vector<Edit> edits;
    edits_of(line, first, at, edits);
    for (const Edit& e : edits) {
      KernelMutant m = like;
      m.what = e.what, m.line = line, m.number = number, m.nth = seen[{e.what, number}]++, m.at = e.at, m.length = e.length, m.by = e.by;
      out.push_back(std::move(m));
    }
    at = stop + 1;
  }
}

}  // namespace

std::vector<KernelMutant> all_mutants(const std::string& source, size_t kernel) {
  std::vector<KernelMutant> out;
  KernelMutant like;
  like.kernel = kernel;
  collect(source, 0, source.size(), like, out);
  return out;
}

std::vector<KernelMutant> library_mutants(const std::string& library, const std::vector<std::string>& kernels) {
  const std::vector<Item> items = items_of(library);
  std::set<std::string> words;
  for (const std::string& k : kernels) add_words(k, words);
  std::vector<bool> reached(items.size());
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < items.size(); i++) {
      if (reached[i] || items[i].name.empty() || !words.count(items[i].name)) continue;
      reached[i] = again = true;
      add_words(library.substr(items[i].begin, items[i].end - items[i].begin), words);
    }
  }
  std::vector<KernelMutant> out;
  KernelMutant like;
  like.in_library = true;
  for (size_t i = 0; i < items.size(); i++) {
    // PTX is the twins' business
    if (!reached[i] || library.substr(items[i].begin, items[i].end - items[i].begin).find("asm") != std::string::npos) continue;
    collect(library, items[i].begin, items[i].end, like, out);
  }
  return out;
}

std::vector<KernelMutant> choose_mutants(std::vector<KernelMutant> all, size_t count, uint64_t seed) {
  std::map<std::string, std::vector<KernelMutant>> kinds;
  for (KernelMutant& m : all) kinds[m.what].push_back(std::move(m));
  Rng rng(seed);
  std::vector<KernelMutant> out;
  while (out.size() < count && !kinds.empty())
    for (auto it = kinds.begin(); it != kinds.end() && out.size() < count;) {
      const size_t i = rng.below(it->second.size());
      out.push_back(std::move(it->second[i]));
      it->second.erase(it->second.begin() + static_cast<std::ptrdiff_t>(i));
      it = it->second.empty() ? kinds.erase(it) : std::next(it);
    }
  return out;
}

bool only_drops_order(const KernelMutant& m) { return m.what.starts_with("dropped ") || m.what == "wait for one group less"; }

}  // namespace mirage
