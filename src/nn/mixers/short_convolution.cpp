#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/nn/mixers.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

ShortConvolution::ShortConvolution(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch(Linear(name / "c_in", spec.width, 3 * spec.width, stream, spec.biases),
                       Linear(name / "c_proj", spec.width, spec.width, stream, spec.biases)),
      taps_(spec.taps),
      convolution_(
          name / "conv",
          {.channels = spec.width, .taps = spec.taps, .bias = spec.biases, .sum = {.silu = false}},
          stream) {
  set_files(name, spec.files, {3 * spec.width});
}

Tensor ShortConvolution::gated(const Tensor& product, const Stream& stream) const {
  Tensor values = Tensor::empty({product.size(0), product.size(1), width()}, product.dtype(),
                                MemoryKind::kActivations, stream);
  const Tensor rows = product.as_rows();
  kernels::multiply_columns({values.as_rows(), 0}, {rows, 0}, {rows, 2 * width()}, width(), stream);
  return values;
}

void ShortConvolution::gate(const Tensor& convolved, const Tensor& product,
                            const Stream& stream) const {
  const kernels::Columns values{convolved.as_rows(), 0};
  kernels::multiply_columns(values, values, {product.as_rows(), width()}, width(), stream);
}

Tensor ShortConvolution::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  Tensor y = convolution_.forward(gated(source, stream), Tensor{}, pass, stream);
  gate(y, source, stream);
  return y;
}

Tensor ShortConvolution::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                                 const Stream& stream) {
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor y = rebuild(product, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, product, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kAttended, product, *this);
  return projection_.forward(y, residual, tape, stream);
}

Tensor ShortConvolution::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dgate = projection_.backward(dy, tape, stream), product = tape.take(stream);
  const Tensor rows = product.as_rows();
  const Tensor dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream);
  const Tensor values = gated(product, stream), slopes = dproduct.as_rows();
  {
    const Tensor convolved = convolution_.forward(values, Tensor{}, tape.pass(), stream);
    kernels::multiply_columns({slopes, width()}, {dgate.as_rows(), 0}, {convolved.as_rows(), 0},
                              width(), stream);
  }
  gate(dgate, product, stream);  // now the gradient of the convolution's output
  const Tensor dvalues = Tensor::empty_like(values, MemoryKind::kActivations, stream);
  convolution_.backward(dvalues, Tensor{}, dgate, values, Tensor{}, tape.pass(), stream);
  for (const auto& [to, from] : {std::pair{std::int64_t{0}, 2 * width()}, {2 * width(), 0}})
    kernels::multiply_columns({slopes, to}, {dvalues.as_rows(), 0}, {rows, from}, width(), stream);
  return first_.backward(dproduct, tape, stream);
}

Tensor ShortConvolution::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                                BranchState* state, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor y =
      convolution_.decode(gated(product, stream), texts,
                          dynamic_cast<const RecurrentState&>(*state).convolutions(), pass, stream);
  gate(y, product, stream);
  return projection_.product(y, residual, pass, stream);
}

std::unique_ptr<BranchState> ShortConvolution::make_state(DecodeCapacity room, DType dtype,
                                                          const Stream& stream) const {
  return std::make_unique<RecurrentState>(convolution_.state_shape(room.texts), std::nullopt, dtype,
                                          stream);
}

void ShortConvolution::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                                  const Stream& stream) {
  TwoProductBranch::initialize(deviations, seed, stream);
  convolution_.initialize(seed, stream);
}

/// Counts a multiplication and an addition per tap, and the two gates.
TokenFlops ShortConvolution::flops(std::int64_t) const {
  return flops_with(static_cast<double>(width() * (2 * taps_ + 2)), 2);
}

}  // namespace hybrid_trainer
