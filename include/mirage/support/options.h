// Options: what the command line can ask for, generated from options.def. cmd/ fills it, driver reads it; no other directory sees it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mirage {

/// The kinds of options.def and the types that hold them.
namespace option_kind {
using Flag = bool;
using Count = int64_t;
using Text = std::string;
using List = std::vector<std::string>;
using Duration = double;   ///< seconds
}  // namespace option_kind

struct Options {
#define OPTION(field, flags, kind, fallback, low, high, changes, group, metavar, help) option_kind::kind field = fallback;
#include "mirage/support/options.def"
#undef OPTION
  std::vector<std::string> specs;            ///< files, folders, or "-"
  std::vector<std::string> response_files;   ///< the FILEs of @FILE, as they were named
};

enum class OptionEffect : uint8_t { kResult, kView };

struct OptionInfo {
  std::string field;     ///< "max_kernel_ops"
  std::string flags;     ///< "-o,--output": as CLI11 reads it
  std::string flag;      ///< the first long one, "--output"
  std::vector<std::string> names;   ///< all of them
  double low = 0, high = 0;
  OptionEffect effect = OptionEffect::kView;
  std::string group, metavar, help;
};
const std::vector<OptionInfo>& option_table();   ///< in the order of options.def

/// Calls visit(info, field) for every option in the order of options.def; `o` may be const.
template <class O, class F> void for_each_option(O& o, F&& visit) {
  size_t i = 0;
#define OPTION(field, flags, kind, fallback, low, high, changes, group, metavar, help) visit(option_table()[i++], o.field);
#include "mirage/support/options.def"
#undef OPTION
}

/// "60s", "2m", "1h", "500ms", "1.5" (seconds) in seconds; nullopt for anything else, also for negative and non-finite numbers.
std::optional<double> parse_duration(std::string_view);

/// Options that change the result and are not at their default, as (field, value as text); and these read back. nullopt: no such field, or
/// no such value.
std::vector<std::pair<std::string, std::string>> result_options(const Options&);
std::optional<Options> options_of(const std::vector<std::pair<std::string, std::string>>& values);

std::vector<std::string> option_values(const Options&);   ///< as text, in the order of the table
std::string print_config(const Options&);          ///< --print-config: "field = value" per line, defaults marked
/// options that change the result and are not at their default, as flags: "--target sm_80 --no-merge"; "" if none
std::string result_options_line(const Options&);

}  // namespace mirage
