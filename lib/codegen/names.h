// Names in generated text: which identifiers C, C++, CUDA, Python or the C ABI already own, and what a spec's name becomes where it
// collides. The spec keeps its names; only generated files see the changed ones.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace mirage {

/// Whether `name` cannot be the library's name (prefix of the ABI, file name, lib<name>.so, Python module): reserved spellings, Python
/// keywords, system libraries, Python's own modules.
bool is_reserved_module_name(std::string_view name);

/// The C identifier for a program of this name, idempotent on free names; letters that no identifier has become '_'. "" becomes "program".
std::string mangle_module_name(std::string_view name);

/// One C identifier per name, in order: free names stay, the others get a prefix or a suffix; all are different from each other and from
/// every free name of the list. `module` is the library's C name, whose type NAME_dims is taken too.
std::vector<std::string> mangle_tensor_names(const std::vector<std::string>& names, const std::string& module);

/// Whether an identifier of C may have this character (ASCII).
bool is_word(char c);

/// `text` as a C string literal with quotes, pure ASCII.
std::string c_literal(std::string_view text);

/// `text` inside a JSON string, with quotes.
std::string json_string(std::string_view text);

}  // namespace mirage
