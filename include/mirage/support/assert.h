// MIRAGE_ASSERT(cond) << "why": for our own bugs only. Prints place, condition, text and the bug-report context (command line, seed), then
// aborts with exit code 1's signal path: cmd/ turns SIGABRT into exit code 1. Always on; MIRAGE_DCHECK is on in checked builds only.
#pragma once
#include <sstream>
#include <string>

namespace mirage {

/// What every abort prints so that the bug can be reproduced: set once by cmd/ and by tests (command line, seed).
void set_bug_context(std::string);

class AssertFailure {
 public:
  AssertFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~AssertFailure();
  template <class T> AssertFailure& operator<<(const T& x) { text_ << x; return *this; }
 private:
  std::ostringstream text_;
};

}  // namespace mirage

#define MIRAGE_ASSERT(cond) if (cond) [[likely]] {} else ::mirage::AssertFailure(__FILE__, __LINE__, #cond)
#ifdef MIRAGE_CHECKED
#define MIRAGE_DCHECK(cond) MIRAGE_ASSERT(cond)
#else
#define MIRAGE_DCHECK(cond) if (true) {} else ::mirage::AssertFailure(__FILE__, __LINE__, #cond)
#endif
