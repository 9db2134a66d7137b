#include "kernels/products/product_rounding.h"

#include <cmath>

#include "hybrid_trainer/nn/product_rounding.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kUpdatesKey = "precision.fp8.magnitudes";
constexpr const char* kNextKey = "precision.fp8.next";

std::unordered_map<const Parameter*, std::size_t> operands_of(
    const std::vector<Parameter*>& parameters) {
  std::unordered_map<const Parameter*, std::size_t> first;
  for (const Parameter* const parameter : parameters)
    if (parameter->shape().rank() == 2) first.emplace(parameter, kOperands * first.size());
  return first;
}

}  // namespace

MagnitudeHistory::MagnitudeHistory(std::size_t tensors)
    : tensors_(tensors), updates_(kUpdates * tensors) {}

void MagnitudeHistory::allocate(const Stream& stream, const Stream& host) {
  if (expected_) return;
  const Shape shape{static_cast<std::int64_t>(std::max<std::size_t>(1, tensors_))};
  current_ = Tensor::zeros(shape, DType::kF32, MemoryKind::kWorkspace, stream);
  host_ = Tensor::empty(shape, DType::kF32, MemoryKind::kData, host);
  expected_ = Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream);
  wait_for_upload(stream);
}

std::vector<float> MagnitudeHistory::wait_for_current(const Stream& stream) const {
  std::vector<float> largest(tensors_);
  if (stream.device().simulated) return largest;
  wait_for_copy(host_, current_, stream);
  std::copy_n(host_.data<float>(), tensors_, largest.begin());
  return largest;
}

void MagnitudeHistory::wait_for_update(const std::vector<float>& largest, const Stream& stream) {
  double* const row = updates_.data() + next_ * tensors_;
  for (std::size_t i = 0; i < tensors_; ++i)
    row[i] = std::isfinite(largest[i]) ? static_cast<double>(largest[i]) : 0;
  next_ = (next_ + 1) % kUpdates;
  wait_for_upload(stream);
}

void MagnitudeHistory::wait_for_upload(const Stream& stream) const {
  if (stream.device().simulated) return;
  for (std::size_t i = 0; i < tensors_; ++i) {
    double most = 0;
    for (std::size_t k = 0; k < kUpdates; ++k) most = std::max(most, updates_[k * tensors_ + i]);
    host_.data<float>()[i] = static_cast<float>(most);
  }
  wait_for_copy(expected_, host_, stream);
}

void MagnitudeHistory::save(State& state) const {
  state.series[kUpdatesKey] = updates_;
  state.integers[kNextKey] = static_cast<std::int64_t>(next_);
}

void MagnitudeHistory::load(const State& state, const Stream& stream) {
  std::ranges::fill(updates_, 0.0);
  next_ = 0;
  if (state.series.contains(kUpdatesKey)) {
    const std::vector<double>& saved = state.reals_of(kUpdatesKey);
    const std::int64_t next = state.integer(kNextKey);
    if (saved.size() != updates_.size() || next < 0 ||
        next >= static_cast<std::int64_t>(kUpdates)) {
      throw DataError(concat(kUpdatesKey, ": the checkpoint has ", saved.size(), " numbers, want ",
                             updates_.size(), " for this model"));
    }
    updates_ = saved;
    next_ = static_cast<std::size_t>(next);
  }
  if (expected_) wait_for_upload(stream);
}

ProductRounding::ProductRounding(const std::vector<Parameter*>& parameters, const Stream& stream,
                                 const Stream& host)
    : stream_(stream),
      host_(host),
      first_(operands_of(parameters)),
      history_(kOperands * first_.size()) {}

void ProductRounding::set_form(ProductForm form) {
  form_ = form;
  if (form == ProductForm::kFp8) history_.allocate(stream_, host_);
}

Tensor ProductRounding::rounded(const Tensor& x, Operand operand, const Parameter& weight,
                                const Pass& pass, const Stream& stream) const {
  const Tensor rounded = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  if (form_ == ProductForm::kFp16) {
    kernels::round_to_half(rounded, x, stream);
    return rounded;
  }
  const std::size_t slot = first_.at(&weight) + static_cast<std::size_t>(operand);
  const Tensor largest = Tensor::empty({1}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Tensor most = pass.training ? history_.current(slot) : Tensor{};
  kernels::largest_magnitude(largest, most, x, stream);
  const auto format =
      operand == Operand::kGradient ? kernels::Float8::kE5M2 : kernels::Float8::kE4M3;
  kernels::round_to_float8(rounded, x, format, history_.expected(slot), largest, stream);
  return rounded;
}

void ProductRounding::round_result(const Tensor& y, const Stream& stream) const {
  if (rounds_results()) kernels::round_to_half(y, y, stream);
}

Tensor product_operand(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                       const Stream& stream) {
  return pass.products == nullptr ? x : pass.products->rounded(x, operand, weight, pass, stream);
}

}  // namespace hybrid_trainer
