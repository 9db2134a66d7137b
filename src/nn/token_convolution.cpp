#include "hybrid_trainer/nn/token_convolution.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/kernels/indexing.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

TokenConvolution::TokenConvolution(const ModuleName& name, const Spec& spec, const Stream& stream)
    : spec_(spec), weight_(name / "weight", {spec.channels, spec.taps}, Role::kVector, stream) {
  weight_.set_in_files({{(name / "weight").in_files, Shape{spec.channels, 1, spec.taps}}});
  if (spec.bias) bias_.emplace(name / "bias", Shape{spec.channels}, Role::kVector, stream);
}

Tensor TokenConvolution::forward(const Tensor& x, const Tensor& before, const Pass& pass,
                                 const Stream& stream) {
  Tensor y = Tensor::empty({x.size(0), x.size(1), spec_.channels}, x.dtype(),
                           MemoryKind::kActivations, stream);
  kernels::causal_convolution_forward(y, x, spec_.first, weight_.acquire_master(stream),
                                      acquire_bias(stream), before, pass.positions, spec_.sum,
                                      stream);
  return y;
}

void TokenConvolution::backward(const Tensor& dx, const Tensor& dbefore, const Tensor& dy,
                                const Tensor& x, const Tensor& before, const Pass& pass,
                                const Stream& stream) {
  GradientContribution dweight(weight_, stream);
  std::optional<GradientContribution> dbias;
  if (bias_) dbias.emplace(*bias_, stream);
  kernels::causal_convolution_backward(dx, dweight.gradient(), dbias ? dbias->gradient() : Tensor{},
                                       dweight.next_mode(), dbefore, dy, x, spec_.first,
                                       weight_.acquire_master(stream), acquire_bias(stream), before,
                                       pass.positions, spec_.sum, stream);
}

void TokenConvolution::remember_backward(const Tensor& dx, const Tensor& drows,
                                         const Stream& stream) const {
  const std::int64_t kept = spec_.taps - 1, time = dx.size(1);
  for (std::int64_t i = 0; i < dx.size(0); ++i) {
    const Tensor tokens = dx.rows(i, i + 1).as_rows();
    kernels::add_columns({tokens.rows(time - kept, time), spec_.first},
                         {drows.rows(i, i + 1).as_rows(), 0}, spec_.channels, stream);
  }
}

Tensor TokenConvolution::step(const Tensor& state, const Tensor& x, const Tensor& texts,
                              const Stream& stream) {
  Tensor y =
      Tensor::empty({x.size(0), spec_.channels}, x.dtype(), MemoryKind::kActivations, stream);
  kernels::causal_convolution_step(y, state, x, spec_.first, weight_.acquire_master(stream),
                                   acquire_bias(stream), texts, spec_.sum, stream);
  return y;
}

Tensor TokenConvolution::decode(const Tensor& x, const DecodeTexts& texts, const Tensor& states,
                                const Pass& pass, const Stream& stream) {
  const std::int64_t batch = x.size(0), time = x.size(1);
  if (!texts.each || (texts.alone && time > kMaxBitExactTokens)) {
    const std::int64_t text = texts.each ? *texts.alone : texts.begun;
    const Tensor rows = states.rows(text, text + 1);
    if (!texts.each) fill_zero(rows, stream);
    Pass whole = pass;
    whole.positions = {};  // the tokens belong to one document
    Tensor y = forward(x, texts.each ? rows : Tensor{}, whole, stream);
    remember(rows, x, stream);
    return y;
  }
  Tensor y =
      Tensor::empty({batch, time, spec_.channels}, x.dtype(), MemoryKind::kActivations, stream);
  for_each_token(texts, batch, time, [&](std::int64_t begin, std::int64_t end, const Tensor& of) {
    copy(y.as_rows().rows(begin, end), step(states, x.as_rows().rows(begin, end), of, stream),
         stream);
  });
  return y;
}

void TokenConvolution::remember(const Tensor& state, const Tensor& x, const Stream& stream) const {
  const std::int64_t kept = spec_.taps - 1, time = x.size(1), fresh = std::min(kept, time);
  if (kept == 0) return;
  const Tensor rows = state.as_rows(), tokens = x.as_rows();
  for (std::int64_t row = 0; row < kept - fresh; ++row)  // shifts earlier rows
    copy(rows.rows(row, row + 1), rows.rows(row + fresh, row + fresh + 1), stream);
  kernels::copy_columns({rows.rows(kept - fresh, kept), 0},
                        {tokens.rows(time - fresh, time), spec_.first}, spec_.channels, stream);
}

void TokenConvolution::initialize(std::uint64_t seed, const Stream& stream) {
  initialize_uniform(weight_, 1 / std::sqrt(static_cast<double>(spec_.taps)), seed, stream);
}

}  // namespace hybrid_trainer
