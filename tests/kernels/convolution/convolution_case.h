#pragma once

#include "hybrid_trainer/kernels/convolution.h"
#include "tests/kernels/convolution/window_case.h"

namespace hybrid_trainer::kernels {

/// Sizes of a convolution, with its result and gradients in double by definition.
struct ConvolutionSizes {
  WindowCase of;
  std::int64_t outputs = 1, groups = 1;
  bool bias = false;

  Shape weight() const { return {outputs, of.window.taps(of.rank()) * of.channels() / groups}; }
  Shape y() const { return window_outputs(of.x, of.window, outputs); }
  std::string text() const {
    return concat(of.text(), ", ", outputs, " outputs, ", groups, " groups");
  }
};

struct ConvolutionReference {
  Values y, dx, dweight, dbias;

  ConvolutionReference(const ConvolutionSizes& sizes, const Values& x, const Values& weight,
                       const Values& bias, const Values& dy)
      : y(dy.size(), 0.0),
        dx(x.size(), 0.0),
        dweight(weight.size(), 0.0),
        dbias(static_cast<std::size_t>(sizes.outputs), 0.0) {
    const std::int64_t channels = sizes.of.channels(), outputs = sizes.outputs,
                       of_group = channels / sizes.groups,
                       outputs_of_group = outputs / sizes.groups;
    const std::int64_t windows = static_cast<std::int64_t>(dy.size()) / outputs / sizes.of.x[0],
                       places = static_cast<std::int64_t>(x.size()) / channels / sizes.of.x[0];
    const std::int64_t columns = sizes.weight()[1];
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const std::size_t output = i % static_cast<std::size_t>(outputs);
      if (!bias.empty()) y[i] = bias[output];
      dbias[output] += dy[i];
    }
    for_each_read(
        sizes.of, [&](std::int64_t b, std::int64_t window, std::int64_t tap, std::int64_t place) {
          for (std::int64_t o = 0; o < outputs; ++o) {
            const auto to = static_cast<std::size_t>((b * windows + window) * outputs + o);
            for (std::int64_t c = 0; c < of_group; ++c) {
              const auto from = static_cast<std::size_t>((b * places + place) * channels +
                                                         o / outputs_of_group * of_group + c);
              const auto w = static_cast<std::size_t>(o * columns + tap * of_group + c);
              y[to] += weight[w] * x[from];
              dx[from] += weight[w] * dy[to];
              dweight[w] += x[from] * dy[to];
            }
          }
        });
  }
};

}  // namespace hybrid_trainer::kernels
