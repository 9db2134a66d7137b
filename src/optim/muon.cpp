#include "src/optim/muon.h"

#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/updates/optimizer_update.h"
#include "src/core/machine.h"

namespace hybrid_trainer {

namespace {

using kernels::GradientMode;
using kernels::Transpose;

constexpr int kSteps = 5;
constexpr float kA = 3.4445f;
constexpr float kB = -4.7750f;
constexpr float kC = 2.0315f;
constexpr double kNormFloor = 1e-7;

Tensor workspace(std::int64_t elements, const Stream& stream, DType dtype = DType::kF32) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

Tensor part(const Tensor& buffer, std::int64_t rows, std::int64_t columns) {
  return buffer.rows(0, rows * columns).view({rows, columns});
}

std::int64_t block_rows(const OptimizerConfig& config, const Shape& shape) {
  const std::int64_t blocks = config.orthogonalization_blocks;
  return (std::min(shape[0], shape[1]) + blocks - 1) / blocks;
}

/// Returns 0.2·√(larger side). An orthogonal (R, C) matrix has RMS 1/√max(R, C), an update of AdamW
/// about 0.2.
float update_scale(const Shape& shape) {
  return 0.2f * std::sqrt(static_cast<float>(std::max(shape[0], shape[1])));
}

/// Returns the number of rows that are orthogonalized together in step `step` (from 1): all or a
/// block's. Blocks consist of rows, because rows are contiguous and products of wide blocks are the
/// cheapest.
std::int64_t rows_together(const OptimizerConfig& config, const Shape& shape, std::int64_t step) {
  const bool is_whole = (step - 1) % config.orthogonalization_period == 0;
  return is_whole ? shape[0] : block_rows(config, shape);
}

/// Returns the phase's dtype (bf16 if weights have bf16 copies), or f32 if bf16 is slower here.
DType products_of(const Parameter& parameter, const Stream& stream) {
  const bool fast = stream.device().type != DeviceType::kCpu || multiplies_bfloat16();
  return parameter.compute_dtype() == DType::kBF16 && fast ? DType::kBF16 : DType::kF32;
}

/// Throws ShapeMismatch unless all are matrices.
Orthogonalizer orthogonalizer_for(const std::vector<Parameter*>& parameters, const Stream& stream) {
  std::int64_t max_elements = 0, max_side = 0;
  for (const Parameter* parameter : parameters) {
    const Shape& shape = parameter->shape();
    if (shape.rank() != 2)
      throw ShapeMismatch(concat("muon: matrix ", parameter->name(), " has shape ", shape.text(),
                                 "; want two dimensions"));
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

/// Predictor for Muon. With device_side "anticipated", `base` includes the orthogonalized momentum
/// of each pending update, and the device adds the first-order effect of the gradients in flight.
/// With "sketch", the device orthogonalizes the 8-bit momentum together with the gradients.
class MuonPredictor : public UpdatePredictor {
 public:
  explicit MuonPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches), room_(updates.parameters) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.base = empty_part(parameter.shape(), stream);
      forecast.squares = empty_part({1}, stream, DType::kF64);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float> rates, const Stream& stream) override {
    if (forecast.exact) copy_or_wait(forecast.exact, state.master, stream);
    if (sketches_) return write_codes(forecast, state.m, stream);
    const double decay = decay_of(state.parameter, config_.weight_decay);
    const Shape& shape = state.parameter.shape();
    std::map<std::int64_t, double> rate_by_rows;  // rows that are orthogonalized together
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const std::int64_t step = state.steps + 1 + static_cast<std::int64_t>(i);
      rate_by_rows[rows_together(config_, shape, step)] +=
          static_cast<double>(rates[i]) * decay_factor(rates.subspan(i + 1), decay);
    }
    kernels::sum_of_squares(forecast.squares, {&state.m, 1}, stream);
    fill_zero(forecast.base, stream);
    // Orthogonalization ignores a factor, so all pending updates have the same momentum direction.
    for (const auto& [rows, rate] : rate_by_rows) {
      const Tensor u = input(state.parameter, stream);
      kernels::scale(u, state.m, 1, stream);
      kernels::axpy(forecast.base, forecast.base,
                    static_cast<float>(-rate) * update_scale({rows, shape[1]}),
                    orthogonal(u, rows, state.parameter, stream), stream);
    }
    add_decayed(forecast.base, state.master, decay_factor(rates, decay), stream);
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    const auto momentum = static_cast<float>(config_.momentum);
    const float scale = update_scale(parameter.shape());
    const float decay = decay_of(parameter, config_.weight_decay);
    if (sketches_) {
      compose_sketch(live, parameter, forecast.steps, here, gradients, stream);
      return;
    }
    const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(gradients.size()));
    const Tensor squares = Tensor::empty({count}, DType::kF64, MemoryKind::kWorkspace, stream);
    kernels::in_flight_squares(squares.rows(0, static_cast<std::int64_t>(gradients.size())),
                               gradients, momentum, stream);
    kernels::predicted_muon(live, here.base, here.squares,
                            squares.rows(0, static_cast<std::int64_t>(gradients.size())), gradients,
                            momentum, scale, decay, stream);
  }
  void free_workspace() override { orthogonalizer_.reset(); }

 private:
  void compose_sketch(const Tensor& live, const Parameter& parameter, std::int64_t steps,
                      const StagedForecast& here,
                      std::span<const kernels::GradientInFlight> gradients, const Stream& stream) {
    const auto workspace = [&] {
      return Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    };
    const Tensor weight = workspace(), m = workspace();
    kernels::cast(weight, here.base, stream);
    kernels::dequantize(m, here.momentum, here.scales, kernels::QuantizationMap::kSigned, stream);
    const float decay = decay_of(parameter, config_.weight_decay);
    for (const kernels::GradientInFlight& flying : gradients) {
      const Tensor u = input(parameter, stream);
      add_to_momentum(u, m, flying.gradient, config_, flying.scale, stream);
      const Shape& shape = parameter.shape();
      const std::int64_t rows = rows_together(config_, shape, ++steps);
      kernels::decayed_step(weight, orthogonal(u, rows, parameter, stream), {},
                            flying.learning_rate * update_scale({rows, shape[1]}),
                            1 - flying.learning_rate * decay, stream);
    }
    kernels::cast(live, weight, stream);
  }
  Tensor input(const Parameter& parameter, const Stream& stream) {
    if (!orthogonalizer_) orthogonalizer_.emplace(orthogonalizer_for(room_, stream));
    return orthogonalizer_->input(parameter.shape()[0], parameter.shape()[1]);
  }
  Tensor orthogonal(const Tensor& u, std::int64_t rows, const Parameter& parameter,
                    const Stream& stream) {
    return orthogonalizer_->orthogonal_blocks(u, rows, products_of(parameter, stream), stream);
  }

  OptimizerConfig config_;
  bool sketches_;
  std::vector<Parameter*> room_;
  std::optional<Orthogonalizer> orthogonalizer_;  // created on first use
};

}  // namespace

Orthogonalizer::Orthogonalizer(std::int64_t max_elements, std::int64_t max_side,
                               const Stream& stream)
    : input_(workspace(max_elements, stream)),
      other_(workspace(max_elements, stream)),
      gram_(workspace(max_side * max_side, stream)),
      polynomial_(workspace(max_side * max_side, stream)) {}

Tensor Orthogonalizer::input(std::int64_t rows, std::int64_t columns) const {
  return part(input_, rows, columns);
}

/// Returns the operand for products with `matrix`: its rounded copy, or in f32 the matrix itself.
Tensor Orthogonalizer::factor(const Tensor& matrix, const Tensor& rounded,
                              const Stream& stream) const {
  if (!rounded) return matrix;
  const Tensor copy = part(rounded, matrix.size(0), matrix.size(1));
  kernels::cast(copy, matrix, stream);
  return copy;
}

Tensor Orthogonalizer::orthogonal_blocks(const Tensor& matrix, std::int64_t block_rows,
                                         DType products, const Stream& stream) {
  const std::int64_t rows = matrix.size(0);
  const Tensor result = part(other_, rows, matrix.size(1));
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t end = std::min(rows, begin + block_rows);
    orthogonalize(result.rows(begin, end), matrix.rows(begin, end), products, stream);
  }
  return result;
}

bool Orthogonalizer::iterates_on_gram(const Shape& matrix, DType products) {
  const std::int64_t side = std::min(matrix[0], matrix[1]);
  return products == DType::kF32 && matrix.elements() >= 2 * side * side;
}

void Orthogonalizer::orthogonalize(const Tensor& result, const Tensor& matrix, DType products,
                                   const Stream& stream) {
  const Tensor squares = kernels::empty_result(stream);
  kernels::sum_of_squares(squares, {&matrix, 1}, stream);
  kernels::normalize(matrix, matrix, squares, kNormFloor, stream);
  if (iterates_on_gram(matrix.shape(), products)) {
    iterate_on_gram(result, matrix, stream);
  } else {
    iterate(result, matrix, products, stream);
  }
}

/// Iterates on A = X·Xᵀ only. With P = a + M, M = b·A + c·A²: A ← P·A·P, and Q = q + N ← P·Q; the
/// result is Q·X. All are polynomials of the first A, so they commute. An eigenvalue of −δ from
/// rounding, δ near 1e-7, grows to a⁸·δ = 0.002 in the four steps, which is negligible next to a.
/// `result` is scratch memory until the end.
void Orthogonalizer::iterate_on_gram(const Tensor& result, const Tensor& x, const Stream& stream) {
  const std::int64_t rows = x.size(0), columns = x.size(1), side = std::min(rows, columns);
  const bool wide = rows <= columns;
  const Tensor scratch = result.view({result.elements()}),
               polynomial = part(polynomial_, side, side);
  const Tensor gram = part(scratch, side, side);
  Tensor q = part(gram_, side, side),
         next = part(scratch.rows(side * side, result.elements()), side, side);
  const auto multiply = [&](const Tensor& c, const Tensor& a, const Tensor& b, GradientMode mode) {
    kernels::matmul(c, a, Transpose::kNo, b, Transpose::kNo, mode, stream);
  };
  kernels::matmul(gram, x, wide ? Transpose::kNo : Transpose::kYes, x,
                  wide ? Transpose::kYes : Transpose::kNo, GradientMode::kOverwrite, stream);
  static_assert(kSteps % 2 == 1);  // so that q ends in gram_
  float identity = 1;              // Q = q + identity·I
  for (int step = 0; step < kSteps; ++step) {
    const Tensor m = step == 0 ? q : polynomial;
    multiply(m, gram, gram, GradientMode::kOverwrite);
    kernels::scale(m, m, kC, stream);
    kernels::axpy(m, m, kB, gram, stream);
    if (step > 0) {
      kernels::scale(next, q, kA, stream);
      kernels::axpy(next, next, identity, m, stream);
      multiply(next, m, q, GradientMode::kAccumulate);
      std::swap(q, next);
    }
    identity *= kA;
    if (step + 1 == kSteps) break;
    kernels::scale(next, gram, kA, stream);
    multiply(next, m, gram, GradientMode::kAccumulate);
    kernels::scale(gram, next, kA, stream);
    multiply(gram, next, m, GradientMode::kAccumulate);
  }
  kernels::scale(result, x, identity, stream);
  multiply(result, wide ? q : x, wide ? x : q, GradientMode::kAccumulate);
}

/// Iterates on X. Each step writes X to the other buffer, so `result` has X after an odd number of
/// steps.
void Orthogonalizer::iterate(const Tensor& result, const Tensor& matrix, DType products,
                             const Stream& stream) {
  static_assert(kSteps % 2 == 1);
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  const std::int64_t side = std::min(rows, columns);
  const bool wide = rows <= columns;  // uses the smaller of X·Xᵀ and Xᵀ·X
  const bool rounds = products == DType::kBF16;
  if (rounds && !rounded_input_) {
    rounded_input_ = workspace(input_.elements(), stream, DType::kBF16);
    rounded_gram_ = workspace(gram_.elements(), stream, DType::kBF16);
  }
  const Tensor rounded_x = rounds ? rounded_input_ : Tensor{};
  const Tensor rounded_square = rounds ? rounded_gram_ : Tensor{};
  const Tensor gram = part(gram_, side, side), polynomial = part(polynomial_, side, side);
  Tensor x = matrix, next = result;

  for (int step = 0; step < kSteps; ++step) {
    const Tensor x_factor = factor(x, rounded_x, stream);
    kernels::matmul(gram, x_factor, wide ? Transpose::kNo : Transpose::kYes, x_factor,
                    wide ? Transpose::kYes : Transpose::kNo, GradientMode::kOverwrite, stream);
    const Tensor gram_factor = factor(gram, rounded_square, stream);
    kernels::matmul(polynomial, gram_factor, Transpose::kNo, gram_factor, Transpose::kNo,
                    GradientMode::kOverwrite, stream);
    kernels::scale(polynomial, polynomial, kC, stream);
    kernels::axpy(polynomial, polynomial, kB, gram, stream);
    kernels::scale(next, x, kA, stream);
    const Tensor polynomial_factor = factor(polynomial, rounded_square, stream);
    kernels::matmul(next, wide ? polynomial_factor : x_factor, Transpose::kNo,
                    wide ? x_factor : polynomial_factor, Transpose::kNo, GradientMode::kAccumulate,
                    stream);
    std::swap(x, next);
  }
}

double Orthogonalizer::flops(const Shape& matrix, std::int64_t block_rows, DType products) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < matrix[0]; begin += block_rows) {
    const Shape block{std::min(block_rows, matrix[0] - begin), matrix[1]};
    const auto side = static_cast<double>(std::min(block[0], block[1])),
               long_product = 2 * side * static_cast<double>(block.elements()),
               short_product = 2 * side * side * side;
    sum += iterates_on_gram(block, products) ? 2 * long_product + (4 * kSteps - 3) * short_product
                                             : kSteps * (2 * long_product + short_product);
  }
  return sum;
}

double orthogonalization_flops(const OptimizerConfig& config, const Parameter& matrix,
                               const Stream& stream) {
  const Shape& shape = matrix.shape();
  const DType products = products_of(matrix, stream);
  const double whole = Orthogonalizer::flops(shape, shape[0], products),
               blocks = Orthogonalizer::flops(shape, block_rows(config, shape), products);
  return blocks + (whole - blocks) / static_cast<double>(config.orthogonalization_period);
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
  // Nesterov momentum for g = 0, up to a factor that orthogonalization removes
  copy(u, slot.m, stream);
  kernels::scale(direction,
                 orthogonalizer_->orthogonal(u, products_of(*slot.parameter, stream), stream),
                 -learning_rate * update_scale(shape), stream);
}

std::unique_ptr<UpdatePredictor> make_muon_predictor(const PredictedUpdates& updates) {
  return std::make_unique<MuonPredictor>(updates);
}

}  // namespace hybrid_trainer
