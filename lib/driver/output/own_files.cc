// See the header.
#include "driver/output/own_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "mirage/support/file.h"

namespace mirage {

bool is_own_file(const std::string& path, const std::string& name) {
  namespace fs = std::filesystem;
  constexpr size_t kFirst = 1024;   // of a text
  std::error_code error;
  if (!fs::exists(path, error)) return true;
  if (!fs::is_regular_file(path, error)) return false;   // a pipe would never end
  const auto bytes = read_file(path);
  if (!bytes) return false;
  const std::string_view all = *bytes, first = all.substr(0, kFirst);
  if (all.empty()) return true;
  for (const char* mark : {"enerated by mirage-opt", "\"tool\": \"mirage-opt\"", "content=\"mirage-opt\""})
    if (first.find(mark) != std::string_view::npos) return true;
  // as print() writes it, and hardly anybody by hand
  if (path.ends_with(".graph") && first.starts_with("kernel " + name + " {\n  %0 = input 0")) return true;
  const bool is_device_text = first.find("NVIDIA NVVM Compiler") != std::string_view::npos, is_binary = all.starts_with("\x7f" "ELF");
  if (!is_device_text && !is_binary) return false;
  // of the library and its check; of kernels
  return all.find(name + "_launch") != std::string_view::npos || all.find("mirage_" + name) != std::string_view::npos;
}

}  // namespace mirage
