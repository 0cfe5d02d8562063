// Chapters of the reference, made from the tables that the program itself uses: docs/reference/ holds what they print. Private to cmd/.
#pragma once
#include <string>
#include <vector>

namespace mirage {

struct Variable { std::string name, reader, help; };
const std::vector<Variable>& environment();                  ///< environment.def

const std::vector<std::string>& reference_topics();          ///< what --print-reference knows
std::string reference(const std::string& topic);             ///< one of reference_topics(), as Markdown
std::string version_json(const std::string& version);        ///< --version=json: what this mirage-opt reads, writes and compiles for

}  // namespace mirage
