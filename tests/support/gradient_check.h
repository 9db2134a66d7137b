#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/activation_tape.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer::testing {

/// A module as a scalar function of its input and parameters, and the gradients of that scalar.
struct Differentiable {
  Tensor x;                                         // f32 input; undefined if it has no gradient
  std::function<double(ActivationTape&)> forward;   // the scalar
  std::function<Tensor(ActivationTape&)> backward;  // the gradient with respect to x
  std::function<void(const ParameterVisitor&)> visit_parameters;
  Pass pass{};
};

/// Reduces a module's output tensor to a scalar: a fixed random projection, summed in double.
inline double projected(const Tensor& y, const Stream& stream) {
  return dot(values_of(y), values_of(normal_tensor(y.shape(), 77, stream)));
}
inline Tensor projection_gradient(const Shape& shape, const Stream& stream) {
  return normal_tensor(shape, 77, stream);
}

/// Initializes weights, gains and biases randomly: special values such as 0 and 1 hide errors.
inline void randomize(const std::function<void(const ParameterVisitor&)>& visit_parameters,
                      const Stream& stream) {
  std::uint64_t seed = 100;
  visit_parameters([&](Parameter& parameter) {
    const Shape& shape = parameter.shape();
    const auto inputs = static_cast<float>(shape[shape.rank() - 1]);
    const float size = parameter.role() == Role::kVector ? 0.5f : 1.0f / std::sqrt(inputs);
    copy(master_of(parameter), normal_tensor(shape, seed++, stream, size), stream);
  });
}

inline double loss_of(const Differentiable& f) {
  ForwardOnlyTape tape(f.pass);
  return f.forward(tape);
}

/// Returns the directional derivative of f at tensor t by the five-point rule, with error O(step⁴).
inline double derivative_along(const Differentiable& f, const Tensor& t,
                               const std::vector<double>& direction, double step) {
  const std::vector<double> at = values_of(t);
  const auto value = [&](double distance) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      t.data<float>()[i] = static_cast<float>(at[i] + distance * direction[i]);
    }
    return loss_of(f);
  };
  const double derivative =
      (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (12 * step);
  for (std::size_t i = 0; i < at.size(); ++i) t.data<float>()[i] = static_cast<float>(at[i]);
  return derivative;
}

struct GradientTolerance {
  double step = 1e-2;
  double relative =
      5e-4;  // of the gradient's norm, the typical derivative along a standard normal direction
  int directions = 3;
};

/// Compares each tensor's gradient with finite differences along random directions.
inline void expect_derivatives(const Differentiable& f, const Tensor& t, const Tensor& gradient,
                               const std::string& name, const GradientTolerance& tolerance,
                               const Stream& stream) {
  const std::vector<double> analytic = values_of(gradient);
  const double norm = std::sqrt(dot(analytic, analytic));
  EXPECT_GT(norm, 0) << name;
  for (int k = 0; k < tolerance.directions; ++k) {
    const auto direction =
        values_of(normal_tensor(t.shape(), 500 + static_cast<std::uint64_t>(k), stream));
    const double measured = derivative_along(f, t, direction, tolerance.step);
    EXPECT_NEAR(dot(analytic, direction), measured, tolerance.relative * norm)
        << name << ", direction " << k;
  }
}

/// Runs forward and backward of f and returns the gradient of x. Expects an empty tape afterwards.
inline Tensor run_backward(const Differentiable& f) {
  PlainTape tape(f.pass);
  f.forward(tape);
  Tensor dx = f.backward(tape);
  EXPECT_TRUE(tape.empty()) << "backward left something on the tape";
  return dx;
}

/// Expects the gradients of x and of every parameter to match finite differences.
inline void expect_gradients_match(const Differentiable& f, const Stream& stream,
                                   GradientTolerance tolerance = {}) {
  const StepGradients gradients(f.visit_parameters, stream);
  const Tensor dx = run_backward(f);
  if (f.x) expect_derivatives(f, f.x, dx, "input", tolerance, stream);
  f.visit_parameters([&](Parameter& parameter) {
    ASSERT_TRUE(parameter.gradient().defined()) << parameter.name();
    expect_derivatives(f, master_of(parameter), parameter.gradient(), parameter.name(), tolerance,
                       stream);
  });
}

}  // namespace hybrid_trainer::testing
