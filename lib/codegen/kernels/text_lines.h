// Lines of a kernel's text with their indentation: what every emitter that is a class writes by.
#pragma once
#include <string>

#include <fmt/format.h>

namespace mirage {

class TextLines {
 protected:
  template <class... T>
  void line(fmt::format_string<T...> f, T&&... args) {
    out_ += indent_ + fmt::format(f, std::forward<T>(args)...) + "\n";
  }
  template <class... T> void open(fmt::format_string<T...> f, T&&... args) { line(f, std::forward<T>(args)...); indent_ += "  "; }
  void close(const char* text = "}") { indent_.resize(indent_.size() - 2); line("{}", text); }

  std::string out_, indent_ = "  ";
};

}  // namespace mirage
