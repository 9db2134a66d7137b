#include "hybrid_trainer/kernels/optimizer_update.h"

#include "hybrid_trainer/kernels/quantization.h"
#include "kernels/check.h"
#include "kernels/cpu/optimizer_update.h"
#include "kernels/cuda/optimizer_update.h"

namespace hybrid_trainer::kernels {
namespace {

void check_working(const char* kernel, const Tensor& working, const Tensor& w) {
  check_optional_shape(kernel, {"working", working}, w.shape());
  if (working) check_dtype(kernel, {"working", working}, DType::kBF16);
}

void check_moments(const char* kernel, const QuantizedMoments& moments, const Tensor& w) {
  const Shape scales{quantization_blocks(w.elements())};
  for (const NamedTensor& codes :
       {NamedTensor{"m_codes", moments.m_codes}, NamedTensor{"v_codes", moments.v_codes}}) {
    check_shape(kernel, codes, w.shape());
    check_dtype(kernel, codes, DType::kU8);
  }
  for (const NamedTensor& scale :
       {NamedTensor{"m_scales", moments.m_scales}, NamedTensor{"v_scales", moments.v_scales}}) {
    check_shape(kernel, scale, scales);
    check_dtype(kernel, scale, DType::kF32);
  }
}

}  // namespace

void adamw_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& working, const AdamWSettings& settings, const Stream& stream) {
  check_dtype("adamw_update", {"w", w}, DType::kF32);
  check_alike("adamw_update", {{"w", w}, {"m", m}, {"v", v}, {"g", g}});
  check_working("adamw_update", working, w);
  require(settings.step >= 1, "adamw_update: step must be at least 1");
  visit_backend(stream, Work::kOptimizer,
                [&](auto backend) { adamw_update(backend, w, m, v, g, working, settings); });
}

void adamw_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings, const Stream& stream) {
  check_dtype("adamw_direction", {"direction", direction}, DType::kF32);
  check_alike("adamw_direction", {{"direction", direction}, {"m", m}, {"v", v}});
  require(settings.step >= 1, "adamw_direction: step must be at least 1");
  visit_backend(stream, Work::kOptimizer,
                [&](auto backend) { adamw_direction(backend, direction, m, v, settings); });
}

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& working, const AdamWSettings& settings, const Stream& stream) {
  check_dtype("adamw_update_8bit", {"w", w}, DType::kF32);
  check_alike("adamw_update_8bit", {{"w", w}, {"g", g}});
  check_moments("adamw_update_8bit", moments, w);
  check_working("adamw_update_8bit", working, w);
  require(settings.step >= 1, "adamw_update_8bit: step must be at least 1");
  visit_backend(stream, Work::kOptimizer, [&](auto backend) {
    adamw_update_8bit(backend, w, moments, g, working, settings);
  });
}

void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream& stream) {
  check_dtype("adamw_direction_8bit", {"direction", direction}, DType::kF32);
  check_moments("adamw_direction_8bit", moments, direction);
  require(settings.step >= 1, "adamw_direction_8bit: step must be at least 1");
  visit_backend(stream, Work::kOptimizer,
                [&](auto backend) { adamw_direction_8bit(backend, direction, moments, settings); });
}

void sgd_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& working,
                float learning_rate, float momentum, float weight_decay, float gradient_scale,
                const Stream& stream) {
  check_dtype("sgd_update", {"w", w}, DType::kF32);
  check_alike("sgd_update", {{"w", w}, {"g", g}});
  if (momentum != 0.0f) check_alike("sgd_update", {{"w", w}, {"m", m}});
  check_working("sgd_update", working, w);
  visit_backend(stream, Work::kOptimizer, [&](auto backend) {
    sgd_update(backend, w, m, g, working, learning_rate, momentum, weight_decay, gradient_scale);
  });
}

void muon_momentum(const Tensor& u, const Tensor& m, const Tensor& g, float momentum,
                   float gradient_scale, const Stream& stream) {
  check_dtype("muon_momentum", {"u", u}, DType::kF32);
  check_alike("muon_momentum", {{"u", u}, {"m", m}, {"g", g}});
  visit_backend(stream, Work::kOptimizer,
                [&](auto backend) { muon_momentum(backend, u, m, g, momentum, gradient_scale); });
}

void decayed_step(const Tensor& w, const Tensor& u, const Tensor& working, float step_size,
                  float decay_factor, const Stream& stream) {
  check_dtype("decayed_step", {"w", w}, DType::kF32);
  check_alike("decayed_step", {{"w", w}, {"u", u}});
  check_working("decayed_step", working, w);
  visit_backend(stream, Work::kOptimizer, [&](auto backend) {
    decayed_step(backend, w, u, working, step_size, decay_factor);
  });
}

}  // namespace hybrid_trainer::kernels
