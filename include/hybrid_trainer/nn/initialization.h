#pragma once

#include <cstdint>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Standard deviations of a model's first weights.
struct FirstDeviations {
  double embedding = 0.02;
  double matrix = 0.02;
  double projection = 0.02;  // of the products that end the branches
};

/// Fills the parameter with normally distributed values of the given standard deviation, drawn from
/// (seed, parameter's name).
void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream);
/// Uniform in [-bound, bound).
void initialize_uniform(Parameter& parameter, double bound, std::uint64_t seed,
                        const Stream& stream);
/// The logarithms of rates of decay that are uniform in [1, 16), as Mamba-2's "A_log".
void initialize_log_rates(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Biases b with softplus(b) log-uniform in [0.001, 0.1), as Mamba-2's "dt_bias".
void initialize_step_biases(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Positions of a table (places, width): sines in a row's first half, cosines in its second, with
/// wavelengths from 2π to 10,000·2π. Throws ShapeMismatch where the width is odd.
void initialize_sinusoids(Parameter& parameter, const Stream& stream);
void initialize_constant(Parameter& parameter, float value, const Stream& stream);

/// FNV-1a: a name's hash is the same in every run and build.
std::uint64_t hash_of_name(const std::string& name);

}  // namespace hybrid_trainer
