#include "src/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/optimizer_update.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {
namespace {

bool is_whole(const OptimizerConfig& config, std::int64_t step) {
  return (step - 1) % config.orthogonalization_period == 0;
}

std::int64_t block_rows(const OptimizerConfig& config, const Shape& shape) {
  const std::int64_t blocks = config.orthogonalization_blocks;
  return (std::min(shape[0], shape[1]) + blocks - 1) / blocks;
}

}  // namespace

float update_scale(const Shape& shape) {
  return 0.2f * std::sqrt(static_cast<float>(std::max(shape[0], shape[1])));
}

std::int64_t rows_together(const OptimizerConfig& config, const Shape& shape, std::int64_t step) {
  return is_whole(config, step) ? shape[0] : block_rows(config, shape);
}

DType products_of(const Parameter& parameter, const Stream& stream) {
  const bool fast = stream.device().type != DeviceType::kCpu || multiplies_bfloat16();
  return parameter.compute_dtype() == DType::kBF16 && fast ? DType::kBF16 : DType::kF32;
}

double orthogonalization_flops(const OptimizerConfig& config, const Parameter& matrix,
                               const Stream& stream) {
  const Shape& shape = matrix.shape();
  const DType products = products_of(matrix, stream);
  const double whole = Orthogonalizer::flops(shape, shape[0], products),
               blocks = Orthogonalizer::flops(shape, block_rows(config, shape), products);
  return blocks + (whole - blocks) / static_cast<double>(config.orthogonalization_period);
}

Orthogonalizer orthogonalizer_for(const std::vector<Parameter*>& parameters, const Stream& stream) {
  std::int64_t max_elements = 0, max_side = 0;
  for (const Parameter* parameter : parameters) {
    const Shape& shape = parameter->shape();
    if (shape.rank() != 2) {
      throw ShapeMismatch(concat("muon: matrix ", parameter->name(), " has shape ", shape.text(),
                                 "; want two dimensions"));
    }
    max_elements = std::max(max_elements, shape.elements());
    max_side = std::max(max_side, std::min(shape[0], shape[1]));
  }
  return {max_elements, max_side, stream};
}

void add_to_momentum(const Tensor& u, const Tensor& m, const Tensor& gradient,
                     const OptimizerConfig& config, float gradient_scale, const Stream& stream) {
  const Tensor squares = kernels::empty_result(stream);
  kernels::sum_of_squares(squares, {&gradient, 1}, stream);
  kernels::muon_momentum(u, m, gradient, squares, static_cast<float>(config.momentum),
                         gradient_scale, stream);
}

Muon::Muon(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
           const StateHome& home)
    : MomentumOptimizer(parameters, true, home), config_(config) {
  if (!parameters.empty()) orthogonalizer_.emplace(orthogonalizer_for(parameters, stream));
}

void Muon::update(const Slot& slot, const Tensor& gradient, float learning_rate,
                  float gradient_scale, const Stream& stream) {
  const Parameter& parameter = *slot.parameter;
  const Shape& shape = parameter.shape();
  const Tensor u = orthogonalizer_->input(shape[0], shape[1]);
  add_to_momentum(u, slot.m, gradient, config_, gradient_scale, stream);
  const std::int64_t together = rows_together(config_, shape, steps_);
  const Tensor update =
      orthogonalizer_->orthogonal_blocks(u, together, products_of(parameter, stream), stream);
  const UpdatedWeight weight(parameter, stream);
  kernels::decayed_step(weight.master, update, weight.compute_copy,
                        learning_rate * update_scale({together, shape[1]}),
                        1 - learning_rate * decay_of(parameter, config_.weight_decay), stream);
}

void Muon::write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                           const Stream& stream) {
  const Shape& shape = slot.parameter->shape();
  const Tensor u = orthogonalizer_->input(shape[0], shape[1]);
  copy(u, slot.m, stream);  // Nesterov's with g = 0, but for a factor that orthogonalising removes
  kernels::scale(direction,
                 orthogonalizer_->orthogonal(u, products_of(*slot.parameter, stream), stream),
                 -learning_rate * update_scale(shape), stream);
}

}  // namespace hybrid_trainer
