#pragma once

#include <memory>
#include <optional>

#include "hybrid_trainer/kernels/rotary.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/head_norms.h"
#include "hybrid_trainer/nn/rotary_table.h"

namespace hybrid_trainer {

/// What queries, keys and values go through before they attend: norms of queries and keys, a limit of all,
/// and rotation of queries and keys by their positions; any of these or none.
class HeadPreparation {
 public:
  struct Spec {
    kernels::AttentionSpec heads{1};
    std::int64_t head_size = 0;
    std::optional<kernels::RmsNormSpec> norm{};
    bool norms_all_heads = false;  // the norm is of all heads of queries, and of keys, together
    float limit = 0;               // all are cut to [−limit, limit]; 0: they are not
    std::shared_ptr<RotaryTable> rotary{};
  };
  HeadPreparation(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Whether anything but rotation, which backward undoes, is done.
  bool changes() const { return norms_ || limit_ > 0; }
  /// Null where nothing is rotated.
  RotaryTable* rotary() const { return rotary_.get(); }
  /// Whether a token's angle depends on where it is alone, if there is any.
  bool is_relative() const { return rotary_ == nullptr || rotary_->is_relative(); }
  /// Of sequences that go through at once and end at position `end`; undefined if nothing is rotated.
  RotaryTable::Angles angles(std::int64_t end, const Pass& pass, const Stream& stream) const {
    if (rotary_ == nullptr) return {};
    return rotary_->of_sequences(end, static_cast<bool>(pass.positions), stream);
  }
  /// In place, of qkv (B, T, …): rows of all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
               const Stream& stream);
  /// Makes of the results' gradient that of what forward was given, `from`, which is read where it
  /// changes(); in place.
  void backward(const Tensor& dqkv, const Tensor& from, const RotaryTable::Angles& angles,
                const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);

 private:
  void rotate(const Tensor& qkv, const RotaryTable::Angles& angles, const Pass& pass,
              kernels::Rotation rotation, const Stream& stream) const;
  std::int64_t turned_heads_, head_size_;
  std::optional<HeadNorms> norms_;
  float limit_;
  std::shared_ptr<RotaryTable> rotary_;
};

}  // namespace hybrid_trainer
