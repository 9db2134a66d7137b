#include "hybrid_trainer/kernels/window.h"

namespace hybrid_trainer::kernels {

std::int64_t Window::taps(int n) const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) count *= kernel[i];
  return count;
}

std::int64_t Window::outputs(std::size_t i, std::int64_t size) const {
  const std::int64_t free = size + 2 * padding[i] - reach(i);
  return free < 0 ? 0 : free / stride[i] + 1;
}

std::int64_t places_of(const Shape& x) {
  std::int64_t places = 1;
  for (int i = 1; i < x.rank() - 1; ++i) places *= x[i];
  return places;
}

Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels) {
  Shape shape{x[0]};
  for (int i = 0; i < spatial_rank(x); ++i)
    shape.append(window.outputs(static_cast<std::size_t>(i), x[i + 1]));
  shape.append(channels);
  return shape;
}

}  // namespace hybrid_trainer::kernels
