// Text that others wrote (names in specs, names of files, what compilers print), made fit for a terminal and for a line of a log. render()
// and the log apply it to all that they print.
#pragma once
#include <string>
#include <string_view>

namespace mirage {

/// Control characters, invalid UTF-8 and characters that change the order of others are shown as \n, \x1b or \u202e. `indent`: what a line
/// break becomes instead, if not empty (a line break and spaces, say).
std::string shown(std::string_view foreign, std::string_view indent = "");

/// At most about `most` bytes: words longer than `longest_word` lose their middle, then the whole does. Cuts between characters; "..."
/// stands for what is gone.
std::string shortened(const std::string& text, size_t most, size_t longest_word = 200);

/// Bytes of the character at `at` of a text, and what it is; 0: no valid UTF-8.
struct Utf8 { size_t bytes = 0; char32_t code = 0; };
Utf8 utf8_at(std::string_view text, size_t at);
/// Whether a terminal may take the character for something else than itself: controls, line and paragraph separators, marks that reorder
/// text.
bool is_control(char32_t);

}  // namespace mirage
