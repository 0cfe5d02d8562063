// Prints our own bugs with everything needed to reproduce them, then aborts. Used by MIRAGE_ASSERT in every directory.
#include "mirage/support/assert.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace mirage {

namespace {
std::mutex context_mutex;
std::string& context() {
  static std::string text;
  return text;
}
}  // namespace

void set_bug_context(std::string text) {
  std::lock_guard lock(context_mutex);
  context() = std::move(text);
}

AssertFailure::AssertFailure(const char* file, int line, const char* condition) {
  // Only the part of the path inside the repository: messages are compared in tests and pasted in reports.
  std::string path = file;
  for (const char* root : {"/lib/", "/include/", "/cmd/", "/test/"})
    if (auto at = path.rfind(root); at != std::string::npos) {
      path = path.substr(at + 1);
      break;
    }
  text_ << "mirage-opt: bug: " << path << ":" << line << ": '" << condition << "' does not hold: ";
}

AssertFailure::~AssertFailure() {
  std::string reproduce;
  {
    std::lock_guard lock(context_mutex);
    reproduce = context();
  }
  std::fprintf(stderr, "%s\n", text_.str().c_str());
  if (!reproduce.empty()) std::fprintf(stderr, "reproduce with: %s\n", reproduce.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace mirage
