// Layered drawing (Sugiyama, Tagawa and Toda 1981): layers by longest paths, edges over several layers through points of their own, order
// by barycentres, places by least squares.
#include "driver/report/drawing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace mirage {

namespace {

constexpr double kLetter = 6.7, kLine = 15, kPad = 8;     // of 11 px monospaced text
constexpr double kGapX = 18, kGapY = 30, kBandPad = 10, kBandLabel = 18;
constexpr int kSweeps = 12;

struct Spot { int box = -1, layer = 0; double w = 0, h = 0, x = 0, y = 0; };   // box -1: a point of an edge; x: its middle

double title_width(const DrawnBox& b) {
  size_t longest = 0;
  for (const std::string& l : b.lines)
    longest = std::max<size_t>(longest, static_cast<size_t>(std::count_if(l.begin(), l.end(), [](char c) { return (c & 0xC0) != 0x80; })));
  return static_cast<double>(longest) * kLetter;
}

class Layout {
 public:
  explicit Layout(const Drawing& d) : d_(d) {
    for (size_t i = 0; i < d.boxes.size(); i++) {
      const DrawnBox& b = d.boxes[i];
      const bool has_inner = b.inner_width > 0;
      spots_.push_back({static_cast<int>(i), 0, std::max(title_width(b), b.inner_width) + 2 * kPad,
                        static_cast<double>(b.lines.size()) * kLine + (has_inner ? b.inner_height + kPad : 0) + kPad, 0, 0});
    }
  }

  Drawn run() {
    if (spots_.empty()) return {};
    find_layers();
    add_points();
    order();
    place_x();
    place_y();
    return print();
  }

 private:
  /// Longest paths; an edge that leads back is left out. Then sources come down to just above their first reader, within their band.
  void find_layers() {
    const size_t n = spots_.size();
    std::vector<std::vector<int>> out(n);
    std::vector<int> waits(n, 0);
    std::set<std::pair<int, int>> seen;
    for (const auto& [a, b] : d_.edges)
      if (a != b && d_.boxes[static_cast<size_t>(a)].band <= d_.boxes[static_cast<size_t>(b)].band && seen.insert({a, b}).second)
        out[static_cast<size_t>(a)].push_back(b), waits[static_cast<size_t>(b)]++;
    std::vector<int> ready, done;
    for (size_t i = 0; i < n; i++) if (waits[i] == 0) ready.push_back(static_cast<int>(i));
    std::vector<bool> placed(n, false);
    for (size_t at = 0; done.size() < n; at++) {
      if (at == ready.size()) {   // a cycle: the first box that waits goes next, and what it waits for is not drawn
        size_t i = 0;
        while (placed[i]) i++;
        ready.push_back(static_cast<int>(i));
      }
      const int a = ready[at];
      if (placed[static_cast<size_t>(a)]) continue;
      placed[static_cast<size_t>(a)] = true;
      done.push_back(a);
      for (int b : out[static_cast<size_t>(a)]) {
        if (placed[static_cast<size_t>(b)]) continue;
        edges_.push_back({a, b});
        if (--waits[static_cast<size_t>(b)] == 0) ready.push_back(b);
      }
    }
    std::set<int> bands;
    for (const DrawnBox& b : d_.boxes) bands.insert(b.band);
    int base = 0;
    std::vector<int> layer(n, 0);
    for (int band : bands) {
      int last = base;
      for (int a : done) {
        if (d_.boxes[static_cast<size_t>(a)].band != band) continue;
        int l = base;
        for (const auto& [from, to] : edges_) if (to == a) l = std::max(l, layer[static_cast<size_t>(from)] + 1);
        layer[static_cast<size_t>(a)] = l;
        last = std::max(last, l);
      }
      for (auto it = done.rbegin(); it != done.rend(); ++it) {   // sources
        const int a = *it;
        if (d_.boxes[static_cast<size_t>(a)].band != band ||
            std::any_of(edges_.begin(), edges_.end(), [&](const auto& e) { return e.second == a; }))
          continue;
        int first = last + 1;
        for (const auto& [from, to] : edges_) if (from == a) first = std::min(first, layer[static_cast<size_t>(to)]);
        layer[static_cast<size_t>(a)] = std::max(base, std::min(first - 1, last));
      }
      band_layers_[band] = {base, last};
      base = last + 1;
    }
    num_layers_ = base;
    for (size_t i = 0; i < n; i++) spots_[i].layer = layer[i];
  }

  void add_points() {
    layers_.resize(static_cast<size_t>(num_layers_));
    for (size_t i = 0; i < spots_.size(); i++) layers_[static_cast<size_t>(spots_[i].layer)].push_back(static_cast<int>(i));
    for (const auto& [a, b] : edges_) {
      std::vector<int> path = {a};
      for (int l = spots_[static_cast<size_t>(a)].layer + 1; l < spots_[static_cast<size_t>(b)].layer; l++) {
        spots_.push_back({-1, l, 6, 0, 0, 0});
        path.push_back(static_cast<int>(spots_.size()) - 1);
        layers_[static_cast<size_t>(l)].push_back(path.back());
      }
      path.push_back(b);
      paths_.push_back(path);
    }
    above_.resize(spots_.size()), below_.resize(spots_.size());
    for (const auto& path : paths_)
      for (size_t i = 0; i + 1 < path.size(); i++)
        below_[static_cast<size_t>(path[i])].push_back(path[i + 1]), above_[static_cast<size_t>(path[i + 1])].push_back(path[i]);
  }

  int64_t crossings() const {
    std::vector<int> rank(spots_.size(), 0);
    for (const auto& l : layers_) for (size_t i = 0; i < l.size(); i++) rank[static_cast<size_t>(l[i])] = static_cast<int>(i);
    int64_t n = 0;
    for (const auto& l : layers_) {
      std::vector<std::pair<int, int>> e;
      for (int s : l)
        for (int t : below_[static_cast<size_t>(s)]) e.emplace_back(rank[static_cast<size_t>(s)], rank[static_cast<size_t>(t)]);
      if (e.size() > 400) return 0;   // not worth the time: the last order is taken
      for (size_t i = 0; i < e.size(); i++)
        for (size_t j = i + 1; j < e.size(); j++) n += (e[i].first - e[j].first) * (e[i].second - e[j].second) < 0;
    }
    return n;
  }

  void sweep(bool down) {
    std::vector<double> at(spots_.size(), 0);
    const auto rank = [&](const std::vector<int>& l) {
      for (size_t i = 0; i < l.size(); i++) at[static_cast<size_t>(l[i])] = static_cast<double>(i) - static_cast<double>(l.size()) / 2;
    };
    for (const auto& l : layers_) rank(l);
    for (size_t k = 0; k < layers_.size(); k++) {
      auto& l = layers_[down ? k : layers_.size() - 1 - k];
      const auto key = [&](int s) {
        const auto& near = down ? above_[static_cast<size_t>(s)] : below_[static_cast<size_t>(s)];
        if (near.empty()) return at[static_cast<size_t>(s)];
        double sum = 0;
        for (int o : near) sum += at[static_cast<size_t>(o)];
        return sum / static_cast<double>(near.size());
      };
      std::vector<std::pair<double, int>> keyed;
      for (int s : l) keyed.emplace_back(key(s), s);
      std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < l.size(); i++) l[i] = keyed[i].second;
      rank(l);
    }
  }

  void order() {
    auto best = layers_;
    int64_t fewest = crossings();
    for (int i = 0; i < kSweeps && fewest > 0; i++) {
      sweep(i % 2 == 0);
      if (const int64_t n = crossings(); n < fewest) fewest = n, best = layers_;
    }
    layers_ = best;
  }

  /// Places nearest to `wish` in the layer's order with the gaps between them: least squares by joining neighbours that would overlap.
  void nearest(const std::vector<int>& layer, const std::vector<double>& wish) {
    struct Block { double sum, weight; size_t count; };
    std::vector<Block> blocks;
    std::vector<double> before(layer.size(), 0);   // how far right of the layer's first one each lies at least
    for (size_t i = 1; i < layer.size(); i++)
      before[i] = before[i - 1] + (spots_[static_cast<size_t>(layer[i - 1])].w + spots_[static_cast<size_t>(layer[i])].w) / 2 + kGapX;
    for (size_t i = 0; i < layer.size(); i++) {
      const double weight = spots_[static_cast<size_t>(layer[i])].box < 0 ? 4 : 1;
      blocks.push_back({(wish[i] - before[i]) * weight, weight, 1});
      while (blocks.size() > 1 &&
             blocks[blocks.size() - 2].sum / blocks[blocks.size() - 2].weight >= blocks.back().sum / blocks.back().weight) {
        const Block last = blocks.back();
        blocks.pop_back();
        blocks.back().sum += last.sum, blocks.back().weight += last.weight, blocks.back().count += last.count;
      }
    }
    size_t i = 0;
    for (const Block& b : blocks)
      for (size_t k = 0; k < b.count; k++, i++) spots_[static_cast<size_t>(layer[i])].x = b.sum / b.weight + before[i];
  }

  void place_x() {
    for (const auto& l : layers_) nearest(l, std::vector<double>(l.size(), 0));
    for (int i = 0; i < kSweeps; i++)
      for (size_t k = 0; k < layers_.size(); k++) {
        const auto& l = layers_[i % 2 == 0 ? k : layers_.size() - 1 - k];
        std::vector<double> wish;
        for (int s : l) {
          auto near = i % 2 == 0 ? above_[static_cast<size_t>(s)] : below_[static_cast<size_t>(s)];
          if (near.empty()) near = i % 2 == 0 ? below_[static_cast<size_t>(s)] : above_[static_cast<size_t>(s)];
          double sum = 0;
          for (int o : near) sum += spots_[static_cast<size_t>(o)].x;
          wish.push_back(near.empty() ? spots_[static_cast<size_t>(s)].x : sum / static_cast<double>(near.size()));
        }
        nearest(l, wish);
      }
    double left = spots_[0].x - spots_[0].w / 2;   // sweeps may have moved all of it to one side
    for (const Spot& s : spots_) left = std::min(left, s.x - s.w / 2);
    for (Spot& s : spots_) s.x += kBandPad - left;
  }

  void place_y() {
    double y = 2;
    tops_.resize(layers_.size()), bottoms_.resize(layers_.size());
    for (size_t k = 0; k < layers_.size(); k++) {
      for (const DrawnBand& b : d_.bands)
        if (const auto at = band_layers_.find(b.band); at != band_layers_.end() && at->second.first == static_cast<int>(k)) y += kBandLabel;
      double tallest = 0;
      for (int s : layers_[k]) tallest = std::max(tallest, spots_[static_cast<size_t>(s)].h);
      for (int s : layers_[k]) spots_[static_cast<size_t>(s)].y = y;
      tops_[k] = y, bottoms_[k] = y + tallest;
      y += tallest + kGapY;
    }
    height_ = y - kGapY + kBandPad;
  }

  /// Where an edge enters or leaves: side by side along the box, in the order of the other ends.
  double port(int spot, int other, bool enters) const {
    const Spot& s = spots_[static_cast<size_t>(spot)];
    if (s.box < 0) return s.x;
    std::vector<std::pair<double, int>> ends;
    for (int o : enters ? above_[static_cast<size_t>(spot)] : below_[static_cast<size_t>(spot)])
      ends.emplace_back(spots_[static_cast<size_t>(o)].x, o);
    if (!enters) return s.x;
    std::sort(ends.begin(), ends.end());
    const auto at = std::find_if(ends.begin(), ends.end(), [&](const auto& e) { return e.second == other; }) - ends.begin();
    const double room = std::min(s.w - 12, 26.0 * static_cast<double>(ends.size()));
    return s.x + room * ((static_cast<double>(at) + 0.5) / static_cast<double>(ends.size()) - 0.5);
  }

  std::string path_text(const std::vector<int>& path) const {
    const Spot& from = spots_[static_cast<size_t>(path[0])];
    std::string out = fmt::format("M{:.1f} {:.1f}", from.x, from.y + from.h);
    double x = from.x;
    for (size_t i = 1; i < path.size(); i++) {
      const Spot& s = spots_[static_cast<size_t>(path[i])];
      const auto l = static_cast<size_t>(s.layer);
      const double to = port(path[i], path[i - 1], true), top = tops_[l], bend = bottoms_[l - 1], middle = (bend + top) / 2;
      out += fmt::format("V{:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", bend, x, middle, to, middle, to,
                         top - (i + 1 == path.size() ? 1 : 0));
      x = to;
    }
    return out;
  }

  std::string box_text(const Spot& s) const {
    const DrawnBox& b = d_.boxes[static_cast<size_t>(s.box)];
    const double x = s.x - s.w / 2;
    std::string out =
        fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"/>", b.cls, x, s.y, s.w, s.h);
    const bool has_inner = b.inner_width > 0;
    double y = s.y + kPad / 2;
    for (size_t i = 0; i < b.lines.size(); i++, y += kLine)
      out += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>", i == 0 ? "t" : "u", has_inner ? x + kPad : s.x, y + 11,
                         has_inner ? "" : " text-anchor=\"middle\"", html_text(b.lines[i]));
    if (has_inner)
      out += fmt::format("<g transform=\"translate({:.1f} {:.1f})\">", x + (s.w - b.inner_width) / 2, y + kPad / 2) + b.inner + "</g>";
    return out + "\n";
  }

  Drawn print() {
    double width = 0;
    for (const Spot& s : spots_) width = std::max(width, s.x + s.w / 2 + kBandPad);
    for (const DrawnBand& b : d_.bands) width = std::max(width, static_cast<double>(b.label.size()) * kLetter + 2 * kPad);
    std::string out;
    for (const DrawnBand& b : d_.bands) {
      const auto at = band_layers_.find(b.band);
      if (at == band_layers_.end()) continue;
      const double top = tops_[static_cast<size_t>(at->second.first)] - kBandLabel,
                   bottom = bottoms_[static_cast<size_t>(at->second.second)] + kBandPad - 2;
      out += fmt::format(
          "<rect class=\"{}\" x=\"1\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\"/><text class=\"b\" x=\"{:.1f}\" "
          "y=\"{:.1f}\">{}</text>\n",
          b.cls, top, width - 2, bottom - top, kPad, top + 13, html_text(b.label));
    }
    for (const auto& path : paths_) out += "<path class=\"e\" d=\"" + path_text(path) + "\"/>\n";
    for (const Spot& s : spots_) if (s.box >= 0) out += box_text(s);
    return {out, width, height_};
  }

  const Drawing& d_;
  std::vector<Spot> spots_;
  std::vector<std::pair<int, int>> edges_;
  std::vector<std::vector<int>> layers_, paths_, above_, below_;
  std::vector<double> tops_, bottoms_;
  std::map<int, std::pair<int, int>> band_layers_;
  int num_layers_ = 0;
  double height_ = 0;
};

}  // namespace

std::string html_text(const std::string& s) {
  std::string out;
  for (char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else if (c == '\'') out += "&#39;";
    else out += u < 32 && c != '\n' && c != '\t' ? '?' : c;
  }
  return out;
}

Drawn draw(const Drawing& d) { return Layout(d).run(); }

std::string svg_figure(const Drawn& d, const std::string& label, double least, double most) {
  // wider than what a telephone or a small window shows: it scrolls, and says so there
  const double room = (d.width + 1) * least;
  const char* reach = room > 740 ? " far farther" : room > 300 ? " far" : "";
  return fmt::format(
      "<div class=\"fig{}\"><svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {:.0f} {:.0f}\" "
      "style=\"width:100%;max-width:{:.0f}px;min-width:{:.0f}px\">\n{}</svg></div>\n",
      reach, html_text(label), d.width + 1, d.height + 1, (d.width + 1) * most, room, d.svg);
}

}  // namespace mirage
