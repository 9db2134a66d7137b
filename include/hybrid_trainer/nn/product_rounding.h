#pragma once

#include <unordered_map>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Operands of a linear map's products.
enum class Operand { kInput, kWeight, kGradient };
inline constexpr std::size_t kOperands = 3;

/// Largest magnitudes of tensors in the last kUpdates updates, for FP8 scales (delayed scaling).
class MagnitudeHistory {
 public:
  static constexpr std::size_t kUpdates = 16;

  explicit MagnitudeHistory(std::size_t tensors);
  /// Allocates device memory on the first call. `host`: for host copies of the magnitudes.
  void allocate(const Stream& stream, const Stream& host);
  /// Returns the largest magnitude of the recorded updates, (1) f32; 0 before the first.
  Tensor expected(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return expected_.rows(at, at + 1);
  }
  /// Returns the largest magnitude since clear, (1) f32, which kernels update.
  Tensor current(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return current_.rows(at, at + 1);
  }
  void clear(const Stream& stream) const { fill_zero(current_, stream); }
  /// Returns the magnitudes since clear. Blocks.
  std::vector<float> wait_for_current(const Stream& stream) const;
  /// Appends the magnitudes of an update, replacing the oldest. Blocks.
  void wait_for_update(const std::vector<float>& largest, const Stream& stream);
  void save(State& state) const;
  /// Resets if the state has no history. Throws DataError if the history belongs to another model.
  void load(const State& state, const Stream& stream);

 private:
  void wait_for_upload(const Stream& stream) const;
  std::size_t tensors_;
  std::vector<double> updates_;  // kUpdates rows, the next one to replace at next_
  std::size_t next_ = 0;
  Tensor expected_, current_, host_;
};

/// Rounds the operands of linear maps to 16 or 8 bits. Products then compute in the tensors' dtype,
/// which represents the rounded numbers exactly, with f32 sums.
class ProductRounding {
 public:
  /// `parameters` must include the weights of all products. All arguments must outlive it.
  ProductRounding(const std::vector<Parameter*>& parameters, const Stream& stream,
                  const Stream& host);
  /// Sets the form; FP8 allocates its history.
  void set_form(ProductForm form);
  ProductForm form() const { return form_; }
  /// Returns x rounded, in new memory. Training passes update the history.
  Tensor rounded(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                 const Stream& stream) const;
  /// Rounds a product to half precision, with infinities for large numbers; does nothing in FP8.
  void round_result(const Tensor& y, const Stream& stream) const;
  bool rounds_results() const { return form_ == ProductForm::kFp16; }
  MagnitudeHistory& history() { return history_; }
  const MagnitudeHistory& history() const { return history_; }

 private:
  const Stream &stream_, &host_;
  std::unordered_map<const Parameter*, std::size_t> first_;  // index of a weight's first operand
  MagnitudeHistory history_;
  ProductForm form_ = ProductForm::kAsStored;
};

/// Returns x as a product of this pass reads it: rounded, or x itself.
Tensor product_operand(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                       const Stream& stream);

}  // namespace hybrid_trainer
