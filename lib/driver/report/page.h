// The frame of the pages that mirage-opt writes: head, colours for light and dark, end. Nothing is loaded from elsewhere.
#pragma once
#include <string>

namespace mirage {

/// Up to and including <main>; title: as HTML; script: JavaScript, or "".
std::string page_begin(const std::string& title, const std::string& script);
std::string page_end();
/// Tables of class "sort": a click on a column's head sorts by it, numbers as numbers.
std::string sort_script();

}  // namespace mirage
