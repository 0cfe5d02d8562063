// See foreign.h.
#include "mirage/support/foreign.h"

#include <algorithm>

#include <fmt/format.h>

namespace mirage {

namespace {

/// Of text the part before `at`, or behind it, that holds whole characters only.
size_t at_character(const std::string& text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) at--;
  return std::min(at, text.size());
}

std::string without_middle(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  const size_t head = at_character(text, most * 2 / 3), tail = at_character(text, text.size() - most / 3 + 3);
  return text.substr(0, head) + "..." + text.substr(tail);
}

}  // namespace

Utf8 utf8_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned c = byte(0);
  if (c < 0x80) return {1, c};
  const size_t n = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
  char32_t code = c & (n == 2 ? 0x1Fu : n == 3 ? 0x0Fu : 0x07u);
  for (size_t i = 1; i < n; i++) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000),
             is_no_character = (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF;
  return n == 0 || is_overlong || is_no_character ? Utf8{} : Utf8{n, code};
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

std::string shown(std::string_view foreign, std::string_view indent) {
  std::string out;
  for (size_t i = 0; i < foreign.size();) {
    const Utf8 u = utf8_at(foreign, i);
    if (u.bytes == 0) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(foreign[i]));
    else if (u.code == '\n') out += indent.empty() ? "\\n" : indent;
    else if (u.code == '\t') out += indent.empty() ? "\\t" : " ";
    else if (u.code == '\r' && !indent.empty()) out += foreign.substr(i + 1).starts_with('\n') ? "" : "\\r";
    else if (u.code == '\r') out += "\\r";
    else if (!is_control(u.code)) out += foreign.substr(i, u.bytes);
    else
      out += u.code < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(u.code))
                            : fmt::format("\\u{:04x}", static_cast<unsigned>(u.code));
    i += std::max<size_t>(1, u.bytes);
  }
  return out;
}

std::string shortened(const std::string& text, size_t most, size_t longest_word) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    out += without_middle(text.substr(at, end - at), longest_word);
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return without_middle(out, most);
}

}  // namespace mirage
