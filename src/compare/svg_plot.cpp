#include "src/compare/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/escaped_text.h"

namespace hybrid_trainer {

namespace {

constexpr double kWidth = 560, kHeight = 300, kLeft = 52, kRight = 14, kTop = 12, kBottom = 44;
constexpr double kBetweenLabels = 44;
constexpr int kTicks = 5;

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
  void widen(double share) {
    const double more = high > low ? share * (high - low) : std::max(1e-3, 0.05 * std::abs(high));
    low -= more;
    high += more;
  }
};

/// Returns tick values in steps of 1, 2 or 5 times a power of ten.
std::vector<double> round_ticks(const Extent& extent) {
  const double wanted = (extent.high - extent.low) / kTicks;
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= wanted) step = factor * power;
  std::vector<double> ticks;
  for (double i = std::ceil(extent.low / step); i * step <= extent.high; ++i)
    ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value) {
  return std::abs(value) >= 1e4 ? units::count(value) : brief(std::abs(value) < 1e-12 ? 0 : value);
}

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot) {
    for (const PlotSeries& series : plot.series) {
      for (const auto* points : {&series.line, &series.dots}) {
        for (const auto& [x, y] : *points) x_.include(scaled(x)), y_.include(y);
      }
      for (const double x : series.crosses) x_.include(scaled(x));
    }
    if (y_.is_empty()) return;
    y_.widen(0.06);
    if (plot.logarithmic || x_.low == x_.high) x_.widen(0.06);
  }
  std::string text() {
    if (y_.is_empty()) return "";
    out_ = concat("<svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=\"img\" aria-label=\"",
                  html_escaped(plot_.y_label), " over ", html_escaped(plot_.x_label), "\">\n");
    draw_axes();
    for (const PlotSeries& series : plot_.series) draw(series);
    return out_ + "</svg>\n";
  }

 private:
  double scaled(double x) const { return plot_.logarithmic ? std::log10(x) : x; }
  double place_of(double x) const {
    const double share = (scaled(x) - x_.low) / (x_.high - x_.low);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  std::string at_x(double x) const { return units::fixed(place_of(x), 1); }
  std::string at_y(double y) const {
    const double share = (y_.high - y) / (y_.high - y_.low);
    return units::fixed(kTop + share * (kHeight - kTop - kBottom), 1);
  }
  void label(const std::string& x, const std::string& y, const char* anchor,
             const std::string& text) {
    out_ += concat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">",
                   html_escaped(text), "</text>\n");
  }
  void draw_axes() {
    const std::string left = units::fixed(kLeft, 1), right = units::fixed(kWidth - kRight, 1),
                      base = units::fixed(kHeight - kBottom, 1);
    for (const double y : round_ticks(y_)) {
      out_ += concat("<path class=\"grid\" d=\"M", left, " ", at_y(y), "H", right, "\"/>\n");
      out_ += concat("<g transform=\"translate(0 4)\">");
      label(units::fixed(kLeft - 7, 1), at_y(y), "end", tick_text(y));
      out_ += "</g>\n";
    }
    out_ += concat("<path class=\"axis\" d=\"M", left, " ", base, "H", right, "\"/>\n");
    double last = -kWidth;
    for (const double x : plot_.x_ticks.empty() ? round_ticks(x_) : plot_.x_ticks) {
      if (place_of(x) - last < kBetweenLabels) continue;
      last = place_of(x);
      label(at_x(x), units::fixed(kHeight - kBottom + 16, 1), "middle", tick_text(x));
    }
    label(units::fixed((kLeft + kWidth - kRight) / 2, 1), units::fixed(kHeight - 8, 1), "middle",
          plot_.x_label);
  }
  void draw(const PlotSeries& series) {
    out_ += concat("<g class=\"c", series.color % 8, "\">");
    std::string path;
    for (const auto& [x, y] : series.line)
      path += concat(path.empty() ? "M" : "L", at_x(x), " ", at_y(y));
    if (!path.empty()) out_ += concat("<path class=\"line\" d=\"", path, "\"/>");
    for (const auto& [x, y] : series.dots)
      out_ += concat("<circle r=\"4\" cx=\"", at_x(x), "\" cy=\"", at_y(y), "\"/>");
    for (const double x : series.crosses)
      out_ +=
          concat("<path class=\"line\" d=\"M", at_x(x), " ", kTop + 4, "m-4 -4l8 8m0 -8l-8 8\"/>");
    out_ += "</g>\n";
  }

  const Plot& plot_;
  Extent x_, y_;
  std::string out_;
};

}  // namespace

std::string svg_plot(const Plot& plot) { return Drawing(plot).text(); }

}  // namespace hybrid_trainer
