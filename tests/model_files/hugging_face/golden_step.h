#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/network.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {

/// Allowed relative difference from transformers.
constexpr double kOfTransformers = 1e-4;

/// One step's results from transformers.
struct GoldenStep {
  double loss = 0;
  std::function<std::vector<double>(const Parameter&)> gradient_of;  // in our order of rows
};

/// Gradient of all parts of a parameter, in our order of rows; padding rows are zeros. `load`
/// returns the gradient of a part in file order.
inline std::vector<double> gradient_of_parts(const Parameter& parameter,
                                             const std::function<Tensor(const FileTensor&)>& load,
                                             const Stream& stream) {
  std::vector<double> gradient;
  for (const FileTensor& part : parameter.in_files()) {
    const Tensor here = Tensor::empty({part.rows(), part.shape.elements() / part.rows()},
                                      DType::kF32, MemoryKind::kData, stream);
    take_from_file(here, load(part).view(part.shape), part);
    const auto values = values_of(here);
    gradient.insert(gradient.end(), values.begin(), values.end());
  }
  gradient.resize(static_cast<std::size_t>(parameter.elements()), 0.0);
  return gradient;
}

/// Compares a step with `wanted`. Expects the same bits for each recomputed share in `shares`.
inline void expect_step(LossModel& model, const Batch& batch, const GoldenStep& wanted,
                        std::initializer_list<double> shares, const Stream& stream) {
  const std::vector<Parameter*> parameters = trainable_parameters(model);
  StepGradients gradients(
      [&](const ParameterVisitor& visit) {
        for (Parameter* const parameter : parameters) visit(*parameter);
      },
      stream);
  std::map<std::string, std::vector<double>> first;
  for (const double share : shares) {
    gradients.begin();
    PlainTape tape(Pass{.recompute = share});
    const double loss = kernels::wait_for_value(model.forward(batch, 1, tape, stream), stream);
    model.backward(batch, tape, stream);
    EXPECT_TRUE(tape.empty());
    EXPECT_NEAR(loss, wanted.loss, kOfTransformers * loss);
    for (Parameter* const parameter : parameters) {
      const std::vector<double> values = values_of(parameter->gradient());
      const auto [known, is_new] = first.emplace(parameter->name(), values);
      EXPECT_EQ(values, known->second) << parameter->name() << " at " << share;
      if (!is_new) continue;
      EXPECT_LT(relative_error(values, wanted.gradient_of(*parameter)), kOfTransformers)
          << parameter->name();
    }
  }
}

}  // namespace hybrid_trainer::testing
