#pragma once

#include <unordered_map>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Role of an operand in the products of a linear map.
enum class Operand { kInput, kWeight, kGradient };
inline constexpr std::size_t kOperands = 3;

/// Largest magnitudes in the last kUpdates updates, for FP8 scales (delayed scaling).
class MagnitudeHistory {
 public:
  static constexpr std::size_t kUpdates = 16;

  explicit MagnitudeHistory(std::size_t tensors);
  /// Allocates device memory on the first call. `host`: stream for host copies of the magnitudes.
  void allocate(const Stream& stream, const Stream& host);
  /// Returns the largest magnitude in the recorded updates, (1) f32, or 0 before the first update.
  Tensor expected(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return expected_.rows(at, at + 1);
  }
  /// Returns the largest magnitude since `clear`, (1) f32. Kernels update it.
  Tensor current(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return current_.rows(at, at + 1);
  }
  void clear(const Stream& stream) const { fill_zero(current_, stream); }
  /// Returns the largest magnitude of each tensor since `clear`. Blocks.
  std::vector<float> wait_for_current(const Stream& stream) const;
  /// Records the magnitudes of an update in place of the oldest update. Blocks.
  void wait_for_update(const std::vector<float>& largest, const Stream& stream);
  void save(State& state) const;
  /// Loads the history, if any. Throws DataError if it belongs to another model.
  void load(const State& state, const Stream& stream);

 private:
  void wait_for_upload(const Stream& stream) const;
  std::size_t tensors_;
  std::vector<double> updates_;  // kUpdates rows; row next_ is replaced next
  std::size_t next_ = 0;
  Tensor expected_, current_, host_;
};

/// Rounds the operands of linear maps to 16 or 8 bits. Products use the dtype of the tensors, which
/// represents the rounded numbers exactly, and f32 sums.
class ProductRounding {
 public:
  /// `parameters` must include the weights of all products. All arguments must outlive this object.
  ProductRounding(const std::vector<Parameter*>& parameters, const Stream& stream,
                  const Stream& host);
  /// Sets the format of operands. FP8 allocates the magnitude history.
  void set_form(ProductForm form);
  ProductForm form() const { return form_; }
  /// Returns a rounded copy of x. Training passes update the magnitude history.
  Tensor rounded(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                 const Stream& stream) const;
  /// Rounds y to half precision, large numbers to infinity. Has no effect in FP8.
  void round_result(const Tensor& y, const Stream& stream) const;
  bool rounds_results() const { return form_ == ProductForm::kFp16; }
  MagnitudeHistory& history() { return history_; }
  const MagnitudeHistory& history() const { return history_; }

 private:
  const Stream &stream_, &host_;
  std::unordered_map<const Parameter*, std::size_t> first_;  // index of the weight's first operand
  MagnitudeHistory history_;
  ProductForm form_ = ProductForm::kAsStored;
};

/// Returns x as read by products of this pass: rounded if the pass rounds operands, else x itself.
Tensor product_operand(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                       const Stream& stream);

}  // namespace hybrid_trainer
