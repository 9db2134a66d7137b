#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

struct PlotSeries {
  std::size_t colour = 0;  // a style class "c0" to "c7"
  std::vector<std::pair<double, double>> line, dots;
  std::vector<double> crosses;  // x of what has no finite y
};

struct Plot {
  std::string x_label, y_label;
  bool logarithmic = false;     // of x, which is then above 0
  std::vector<double> x_ticks;  // chosen by the plot where empty
  std::vector<PlotSeries> series;
};

/// An inline <svg> with axes; "" where no series has a point.
std::string svg_plot(const Plot& plot);

}  // namespace hybrid_trainer
