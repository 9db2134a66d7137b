#include "src/optim/optimizer_state.h"

#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

void StatePages::begin_update(const Stream& stream) {
  const auto live = [&] { return stream.pool()->use().live_total; };
  if (updates_ == 2 && live() + (peak_bytes_ - live_before_) > budget_bytes_) leave(stream);
  if (updates_ == 2) return;
  if (++updates_ == 1) {
    live_before_ = live();
    return;
  }
  const std::size_t taken = std::max(peak_bytes_, stream.pool()->use().peak_total);
  room_bytes_ = budget_bytes_ - std::min(budget_bytes_, taken);
}

void StatePages::end_update(const MemoryPool& device) {
  if (updates_ == 1) peak_bytes_ = std::max(live_before_, device.use().peak_total);
}

Tensor StatePages::page_of(const Tensor& state, Use use, const Stream& stream) {
  if (!state) return {};
  auto page = std::find_if(pages_.begin(), pages_.end(),
                           [&](const Page& known) { return known.home.raw() == state.raw(); });
  if (page == pages_.end()) {
    constexpr std::size_t kMaxRounding = 4096;  // maximum rounding of a block's size
    const std::size_t bytes = state.bytes() + kMaxRounding;
    if (bytes > room_bytes_) return {};
    room_bytes_ -= bytes;
    const Tensor here = Tensor::empty_like(state, state.kind(), stream);
    if (use != Use::kWrite) copy_or_wait(here, state, stream);
    page = pages_.insert(pages_.end(), {state, here, false});
  }
  page->changed = page->changed || use != Use::kRead;
  return page->here;
}

bool StatePages::leave(const Stream& stream) {
  for (const Page& page : pages_)
    if (page.changed) copy_or_wait(page.home, page.here, stream);
  const bool any = !pages_.empty();
  pages_.clear();
  updates_ = 0;
  room_bytes_ = 0;
  return any;
}

namespace {

constexpr std::int64_t kMinRoundedElements = 4096;

}  // namespace

UpdatedWeight::UpdatedWeight(const Parameter& parameter, const Stream& stream)
    : label(parameter.name()),
      master(parameter.acquire_master(stream, Use::kChange)),
      compute_copy(parameter.compute_dtype() == DType::kBF16
                       ? parameter.acquire(DType::kBF16, stream, Use::kWrite)
                       : Weight{}) {}

Tensor make_state(const Parameter& parameter, const Stream& home, DType dtype) {
  const MemoryLabel label(parameter.name());
  return Tensor::zeros(parameter.shape(), dtype, MemoryKind::kOptimizerState, home);
}

Moment make_moment(const Parameter& parameter, std::int64_t state_bits, const Stream& home) {
  require(state_bits == 32 || state_bits == 16 || state_bits == 8,
          "optimizer.state_bits must be 8, 16 or 32");
  if (parameter.elements_of_whole() < kMinRoundedElements || state_bits == 32)
    return {make_state(parameter, home), {}};
  if (state_bits == 16) return {make_state(parameter, home, DType::kBF16), {}};
  const Shape blocks{kernels::quantization_blocks(parameter.elements())};
  return {make_state(parameter, home, DType::kU8),
          Tensor::zeros(blocks, DType::kF32, MemoryKind::kOptimizerState, home), true};
}

void visit_moment(const StateLabel& label, Moment& moment, const Optimizer::StateVisitor& visit) {
  if (!moment.eight_bit) return visit(label, moment.values);
  visit({label.parameter, StateRole::kCodes, label.name + ".codes"}, moment.values);
  visit({label.parameter, StateRole::kScales, label.name + ".scales"}, moment.scales);
}

std::uint32_t rounding_key(const Parameter& parameter, std::int64_t step) {
  std::uint32_t key = static_cast<std::uint32_t>(step) * 0x9E3779B9u;
  for (const char c : parameter.name()) key = (key ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return key;
}

void require_state(const Parameter& parameter, const Moment& moment) {
  require_state(parameter, moment.values);
  if (moment.eight_bit) require_state(parameter, moment.scales);
}

void require_state(const Parameter& parameter, const Tensor& state) {
  if (state.defined()) return;
  throw Error(ExitCode::kInternal, concat("the optimizer state of ", parameter.name(),
                                          " is offloaded; wait until it is restored"));
}

void require_directions(const std::vector<Tensor>& directions,
                        const std::vector<Parameter*>& parameters) {
  if (directions.size() != parameters.size())
    throw ShapeMismatch(concat("got ", directions.size(), " directions for ", parameters.size(),
                               " parameters; want one for each"));
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const Shape& want = parameters[i]->shape();
    if (directions[i].shape() != want || directions[i].dtype() != DType::kF32)
      throw ShapeMismatch(concat("the direction of ", parameters[i]->name(), " is ",
                                 name_of(directions[i].dtype()), " ", directions[i].shape().text(),
                                 "; want f32 ", want.text()));
  }
}

}  // namespace hybrid_trainer
