#pragma once

#include <cstdint>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Fills the parameter with normally distributed values of the given standard deviation, drawn from
/// (seed, parameter's name).
void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream);
void initialize_constant(Parameter& parameter, float value, const Stream& stream);

/// A parameter with f32 memory for its value and none for its gradient.
Parameter make_parameter(const std::string& name, const Shape& shape, const Stream& stream);

/// Allocates gradients for parameters that have none; and frees them.
void allocate_gradients(const std::function<void(const ParameterVisitor&)>& visit_all,
                        const Stream& stream);
void free_gradients(const std::function<void(const ParameterVisitor&)>& visit_all);

}  // namespace hybrid_trainer
