#include "tests/models/decaying_sum.h"

namespace hybrid_trainer::testing {
namespace {

/// Sums so far, (texts, inner width).
struct Sums final : BranchState {
  Tensor values;
  void grow(std::int64_t, const Stream&) override {}
  bool can_rewind() const override { return false; }
};

/// s = decay·before + u for one row.
void add_row(float* s, const float* decay, const float* before, const float* u,
             std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) s[i] = decay[i] * before[i] + u[i];
}

/// Whether a row begins a document, in a batch of sequences of `time` rows.
bool begins(const Pass& pass, std::int64_t row, std::int64_t time) {
  return row % time == 0 || (pass.positions && pass.positions.data<std::int32_t>()[row] == 0);
}

}  // namespace

DecayingSum::DecayingSum(const ModuleName& name, const Spec& spec, const Stream& stream)
    : TwoProductBranch{Linear(name / "in_proj", spec.width, spec.intermediate_size, stream, false),
                       Linear(name / "out_proj", spec.intermediate_size, spec.width, stream,
                              false)},
      decay_(name / "decay", {spec.intermediate_size}, Role::kVector, stream) {}

Tensor DecayingSum::rebuild(const Tensor& source, const Pass& pass, const Stream& stream) {
  Tensor s = Tensor::empty_like(source, MemoryKind::kActivations, stream);
  const std::int64_t width = source.size(2), rows = source.elements() / width;
  const Weight decay = decay_.acquire_master(stream);
  const std::vector<float> none(static_cast<std::size_t>(width));
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const at = s.data<float>() + row * width;
    add_row(at, decay.tensor().data<float>(),
            begins(pass, row, source.size(1)) ? none.data() : at - width,
            source.data<float>() + row * width, width);
  }
  return s;
}

Tensor DecayingSum::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                            const Stream& stream) {
  const Tensor u = first_.forward(x, tape, stream);
  const Tensor s = rebuild(u, tape.pass(), stream);
  tape.save({ActivationRole::kPreActivation, u}, stream);
  tape.declare_rebuildable(s, Rebuild::kActivated, u, *this);
  tape.save({ActivationRole::kActivated, s}, stream);
  return projection_.forward(s, residual, tape, stream);
}

Tensor DecayingSum::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor du = projection_.backward(dy, tape, stream);  // ds at first
  const Tensor s = tape.take(stream);
  tape.take(stream);  // u, from which the sums are rebuilt
  const std::int64_t width = s.size(2), rows = s.elements() / width;
  GradientContribution contribution(decay_, stream);
  const Tensor ddecay = contribution.gradient_or_scratch();
  if (contribution.next_mode() == kernels::GradientMode::kOverwrite) fill_zero(ddecay, stream);
  const Weight decay = decay_.acquire_master(stream);
  for (std::int64_t row = rows - 1; row > 0; --row) {
    if (begins(tape.pass(), row, s.size(1))) continue;
    float* const at = du.data<float>() + row * width;
    for (std::int64_t i = 0; i < width; ++i) {
      ddecay.data<float>()[i] += at[i] * s.data<float>()[(row - 1) * width + i];
      at[i - width] += decay.tensor().data<float>()[i] * at[i];
    }
  }
  return first_.backward(du, tape, stream);
}

Tensor DecayingSum::decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                           BranchState* state, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor sums = dynamic_cast<Sums&>(*state).values;
  const Tensor s = first_.forward(x, tape, stream);  // u at first
  const std::int64_t width = s.size(2), rows = s.elements() / width;
  const Weight decay = decay_.acquire_master(stream);
  if (!texts.each) fill_zero(sums.rows(texts.begun, texts.begun + 1), stream);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t text = texts.each ? texts.each.data<std::int32_t>()[row] : texts.begun;
    float *const sum = sums.data<float>() + text * width, *const at = s.data<float>() + row * width;
    add_row(at, decay.tensor().data<float>(), sum, at, width);
    std::copy_n(at, width, sum);
  }
  return projection_.forward(s, residual, tape, stream);
}

std::unique_ptr<BranchState> DecayingSum::make_state(DecodeCapacity room, DType,
                                                     const Stream& stream) const {
  auto state = std::make_unique<Sums>();
  state->values =
      Tensor::zeros({room.texts, decay_.elements()}, DType::kF32, MemoryKind::kActivations, stream);
  return state;
}

void DecayingSum::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                             const Stream& stream) {
  TwoProductBranch::initialize(deviations, seed, stream);
  initialize_constant(decay_, 0.5f, stream);
}

KeptNumbers DecayingSum::kept() const {
  const auto inner = static_cast<double>(decay_.elements());
  return {2 * inner, inner, inner, inner};
}

void DecayingSum::visit_parameters(const ParameterVisitor& visit) {
  TwoProductBranch::visit_parameters(visit);
  visit(decay_);
}

}  // namespace hybrid_trainer::testing
