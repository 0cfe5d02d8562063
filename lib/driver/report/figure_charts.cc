// Charts of report.html, from what report.json says; see figures.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/report/drawing.h"
#include "driver/report/figures.h"

namespace mirage {

namespace {

using ChartJson = nlohmann::ordered_json;

constexpr double kChartWidth = 400;   // with its smallest scale it fits a telephone's page
constexpr double kLetters = 7.2;      // of a bold label
constexpr double kLeast = 0.74, kMost = 1.6;

std::string text_at(double x, double y, const std::string& text, const char* cls = "u", const char* anchor = "start") {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", cls, x, y, anchor, html_text(text));
}

std::string rect_at(double x, double y, double w, double h, const char* cls, const std::string& title = "") {
  return fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\"><title>{}</title></rect>\n",
                     cls, x, y, std::max(w, 1.0), h, html_text(title));
}

double number_of(const ChartJson& j, const char* key) { return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0; }

std::string ellipsis(const std::string& s, size_t most) { return s.size() <= most ? s : s.substr(0, most - 2) + ".."; }

/// 1, 2 or 5 times a power of ten: about n of them reach `most`.
double tick_step(double most, int n) {
  const double raw = std::max(most, 1e-9) / n, power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0}) if (raw <= m * power) return m * power;
  return 10 * power;
}

/// Where texts are already.
class Places {
 public:
  /// Takes the place of a text with that begin and base line, if it is free.
  bool take(double x, double y, const std::string& text) {
    const double end = x + kLetters * static_cast<double>(text.size());
    for (const auto& t : taken_) if (x < t[1] && t[0] < end && std::abs(y - t[2]) < 13) return false;
    taken_.push_back({x, end, y});
    return true;
  }

 private:
  std::vector<std::array<double, 3>> taken_;
};

/// A label over the chart's own lines.
std::string label_at(double x, double y, const std::string& text, const char* anchor) { return text_at(x, y, text, "u h", anchor); }

}  // namespace

std::string bytes_text(double b) {
  if (b >= 1e9) return fmt::format("{:.2f} GB", b / 1e9);
  return b >= 1e6 ? fmt::format("{:.1f} MB", b / 1e6) : b >= 1e3 ? fmt::format("{:.1f} kB", b / 1e3) : fmt::format("{:.0f} B", b);
}

std::string operations_text(double n) {
  if (n >= 1e12) return fmt::format("{:.2f} Tflop", n / 1e12);
  return n >= 1e9 ? fmt::format("{:.2f} Gflop", n / 1e9) : n >= 1e6 ? fmt::format("{:.1f} Mflop", n / 1e6) : fmt::format("{:.0f} flop", n);
}

std::string schedule_figure(const ChartJson& result) {
  const ChartJson& kernels = result["kernels"];
  if (kernels.empty() || kernels.size() > 80)
    return kernels.empty() ? "" : fmt::format("<p>{} kernels: the table has them.</p>\n", kernels.size());
  const double total = number_of(result, "predicted_us"), plain = number_of(result, "straightforward_us");
  constexpr double kLeft = 160, kRow = 22, kTop = 20, kRight = 62;
  double all = 0;   // more than the total where kernels begin early
  for (const ChartJson& k : kernels) all += number_of(k, "predicted_us");
  const double most = std::max({all, total, plain, 1e-6}), scale = (kChartWidth - kLeft - kRight) / most;
  Drawn d{"", kChartWidth, kTop + kRow * (static_cast<double>(kernels.size()) + 2) + 8};
  const double step = tick_step(most, 3);   // labels such as "0.05 us" need 50 units
  for (double t = 0; t <= most * 1.001; t += step) {
    d.svg += fmt::format("<line class=\"g\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>", kLeft + t * scale, kTop - 4,
                         d.height - 4);
    d.svg += text_at(kLeft + t * scale, 12, fmt::format("{:.6g} us", t), "u", t == 0 ? "start" : "middle");
  }
  double y = kTop, at = 0;
  for (size_t i = 0; i < kernels.size(); i++, y += kRow) {
    const double us = number_of(kernels[i], "predicted_us"), roof = number_of(kernels[i], "roofline_us");
    d.svg += text_at(0, y + 14, ellipsis(fmt::format("kernel {} ({})", i, kernels[i]["strategy"].get<std::string>()), 24));
    d.svg += rect_at(kLeft + at * scale, y + 2, us * scale, kRow - 6, "q",
                     fmt::format("{}: {:.3f} us predicted", kernels[i]["name"].get<std::string>(), us));
    d.svg += rect_at(kLeft + at * scale, y + 2, std::min(roof, us) * scale, kRow - 6, "p", fmt::format("{:.3f} us at the roofline", roof));
    d.svg += text_at(kLeft + (at + us) * scale + 4, y + 14, fmt::format("{:.2f}", us));
    at += us;
  }
  const auto sum = [&](const char* what, double us, const char* cls) {
    d.svg += text_at(0, y + 14, what, "t") + rect_at(kLeft, y + 2, us * scale, kRow - 6, cls) +
             text_at(kLeft + us * scale + 4, y + 14, fmt::format("{:.2f}", us), "t");
    y += kRow;
  };
  sum("this result", total, "q");
  sum("straightforward kernels", plain, "s");
  return svg_figure(d, "kernels over predicted time", kLeast, kMost);
}

std::string shared_figure(const ChartJson& kernel) {
  if (!kernel.contains("timeline") || kernel["timeline"]["shared"].empty()) return "";
  const ChartJson &steps = kernel["timeline"]["steps"], &shared = kernel["timeline"]["shared"];
  constexpr double kLeft = 166, kRow = 20, kTop = 34;
  const double rows = static_cast<double>(shared.size()),
               width = (kChartWidth - kLeft - 4) / std::max<double>(1, static_cast<double>(steps.size()));
  Drawn d{"", kChartWidth, kTop + kRow * rows + 4};
  for (size_t i = 0; i < steps.size(); i++) {
    const std::string phase = steps[i]["phase"].get<std::string>();
    d.svg += rect_at(kLeft + width * static_cast<double>(i), kTop - 4, width, kRow * rows + 6, phase == "loop" ? "lp" : "bd",
                     steps[i]["text"].get<std::string>());
    if (steps.size() <= 24 || i % 5 == 0)
      d.svg += text_at(kLeft + width * (static_cast<double>(i) + 0.5), kTop - 8, std::to_string(i + 1), "u", "middle");
    if (i == 0 || steps[i - 1]["phase"] != steps[i]["phase"]) {
      size_t end = i;
      while (end < steps.size() && steps[end]["phase"] == steps[i]["phase"]) end++;
      const double room = width * static_cast<double>(end - i);
      const std::string name = phase == "loop" && room >= 84 ? "in the loop" : phase;
      if (room >= 7 * static_cast<double>(name.size()))
        d.svg += text_at(kLeft + width * static_cast<double>(i + end) / 2, 12, name, "t", "middle");
    }
  }
  d.svg += text_at(0, kTop - 8, "step");
  double y = kTop;
  for (const ChartJson& s : shared) {
    const double first = number_of(s, "first"), last = number_of(s, "last");
    d.svg += text_at(0, y + 12, ellipsis(s["what"].get<std::string>(), 24));
    d.svg += rect_at(kLeft + width * first + 1, y + 1, width * (last - first + 1) - 2, kRow - 5, "q",
                     fmt::format("{}: {} bytes at {}", s["what"].get<std::string>(), number_of(s, "bytes"), number_of(s, "offset")));
    const std::string size = bytes_text(number_of(s, "bytes"));
    const double room = width * (last - first + 1), need = static_cast<double>(size.size()) * 6.7 + 6;
    if (room > need) d.svg += text_at(kLeft + width * first + 5, y + 12, size, "i");
    else if (kLeft + width * (last + 1) + need < kChartWidth) d.svg += text_at(kLeft + width * (last + 1) + 3, y + 12, size);
    else d.svg += text_at(kLeft + width * first - 3, y + 12, size, "u", "end");
    y += kRow;
  }
  return svg_figure(d, "shared memory over the kernel's steps", kLeast, kMost);
}

static bool all_on_float_units(const ChartJson& kernels) {
  return std::all_of(kernels.begin(), kernels.end(), [](const ChartJson& k) { return k.value("units", "") == "float32"; });
}

namespace {

struct RooflinePoint { double intensity, rate; std::string name; };

std::vector<RooflinePoint> points_of(const ChartJson& kernels) {
  std::vector<RooflinePoint> points;
  for (size_t i = 0; i < kernels.size(); i++) {
    const double bytes = number_of(kernels[i], "bytes"), flops = number_of(kernels[i], "flops"), us = number_of(kernels[i], "predicted_us");
    if (bytes > 0 && flops > 0 && us > 0) points.push_back({flops / bytes, flops / us, fmt::format("kernel {}", i)});
  }
  return points;
}

}  // namespace

std::string roofline_figure(const ChartJson& report) {
  const ChartJson& kernels = report["result"]["kernels"];
  if (!report.contains("roofline")) return "";
  const bool is_float = all_on_float_units(kernels);
  const double memory = number_of(report["roofline"], "dram_bytes_per_us"),
               peak = number_of(report["roofline"], is_float ? "f32_flops_per_us" : "tensor_flops_per_us");
  const std::vector<RooflinePoint> points = points_of(kernels);
  if (points.empty() || memory <= 0 || peak <= 0) return "";
  constexpr double kLeft = 74, kTop = 14, kHeight = 230, kBottom = 40;
  double x0 = -1, x1 = 3.5, y0 = std::log10(peak) - 4;
  for (const RooflinePoint& p : points)
    x0 = std::min(x0, std::floor(std::log10(p.intensity))), x1 = std::max(x1, std::ceil(std::log10(p.intensity))),
    y0 = std::min(y0, std::floor(std::log10(p.rate)));
  const double y1 = std::log10(peak) + 0.3;
  const auto px = [&](double v) { return kLeft + (std::log10(v) - x0) / (x1 - x0) * (kChartWidth - kLeft - 8); };
  const auto py = [&](double v) { return kTop + (y1 - std::log10(v)) / (y1 - y0) * kHeight; };
  Drawn d{"", kChartWidth, kTop + kHeight + kBottom};
  for (double e = x0; e <= x1; e += 1) {
    d.svg += fmt::format("<line class=\"g\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>", px(std::pow(10, e)), kTop,
                         kTop + kHeight);
    const std::string number = fmt::format("{:.6g}", std::pow(10, e));
    const double at = px(std::pow(10, e)), most = kChartWidth - kLetters * static_cast<double>(number.size()) / 2;   // or it would be cut
    d.svg += text_at(std::min(at, most), kTop + kHeight + 14, number, "u", e == x0 ? "start" : "middle");
  }
  for (double e = std::ceil(y0); e <= y1; e += 1) {
    d.svg += fmt::format("<line class=\"g\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, py(std::pow(10, e)),
                         kChartWidth - 8, py(std::pow(10, e)));
    d.svg += text_at(kLeft - 5, py(std::pow(10, e)) + 4,
                     e >= 6 ? fmt::format("{:.6g} T/s", std::pow(10, e - 6)) : fmt::format("{:.6g} G/s", std::pow(10, e - 3)), "u", "end");
  }
  d.svg += text_at(kChartWidth / 2 + kLeft / 2, kTop + kHeight + 32, "operations per byte of device memory", "u", "middle");
  const double knee = peak / memory, start = std::max(std::pow(10, x0), std::pow(10, y0) / memory);
  d.svg += fmt::format("<path class=\"r\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", px(start), py(start * memory), px(knee),
                       py(peak), kChartWidth - 8, py(peak));
  Places places;
  const std::string units = fmt::format("{:.0f} Tflop/s {}", peak / 1e6, is_float ? "float32 units" : "tensor cores"),
                    rate = fmt::format("{:.2f} TB/s", memory / 1e6);
  const double units_end = std::max(px(knee) - 8, kLeft + 4 + kLetters * static_cast<double>(units.size()));
  const double units_y = py(peak) - (units_end > px(knee) - 8 ? 7 : 2);   // clear of the line
  places.take(units_end - kLetters * static_cast<double>(units.size()), units_y, units);
  places.take(px(start) + 66, py(start * memory) - 4, rate);
  d.svg += label_at(units_end, units_y, units, "end") + label_at(px(start) + 66, py(start * memory) - 4, rate, "start");
  for (const RooflinePoint& p : points) {
    const double x = px(p.intensity), y = py(p.rate);
    d.svg += fmt::format(
        "<circle class=\"d\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"><title>{}: {:.3g} Gflop/s predicted, {:.3g} flop per "
        "byte</title></circle>",
        x, y, p.name, p.rate / 1e3, p.intensity);
    const bool at_right = x + 70 < kChartWidth;
    const double begin = at_right ? x + 9 : x - 9 - kLetters * static_cast<double>(p.name.size());
    for (const double line : {y + 12, y - 7}) {   // where neither is free the title and the table have it
      if (line >= kTop + kHeight || line < kTop || !places.take(begin, line, p.name)) continue;
      d.svg += text_at(at_right ? x + 9 : x - 9, line, p.name, "t h", at_right ? "start" : "end");
      break;
    }
  }
  return svg_figure(d, "roofline", kLeast, kMost);
}

std::string funnel_figure(const ChartJson& search) {
  if (!search.contains("gates") || number_of(search, "states") <= 0) return "";
  std::vector<std::pair<std::string, double>> rows = {{"states visited", number_of(search, "states")}};
  for (const ChartJson& g : search["gates"])
    if (number_of(g, "closed") > 0) rows.emplace_back("closed: " + g["gate"].get<std::string>(), number_of(g, "closed"));
  rows.emplace_back("candidates", number_of(search, "candidates"));
  rows.emplace_back("verified", number_of(search, "verified"));
  constexpr double kLeft = 150, kRow = 20;
  double most = 1;
  for (const auto& [name, n] : rows) most = std::max(most, n);
  const double scale = (kChartWidth - kLeft - 80) / std::log10(most + 1);
  Drawn d{"", kChartWidth, kRow * static_cast<double>(rows.size()) + 4};
  double y = 0;
  for (const auto& [name, n] : rows) {
    const double w = std::log10(n + 1) * scale;
    d.svg += text_at(0, y + 14, ellipsis(name, 22)) +
             rect_at(kLeft, y + 3, w, kRow - 5, name.starts_with("closed") ? "s" : "q", fmt::format("{}: {:.0f}", name, n)) +
             text_at(kLeft + w + 5, y + 14, fmt::format("{:.0f}", n));
    y += kRow;
  }
  return svg_figure(d, "search funnel, logarithmic", kLeast, kMost);
}

}  // namespace mirage
