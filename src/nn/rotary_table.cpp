#include "hybrid_trainer/nn/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hybrid_trainer {
namespace {

/// Llama 3.1's rule for one frequency.
double llama3_frequency(double frequency, const RotaryScaling& scaling, double original) {
  const double turns = original * frequency / (2 * std::numbers::pi);  // in the original context
  const double kept = std::clamp(
      (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0, 1.0);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// Pairs of channels between which YaRN goes over from kept frequencies to divided ones.
struct YarnRange {
  YarnRange(const RotaryScaling& scaling, double original, double theta, double head_size) {
    const auto pair_of = [&](double turns) {
      return head_size * std::log(original / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(theta));
    };
    low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, head_size - 1);
    if (low == high) high += 0.001;
  }
  double low, high;
};

bool is_on(const Tensor& table, const Stream& stream) {
  return table && table.device() == stream.device();
}

}  // namespace

/// On which the frequencies of a sequence of `length` positions depend; 0: on none.
std::int64_t RotaryTable::length_that_counts(std::int64_t length) const {
  return scaling_.type == "dynamic" ? std::max(length, scaling_.original_context) : 0;
}

std::vector<float> RotaryTable::frequencies(std::int64_t length) const {
  const auto size = static_cast<double>(head_size_);
  const auto original =
      static_cast<double>(scaling_.original_context > 0 ? scaling_.original_context : context_);
  double theta = theta_;
  if (scaling_.type == "dynamic") {
    const double longer = std::max(static_cast<double>(length) / original, 1.0);
    theta *= std::pow(scaling_.factor * longer - (scaling_.factor - 1), size / (size - 2));
  }
  const YarnRange range(scaling_, original, theta, size);
  std::vector<float> frequencies;
  for (std::int64_t j = 0; j < head_size_ / 2; ++j) {
    double frequency = std::pow(theta, -static_cast<double>(2 * j) / size);
    if (scaling_.type == "linear") frequency /= scaling_.factor;
    if (scaling_.type == "llama3") frequency = llama3_frequency(frequency, scaling_, original);
    if (scaling_.type == "yarn") {
      const double divided =
          std::clamp((static_cast<double>(j) - range.low) / (range.high - range.low), 0.0, 1.0);
      frequency = frequency / scaling_.factor * divided + frequency * (1 - divided);
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

/// What cosines and sines are multiplied by.
double RotaryTable::amplitude() const {
  if (scaling_.type != "yarn") return 1;
  if (scaling_.attention_factor > 0) return scaling_.attention_factor;
  const auto of = [&](double scale) {
    return scaling_.factor <= 1 ? 1 : 0.1 * scale * std::log(scaling_.factor) + 1;
  };
  if (scaling_.mscale > 0 && scaling_.mscale_all_dim > 0)
    return of(scaling_.mscale) / of(scaling_.mscale_all_dim);
  return of(1);
}

const Tensor& RotaryTable::on(std::int64_t length, const Stream& stream) {
  const std::int64_t wanted = length_that_counts(length);
  if (is_on(table_, stream) && wanted == length_) return table_;
  length_ = wanted;
  make(
      table_, [wanted](std::int64_t) { return wanted; }, stream);
  return table_;
}

const Tensor& RotaryTable::by_step(const Stream& stream) {
  if (length_that_counts(1) == 0) return on(context_, stream);
  if (is_on(step_table_, stream)) return step_table_;
  make(
      step_table_, [this](std::int64_t t) { return length_that_counts(t + 1); }, stream);
  return step_table_;
}

/// Row t of a sequence of length_at(t) positions.
void RotaryTable::make(Tensor& table, const LengthAt& length_at, const Stream& stream) const {
  const MemoryLabel label("rotary table");
  if (!is_on(table, stream))
    table = Tensor::empty({context_, head_size_}, DType::kF32, MemoryKind::kParameters, stream);
  if (stream.device().simulated) return;
  const std::int64_t half = head_size_ / 2;
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(table.shape(), DType::kF32, MemoryKind::kWorkspace, host);
  const auto scale = static_cast<float>(amplitude());
  std::vector<float> turns;
  for (std::int64_t t = 0, length = -1; t < context_; ++t) {
    if (length != length_at(t)) turns = frequencies(length = length_at(t));
    float* const row = values.data<float>() + t * head_size_;
    for (std::int64_t j = 0; j < half; ++j) {
      const float angle = static_cast<float>(t) * turns[static_cast<std::size_t>(j)];
      row[j] = std::cos(angle) * scale;
      row[half + j] = std::sin(angle) * scale;
    }
  }
  wait_for_copy(table, values, stream);
}

}  // namespace hybrid_trainer
