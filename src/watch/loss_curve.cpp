#include "src/watch/loss_curve.h"

#include <algorithm>
#include <cmath>

namespace hybrid_trainer {
namespace {

double mean_loss(const CurvePoint& point) {
  return point.loss_sum / static_cast<double>(point.finite_losses);
}

}  // namespace

std::size_t LossCurve::column(std::int64_t step, std::size_t columns) const {
  if (last <= first || columns == 0) return 0;
  const double share = static_cast<double>(std::clamp(step, first, last) - first) /
                       static_cast<double>(last - first);
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(columns - 1)));
}

LossCurve loss_curve(const Curves& curves, std::size_t columns) {
  LossCurve curve;
  curve.values.resize(columns);
  const auto& points = curves.points();
  if (points.empty()) return curve;
  curve.first = points.front().last_step - points.front().step_count() + 1;
  curve.last = points.back().last_step;
  std::vector<double> losses, sums(columns);
  std::vector<int> counts(columns);
  for (const CurvePoint& point : points) {
    if (point.finite_losses == 0) continue;
    losses.push_back(mean_loss(point));
    const std::size_t column = curve.column(point.last_step, columns);
    sums[column] += losses.back();
    ++counts[column];
  }
  if (losses.empty()) return curve;
  for (std::size_t i = 0; i < columns; ++i)
    if (counts[i] > 0) curve.values[i] = sums[i] / counts[i];
  std::ranges::sort(losses);
  const std::size_t top = losses.size() - 1;
  curve.low = losses.front();
  curve.high = losses[losses.size() < 60 ? top : top * 985 / 1000];  // without a first spike
  for (const CurveMark& mark : curves.validation()) curve.low = std::min(curve.low, mark.value);
  return curve;
}

std::string sparkline(const Curves& curves, std::size_t columns) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const LossCurve curve = loss_curve(curves, columns);
  std::string text;
  for (const std::optional<double>& value : curve.values) {
    const double span = curve.high > curve.low ? curve.high - curve.low : 1;
    if (value) {
      const double share = std::clamp((*value - curve.low) / span, 0., 1.);
      text += kHeights[std::lround(7 * share)];
    } else {
      text += " ";
    }
  }
  return text;
}

}  // namespace hybrid_trainer
