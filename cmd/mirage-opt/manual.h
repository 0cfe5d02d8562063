// What a shell and a reader of manuals want to know of the command line, made from the option table. Private to cmd/.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace mirage {

const std::vector<std::pair<int, std::string>>& exit_codes();     ///< number and meaning
const std::vector<std::string>& completion_shells();              ///< "bash", "zsh", "fish"
std::string completion(const std::string& shell);                 ///< --print-completion; shell is one of completion_shells()
std::string man_page(const std::string& version);                 ///< --print-man: roff, section 1

}  // namespace mirage
