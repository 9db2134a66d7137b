#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/kernels/convolution.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

/// Draws integers for shapes.
class ShapeDraws {
 public:
  explicit ShapeDraws(std::uint64_t seed) : seed_(seed) {}
  /// Returns an integer in [least, most].
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_below(
                       {seed_, 7, 0}, count_++, static_cast<std::uint64_t>(most - least + 1)));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// x (B, D1..Dn, C) and a window over it.
struct WindowCase {
  Shape x;
  Window window{};

  int rank() const { return x.rank() - 2; }
  std::int64_t channels() const { return x[x.rank() - 1]; }
  std::string text() const {
    std::string text = "x " + x.text() + ", window";
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank()); ++i)
      text += concat(" k", window.kernel[i], " s", window.stride[i], " p", window.padding[i], " d",
                     window.dilation[i]);
    return text;
  }
};

/// Calls visit(example, window, tap, place), of indices, for each element that a window reads.
inline void for_each_read(
    const WindowCase& of,
    const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& visit) {
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  for (int i = 0; i < of.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    in[i] = of.x[i + 1];
    kernel[i] = of.window.kernel[at];
    const std::int64_t reach = (kernel[i] - 1) * of.window.dilation[at] + 1;
    out[i] = (in[i] + 2 * of.window.padding[at] - reach) / of.window.stride[at] + 1;
  }
  const auto place = [&](std::size_t i, std::int64_t window, std::int64_t tap) {
    if (static_cast<int>(i) >= of.rank()) return window;
    return window * of.window.stride[i] - of.window.padding[i] + tap * of.window.dilation[i];
  };
  for (std::int64_t b = 0; b < of.x[0]; ++b)
    for (std::int64_t o = 0; o < out[0] * out[1] * out[2]; ++o)
      for (std::int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k) {
        const std::int64_t i0 = place(0, o / (out[1] * out[2]), k / (kernel[1] * kernel[2])),
                           i1 = place(1, o / out[2] % out[1], k / kernel[2] % kernel[1]),
                           i2 = place(2, o % out[2], k % kernel[2]);
        if (i0 < 0 || i0 >= in[0] || i1 < 0 || i1 >= in[1] || i2 < 0 || i2 >= in[2]) continue;
        visit(b, o, k, (i0 * in[1] + i1) * in[2] + i2);
      }
}

/// Expects a small largest error, relative to the largest wanted value: sums of many terms of both
/// signs have the error of their terms.
inline void expect_near_all(const Tensor& tensor, const Values& wanted, double tolerance,
                            const std::string& what) {
  const Values values = values_of(tensor);
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double worst = 0, most = 1e-30;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(values[i] - wanted[i]);
    if (!(error <= worst)) worst = error;
    most = std::max(most, std::abs(wanted[i]));
  }
  EXPECT_LE(worst, tolerance * most) << what;
}

/// Draws a window over random sizes, at most `space` in each dimension. Includes odd sizes, strides
/// larger than the kernel, and padding up to the maximum.
inline WindowCase random_window(ShapeDraws& draws, std::int64_t space, std::int64_t most_channels,
                                bool pooling) {
  const std::int64_t rank = draws.between(1, 3);
  for (;;) {
    WindowCase one{{draws.between(1, 3)}};
    bool fits = true;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
      const std::int64_t most = rank == 1 ? 4 * space : space;
      one.x.append(draws.between(1, most));
      const int dimension = static_cast<int>(i) + 1;
      one.window.kernel[i] = draws.between(1, 4);
      one.window.stride[i] = draws.between(1, 4);
      one.window.dilation[i] = draws.between(1, 6) == 1 ? draws.between(2, 3) : 1;
      one.window.padding[i] = pooling ? draws.between(0, one.window.kernel[i] / 2)
                                      : draws.between(0, one.window.reach(i) - 1);
      fits = fits && one.window.outputs(i, one.x[dimension]) > 0;
    }
    one.x.append(draws.between(1, most_channels));
    if (fits) return one;
  }
}

}  // namespace hybrid_trainer::kernels
