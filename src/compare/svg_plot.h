#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

struct PlotSeries {
  std::size_t color = 0;  // style class "c0" to "c7"
  std::vector<std::pair<double, double>> line, dots;
  std::vector<double> crosses;  // x of points without a finite y
};

struct Plot {
  std::string x_label, y_label;
  bool logarithmic = false;     // whether the x axis is logarithmic; x must then be positive
  std::vector<double> x_ticks;  // if empty, chosen by the plot
  std::vector<PlotSeries> series;
};

/// Returns an inline <svg> with axes. Returns "" if no series has a point.
std::string svg_plot(const Plot& plot);

}  // namespace hybrid_trainer
