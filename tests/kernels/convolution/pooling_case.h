#pragma once

#include <limits>

#include "hybrid_trainer/kernels/convolution.h"
#include "tests/kernels/convolution/window_case.h"

namespace hybrid_trainer::kernels {

/// Mean or maximum of windows, and the gradient of x, in double by definition.
struct PoolingReference {
  Values y, dx, places;

  /// `divisor`: for the mean. Without it, computes maxima.
  PoolingReference(const WindowCase& of, const Values& x, const Values& dy, const Divisor* divisor)
      : y(dy.size(), divisor != nullptr ? 0 : -std::numeric_limits<double>::infinity()),
        dx(x.size(), 0.0),
        places(dy.size(), -1.0) {
    const std::int64_t channels = of.channels();
    const std::int64_t windows = static_cast<std::int64_t>(dy.size()) / channels / of.x[0],
                       inputs = static_cast<std::int64_t>(x.size()) / channels / of.x[0];
    Values counts(static_cast<std::size_t>(of.x[0] * windows), 0.0);
    const auto each = [&](const auto& visit) {
      for_each_read(of, [&](std::int64_t b, std::int64_t window, std::int64_t, std::int64_t place) {
        for (std::int64_t c = 0; c < channels; ++c)
          visit(static_cast<std::size_t>((b * windows + window) * channels + c),
                static_cast<std::size_t>((b * inputs + place) * channels + c), place);
      });
    };
    each([&](std::size_t to, std::size_t from, std::int64_t place) {
      if (divisor != nullptr) {
        y[to] += x[from];
        if (to % static_cast<std::size_t>(channels) == 0)
          ++counts[to / static_cast<std::size_t>(channels)];
      } else if (x[from] > y[to]) {
        y[to] = x[from], places[to] = static_cast<double>(place);
      }
    });
    const auto count = [&](std::size_t to) {
      return *divisor == Divisor::kWindow ? static_cast<double>(of.window.taps(of.rank()))
                                          : counts[to / static_cast<std::size_t>(channels)];
    };
    each([&](std::size_t to, std::size_t from, std::int64_t place) {
      if (divisor != nullptr) {
        dx[from] += dy[to] / count(to);
      } else if (places[to] == static_cast<double>(place)) {
        dx[from] += dy[to];
      }
    });
    for (std::size_t i = 0; divisor != nullptr && i < y.size(); ++i) y[i] /= count(i);
  }
};

}  // namespace hybrid_trainer::kernels
