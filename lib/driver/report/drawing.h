// Drawing directed graphs as SVG: layers from top to bottom, boxes of any size (a box may hold a drawing), edges that pass no box. Knows
// nothing of muGraphs (driver/report/figures.h does).
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace mirage {

/// Text as HTML and SVG show it: the five characters that mean something else are replaced, control characters too.
std::string html_text(const std::string&);

/// A box: lines of monospaced text (the first is its title), or a drawing under a title. cls: its CSS class.
struct DrawnBox {
  std::string cls;
  std::vector<std::string> lines;
  std::string inner;                        ///< SVG, drawn below the lines
  double inner_width = 0, inner_height = 0;
  int band = 0;                             ///< boxes of a later band lie below all boxes of an earlier one
};
struct DrawnBand { int band = 0; std::string cls, label; };   ///< drawn as an area behind the boxes of a band

struct Drawing {
  std::vector<DrawnBox> boxes;
  std::vector<std::pair<int, int>> edges;   ///< from, to; those that would close a cycle are not drawn
  std::vector<DrawnBand> bands;
};

/// The drawing's SVG elements, without the <svg> around them, and its size in pixels. Deterministic.
struct Drawn { std::string svg; double width = 0, height = 0; };
Drawn draw(const Drawing&);

/// The <svg> around elements: it takes the width that there is, at most `most` times its own and at least `least` times (a page lets it
/// scroll then).
std::string svg_figure(const Drawn&, const std::string& label, double least = 0.62, double most = 1);

}  // namespace mirage
