#include "kernels/generated/predicted_update.h"

#include "kernels/backend/dispatch.h"
#include "kernels/quantized/quantization.h"

namespace hybrid_trainer::kernels {

namespace {

void check_f32(const KernelCall& call, const NamedTensor& argument, const Shape& wanted) {
  check_shape(call, argument, wanted, DType::kF32);
}

void check_f64(const KernelCall& call, const NamedTensor& argument, std::int64_t elements) {
  check_shape(call, argument, {elements}, DType::kF64);
}

/// Checks the row and column factors of a matrix x.
void check_factors(const KernelCall& call, const NamedTensor& rows, const NamedTensor& columns,
                   const Tensor& x) {
  const Shape matrix = x.as_rows().shape();
  check_f32(call, rows, {matrix[0]});
  check_f32(call, columns, {matrix[1]});
}

void check_momentum(const KernelCall& call, const StartingMomentum& m, const Shape& wanted) {
  if (!m.values) return;
  if (m.values.dtype() != DType::kU8) return check_f32(call, {"m", m.values}, wanted);
  check_shape(call, {"m", m.values}, wanted);
  check_f32(call, {"m_scales", m.scales}, {quantization_blocks(wanted.elements())});
}

void check_gradients(const KernelCall& call, std::span<const GradientInFlight> gradients,
                     const Shape& wanted) {
  if (gradients.size() > kMaxInFlight)
    throw Error(ExitCode::kInternal, concat(call.kernel, ": got ", gradients.size(),
                                            " gradients in flight, want at most ", kMaxInFlight));
  for (const GradientInFlight& one : gradients) check_f32(call, {"gradient", one.gradient}, wanted);
}

void check_prediction(const KernelCall& call, const Tensor& w, const Tensor& base,
                      std::span<const GradientInFlight> gradients) {
  check_dtype(call, {"base", base}, DType::kF32);
  check_real(call, {"w", w});
  check_shape(call, {"w", w}, base.shape());
  check_gradients(call, gradients, base.shape());
}

}  // namespace

void row_and_column_means(const Tensor& rows, const Tensor& columns, const Tensor& x, float scale,
                          bool squares, const Stream& stream) {
  const KernelCall call{"row_and_column_means", stream, Work::kOptimizer};
  check_dtype(call, {"x", x}, DType::kF32);
  check_factors(call, {"rows", rows}, {"columns", columns}, x);
  dispatch_with_workspace<cpu::row_and_column_means, cuda::row_and_column_means>(
      call, rows, columns, x, scale, squares);
}

void predicted_adamw(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                     const Tensor& v_rows, const Tensor& v_columns,
                     std::span<const GradientInFlight> gradients, bool decays_base,
                     const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"predicted_adamw", stream, Work::kOptimizer};
  check_prediction(call, w, base, gradients);
  check_momentum(call, m, base.shape());
  require(settings.step >= 0, "predicted_adamw: step must be at least 0");
  if (settings.step > 0) check_factors(call, {"v_rows", v_rows}, {"v_columns", v_columns}, base);
  for (const GradientInFlight& one : gradients) {
    if (one.rows || one.columns)
      check_factors(call, {"rows", one.rows}, {"columns", one.columns}, base);
  }
  dispatch<cpu::predicted_adamw, cuda::predicted_adamw>(call, w, base, m, v_rows, v_columns,
                                                        gradients, decays_base, settings);
}

void predicted_lion(const Tensor& w, const Tensor& base, const StartingMomentum& m,
                    std::span<const GradientInFlight> gradients, bool decays_base,
                    const LionSettings& settings, const Stream& stream) {
  const KernelCall call{"predicted_lion", stream, Work::kOptimizer};
  check_prediction(call, w, base, gradients);
  check_momentum(call, m, base.shape());
  dispatch<cpu::predicted_lion, cuda::predicted_lion>(call, w, base, m, gradients, decays_base,
                                                      settings);
}

void in_flight_squares(const Tensor& squares, std::span<const GradientInFlight> gradients,
                       float momentum, const Stream& stream) {
  const KernelCall call{"in_flight_squares", stream, Work::kOptimizer};
  if (gradients.empty()) return;
  check_gradients(call, gradients, gradients.front().gradient.shape());
  check_f64(call, {"squares", squares}, static_cast<std::int64_t>(gradients.size()));
  dispatch_with_workspace<cpu::in_flight_squares, cuda::in_flight_squares>(call, squares, gradients,
                                                                           momentum);
}

void predicted_muon(const Tensor& w, const Tensor& base, const Tensor& momentum_squares,
                    const Tensor& squares, std::span<const GradientInFlight> gradients,
                    float momentum, float update_scale, float weight_decay, const Stream& stream) {
  const KernelCall call{"predicted_muon", stream, Work::kOptimizer};
  check_rank(call, {"base", base}, 2);
  check_prediction(call, w, base, gradients);
  check_f64(call, {"momentum_squares", momentum_squares}, 1);
  if (!gradients.empty())
    check_f64(call, {"squares", squares}, static_cast<std::int64_t>(gradients.size()));
  dispatch<cpu::predicted_muon, cuda::predicted_muon>(
      call, w, base, momentum_squares, squares, gradients, momentum, update_scale, weight_decay);
}

}  // namespace hybrid_trainer::kernels
