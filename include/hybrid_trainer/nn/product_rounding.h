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

/// The largest magnitudes of tensors in the last updates, by which FP8 scales them in the next one
/// (delayed scaling).
class MagnitudeHistory {
 public:
  static constexpr std::size_t kUpdates = 16;

  explicit MagnitudeHistory(std::size_t tensors);
  /// Takes the device memory, once. `host`: where copies of it go.
  void allocate(const Stream& stream, const Stream& host);
  /// The largest of the last updates, (1) f32; 0 where there was none.
  Tensor expected(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return expected_.rows(at, at + 1);
  }
  /// The largest since clear, (1) f32, for kernels to raise.
  Tensor current(std::size_t tensor) const {
    const auto at = static_cast<std::int64_t>(tensor);
    return current_.rows(at, at + 1);
  }
  void clear(const Stream& stream) const { fill_zero(current_, stream); }
  /// Those since clear. Blocks.
  std::vector<float> wait_for_current(const Stream& stream) const;
  /// Adds those of an update; the oldest go. Blocks.
  void wait_for_update(const std::vector<float>& largest, const Stream& stream);
  void save(State& state) const;
  /// Begins anew where the state has none. Throws DataError if it is of another model.
  void load(const State& state, const Stream& stream);

 private:
  void wait_for_upload(const Stream& stream) const;
  std::size_t tensors_;
  std::vector<double> updates_;  // kUpdates rows, the next one to replace at next_
  std::size_t next_ = 0;
  Tensor expected_, current_, host_;
};

/// Rounds what linear maps multiply to 16 or 8 bits. Products then compute in the tensors' own dtype,
/// which holds the rounded numbers exactly, with f32 sums.
class ProductRounding {
 public:
  /// The weights of all products are among the parameters. All must outlive it.
  ProductRounding(const std::vector<Parameter*>& parameters, const Stream& stream,
                  const Stream& host);
  /// From now on; FP8 takes memory for its history.
  void set_form(ProductForm form);
  ProductForm form() const { return form_; }
  /// x in the numbers of the form, in memory of its own. A training pass adds to the history.
  Tensor rounded(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                 const Stream& stream) const;
  /// Rounds a product to half precision, where a large number becomes infinite; leaves it as it is
  /// in FP8, whose results have more bits.
  void round_result(const Tensor& y, const Stream& stream) const;
  bool rounds_results() const { return form_ == ProductForm::kFp16; }
  MagnitudeHistory& history() { return history_; }
  const MagnitudeHistory& history() const { return history_; }

 private:
  const Stream &stream_, &host_;
  std::unordered_map<const Parameter*, std::size_t> first_;  // of a weight's operands
  MagnitudeHistory history_;
  ProductForm form_ = ProductForm::kAsStored;
};

/// x as a product of this pass reads it: rounded, or x itself.
Tensor product_operand(const Tensor& x, Operand operand, const Parameter& weight, const Pass& pass,
                       const Stream& stream);

}  // namespace hybrid_trainer
