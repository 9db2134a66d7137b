#include "hybrid_trainer/nn/mixers.h"
#include "hybrid_trainer/nn/norm.h"
#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

RecurrentMixer::RecurrentMixer(const ModuleName& name, Linear first, Linear projection,
                               const TokenConvolution::Spec& convolution,
                               const kernels::GatedNormSpec& norm, std::int64_t gate,
                               std::int64_t gain, const Stream& stream)
    : TwoProductBranch(std::move(first), std::move(projection)),
      convolution_(name / ModuleName("conv", "conv1d"), convolution, stream),
      norm_(norm),
      gate_(gate),
      gain_(rms_norm_gain(name / "norm", gain, {norm.epsilon}, stream)) {}

Tensor RecurrentMixer::normed(const Tensor& y, const Tensor& product, const Stream& stream) {
  Tensor normal = Tensor::empty_like(y, MemoryKind::kActivations, stream);
  kernels::gated_norm_forward(normal.as_rows(), y.as_rows(), product.as_rows(), gate_,
                              gain_.acquire_master(stream), norm_, stream);
  return normal;
}

Tensor RecurrentMixer::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  const SegmentCarry::Slot* const carried = slot(pass);
  if (carried == nullptr)
    return scan(convolution_.forward(source, Tensor{}, pass, stream), source, {}, pass, stream);
  return scan(convolution_.forward(source, carried->first.rows, pass, stream), source,
              {carried->first.scan, carried->last.scan}, pass, stream);
}

/// Fills in the segment's last rows, and allocates its last state.
void RecurrentMixer::fill_last(SegmentCarry::Slot& slot, const Tensor& product,
                               const Stream& stream) const {
  const std::int64_t sequences = product.size(0);
  slot.last.scan =
      Tensor::empty(scan_state(sequences), DType::kF32, MemoryKind::kActivations, stream);
  slot.last.rows = Tensor::empty(convolution_.state_shape(sequences), product.dtype(),
                                 MemoryKind::kActivations, stream);
  const bool keeps_earlier_rows =
      product.size(1) < slot.last.rows.size(1);  // some earlier rows remain
  if (keeps_earlier_rows && slot.first.rows) copy(slot.last.rows, slot.first.rows, stream);
  if (keeps_earlier_rows && !slot.first.rows) fill_zero(slot.last.rows, stream);
  for (std::int64_t i = 0; i < sequences; ++i)
    convolution_.remember(slot.last.rows.rows(i, i + 1), product.rows(i, i + 1), stream);
}

Tensor RecurrentMixer::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                               const Stream& stream) {
  const Tensor product = first_.forward(x, tape, stream);
  if (SegmentCarry* const carry = tape.pass().carry; carry != nullptr && carry->needs_last())
    fill_last(carry->of(this), product, stream);
  const Tensor y = rebuild(product, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, product, true}, stream);
  tape.declare_rebuildable(y, Rebuild::kAttended, product, *this);
  tape.save({ActivationRole::kAttentionOutput, y, true}, stream);
  return projection_.product(normed(y, product, stream), residual, tape.pass(), stream);
}

Tensor RecurrentMixer::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor y = tape.take(stream), product = tape.take(stream);
  const Tensor dproduct = Tensor::empty_like(product, MemoryKind::kActivations, stream);
  const Tensor dscan = Tensor::empty_like(y, MemoryKind::kActivations, stream);
  {
    const LinearGradients gradients(projection_, dy.as_rows(), normed(y, product, stream).as_rows(),
                                    tape.pass(), stream);
    gradients.write_input_gradient(dscan.as_rows());
  }
  {
    GradientContribution dgain(gain_, stream);
    kernels::gated_norm_backward(dscan.as_rows(), dproduct.as_rows(), dgain.gradient_or_scratch(),
                                 dgain.next_mode(), dscan.as_rows(), y.as_rows(), product.as_rows(),
                                 gate_, gain_.acquire_master(stream), norm_, stream);
  }
  scan_and_convolution_backward(dproduct, dscan, product, tape.pass(), stream);
  return first_.backward(dproduct, tape, stream);
}

/// Writes the columns of dproduct for scan and convolution, and the gradients of the carried state.
void RecurrentMixer::scan_and_convolution_backward(const Tensor& dproduct, const Tensor& dscan,
                                                   const Tensor& product, const Pass& pass,
                                                   const Stream& stream) {
  SegmentCarry::Slot* const carried = slot(pass);
  SegmentCarry::Slot none;
  SegmentCarry::Slot& here = carried == nullptr ? none : *carried;
  if (here.first.scan) {
    here.dfirst = {Tensor::empty_like(here.first.rows, MemoryKind::kActivations, stream),
                   Tensor::empty_like(here.first.scan, MemoryKind::kActivations, stream)};
  }
  const Tensor convolved = convolution_.forward(product, here.first.rows, pass, stream);
  const Tensor dconvolved =
      scan_backward(dproduct, dscan, convolved, product,
                    {here.first.scan, here.dlast.scan, here.dfirst.scan}, pass, stream);
  convolution_.backward(dproduct, here.dfirst.rows, dconvolved, product, here.first.rows, pass,
                        stream);
  if (here.dlast.rows) convolution_.remember_backward(dproduct, here.dlast.rows, stream);
}

/// Decodes many tokens of one text in chunks. If they begin the text, its old state is ignored.
Tensor RecurrentMixer::decode_chunked(const Tensor& product, const DecodeTexts& texts,
                                      BranchState& state, const Pass& pass, const Stream& stream) {
  const auto& recurrent = dynamic_cast<RecurrentState&>(state);
  const bool begins = !texts.each;
  const std::int64_t text = begins ? texts.begun : *texts.alone;
  const Tensor rows = recurrent.convolution(text), kept = recurrent.scan(text);
  const Tensor last = begins ? kept : Tensor::empty_like(kept, MemoryKind::kActivations, stream);
  Pass whole = pass;
  if (begins) {
    fill_zero(rows, stream);
  } else {
    whole.positions = {};  // the tokens belong to one document
  }
  const Tensor convolved = convolution_.forward(product, begins ? Tensor{} : rows, whole, stream);
  convolution_.remember(rows, product, stream);
  const Tensor y = scan(convolved, product, {begins ? Tensor{} : kept, last}, whole, stream);
  if (!begins) copy(kept, last, stream);
  return y;
}

Tensor RecurrentMixer::decoded(const Tensor& product, const DecodeTexts& texts, BranchState& state,
                               const Pass& pass, const Stream& stream) {
  if (!texts.each || (texts.alone && product.size(1) > kMaxBitExactTokens))
    return decode_chunked(product, texts, state, pass, stream);
  const auto& recurrent = dynamic_cast<RecurrentState&>(state);
  const std::int64_t batch = product.size(0), time = product.size(1);
  const Tensor y =
      Tensor::empty({batch, time, inner()}, product.dtype(), MemoryKind::kActivations, stream);
  const Tensor rows = product.as_rows(), results = y.as_rows();
  for_each_token(texts, batch, time, [&](std::int64_t begin, std::int64_t end, const Tensor& of) {
    const Tensor part = rows.rows(begin, end);
    const Tensor convolved = convolution_.step(recurrent.convolutions(), part, of, stream);
    copy(results.rows(begin, end), scan_step(recurrent.scans(), convolved, part, of, stream),
         stream);
  });
  return y;
}

Tensor RecurrentMixer::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                              BranchState* state, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor product = first_.forward(x, tape, stream);
  const Tensor y = decoded(product, texts, *state, pass, stream);
  return projection_.product(normed(y, product, stream), residual, pass, stream);
}

std::unique_ptr<BranchState> RecurrentMixer::make_state(DecodeCapacity room, DType dtype,
                                                        const Stream& stream) const {
  return std::make_unique<RecurrentState>(convolution_.state_shape(room.texts),
                                          scan_state(room.texts), dtype, stream);
}

}  // namespace hybrid_trainer
