#include "kernels/generated/optimizer_update.h"

#include "kernels/backend/dispatch.h"
#include "kernels/quantized/quantization.h"

namespace hybrid_trainer::kernels {

namespace {

void check_moments(const KernelCall& call, const Tensor& m, const Tensor& v, const Shape& wanted) {
  check_real(call, {"m", m});
  check_shape(call, {"m", m}, wanted);
  check_matching(call, {{"m", m}, {"v", v}});
}

void check_quantized_moment(const KernelCall& call, const NamedTensor& codes,
                            const NamedTensor& scales, const Tensor& w) {
  check_shape(call, codes, w.shape(), DType::kU8);
  check_shape(call, scales, {quantization_blocks(w.elements())});
  check_dtype(call, scales, DType::kF32);
}

void check_moments(const KernelCall& call, const QuantizedMoments& moments, const Tensor& w) {
  check_quantized_moment(call, {"m_codes", moments.m_codes}, {"m_scales", moments.m_scales}, w);
  check_quantized_moment(call, {"v_codes", moments.v_codes}, {"v_scales", moments.v_scales}, w);
}

void check_adamw(const KernelCall& call, const Tensor& w, const Tensor& m, const Tensor& v,
                 const Tensor& g, const Tensor& compute_copy, const AdamWSettings& settings) {
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_moments(call, m, v, w.shape());
  require(settings.step >= 1, "adamw_update: step must be at least 1");
}

void check_blocks(const KernelCall& call, const Tensor& v, const Tensor& m) {
  check_rank(call, {"v", v}, 1, DType::kF32);
  if (v.elements() > 0 && m.elements() % v.elements() == 0) return;
  throw_mismatch(call, "v has ", v.elements(), " blocks, which do not divide ", m.elements(),
                 " elements");
}

}  // namespace

void adamw_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& compute_copy, const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"adamw_update", stream, Work::kOptimizer};
  check_adamw(call, w, m, v, g, compute_copy, settings);
  dispatch<cpu::adamw_update, cuda::adamw_update>(call, w, m, v, g, compute_copy, settings);
}

void adamw_updates(const std::vector<AdamWUpdate>& updates, const Stream& stream) {
  const KernelCall call{"adamw_updates", stream, Work::kOptimizer};
  for (const AdamWUpdate& u : updates)
    check_adamw(call, u.w, u.m, u.v, u.g, u.compute_copy, u.settings);
  if (call.device.type != DeviceType::kCpu)
    return dispatch_to_cuda<cuda::adamw_updates>(call, updates);
  for (const AdamWUpdate& u : updates) {
    dispatch<cpu::adamw_update, cuda::adamw_update>(call, u.w, u.m, u.v, u.g, u.compute_copy,
                                                    u.settings);
  }
}

void adamw_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"adamw_direction", stream, Work::kOptimizer};
  check_dtype(call, {"direction", direction}, DType::kF32);
  check_moments(call, m, v, direction.shape());
  require(settings.step >= 1, "adamw_direction: step must be at least 1");
  dispatch<cpu::adamw_direction, cuda::adamw_direction>(call, direction, m, v, settings);
}

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings,
                       const Stream& stream) {
  const KernelCall call{"adamw_update_8bit", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_moments(call, moments, w);
  require(settings.step >= 1, "adamw_update_8bit: step must be at least 1");
  dispatch<cpu::adamw_update_8bit, cuda::adamw_update_8bit>(call, w, moments, g, compute_copy,
                                                            settings);
}

void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"adamw_direction_8bit", stream, Work::kOptimizer};
  check_dtype(call, {"direction", direction}, DType::kF32);
  check_moments(call, moments, direction);
  require(settings.step >= 1, "adamw_direction_8bit: step must be at least 1");
  dispatch<cpu::adamw_direction_8bit, cuda::adamw_direction_8bit>(call, direction, moments,
                                                                  settings);
}

void sgd_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                float learning_rate, float momentum, float weight_decay, float gradient_scale,
                const Stream& stream) {
  const KernelCall call{"sgd_update", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  if (momentum != 0.0f) check_matching(call, {{"w", w}, {"m", m}});
  dispatch<cpu::sgd_update, cuda::sgd_update>(call, w, m, g, compute_copy, learning_rate, momentum,
                                              weight_decay, gradient_scale);
}

void lion_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                 const LionSettings& settings, const Stream& stream) {
  const KernelCall call{"lion_update", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_real(call, {"m", m});
  check_shape(call, {"m", m}, w.shape());
  dispatch<cpu::lion_update, cuda::lion_update>(call, w, m, g, compute_copy, settings);
}

void lion_update_8bit(const Tensor& w, const Tensor& m_codes, const Tensor& m_scales,
                      const Tensor& g, const Tensor& compute_copy, const LionSettings& settings,
                      const Stream& stream) {
  const KernelCall call{"lion_update_8bit", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_quantized_moment(call, {"m_codes", m_codes}, {"m_scales", m_scales}, w);
  dispatch<cpu::lion_update_8bit, cuda::lion_update_8bit>(call, w, m_codes, m_scales, g,
                                                          compute_copy, settings);
}

void lion_direction(const Tensor& direction, const Tensor& m, float learning_rate,
                    const Stream& stream) {
  const KernelCall call{"lion_direction", stream, Work::kOptimizer};
  check_dtype(call, {"direction", direction}, DType::kF32);
  check_shape(call, {"m", m}, direction.shape());
  if (m.dtype() != DType::kU8) check_real(call, {"m", m});
  dispatch<cpu::lion_direction, cuda::lion_direction>(call, direction, m, learning_rate);
}

void muon_momentum(const Tensor& u, const Tensor& m, const Tensor& g, const Tensor& squares,
                   float momentum, float gradient_scale, const Stream& stream) {
  const KernelCall call{"muon_momentum", stream, Work::kOptimizer};
  check_dtype(call, {"u", u}, DType::kF32);
  check_matching(call, {{"u", u}, {"m", m}, {"g", g}});
  check_shape(call, {"squares", squares}, {1}, DType::kF64);
  dispatch<cpu::muon_momentum, cuda::muon_momentum>(call, u, m, g, squares, momentum,
                                                    gradient_scale);
}

void decayed_step(const Tensor& w, const Tensor& u, const Tensor& compute_copy, float step_size,
                  float decay_factor, const Stream& stream) {
  const KernelCall call{"decayed_step", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"u", u}, {"compute_copy", compute_copy});
  dispatch<cpu::decayed_step, cuda::decayed_step>(call, w, u, compute_copy, step_size,
                                                  decay_factor);
}

void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings,
                      const Stream& stream) {
  const KernelCall call{"adam_mini_update", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_matching(call, {{"w", w}, {"m", m}});
  check_blocks(call, v, m);
  require(settings.step >= 1, "adam_mini_update: step must be at least 1");
  dispatch<cpu::adam_mini_update, cuda::adam_mini_update>(call, w, m, v, g, compute_copy, settings);
}

void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"adam_mini_direction", stream, Work::kOptimizer};
  check_dtype(call, {"direction", direction}, DType::kF32);
  check_matching(call, {{"direction", direction}, {"m", m}});
  check_blocks(call, v, m);
  require(settings.step >= 1, "adam_mini_direction: step must be at least 1");
  dispatch<cpu::adam_mini_direction, cuda::adam_mini_direction>(call, direction, m, v, settings);
}

void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream) {
  const KernelCall call{"adafactor_update", stream, Work::kOptimizer};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  const Shape matrix = w.as_rows().shape();
  check_shape(call, {"rows", rows}, {matrix[0]}, DType::kF32);
  check_shape(call, {"columns", columns}, {matrix[1]}, DType::kF32);
  dispatch_with_workspace<cpu::adafactor_update, cuda::adafactor_update>(call, w, rows, columns, g,
                                                                         compute_copy, settings);
}

}  // namespace hybrid_trainer::kernels
