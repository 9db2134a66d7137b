#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/shape.h"

namespace hybrid_trainer {

/// Purpose of bytes; every allocation is accounted under one kind.
enum class MemoryKind {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,
  kPredictor,
  kSnapshot,
  kWorkspace,
  kData,
  kMasterWeights,  // f32, where bf16 copies of them compute as kParameters
  kLogits,
};
inline constexpr std::size_t kMemoryKinds = 10;
const char* name_of(MemoryKind kind);  // "parameters", "gradients", "optimizer_state", ...

/// The tensor that a block is for; of rank 0 where it is for none.
struct BlockContent {
  DType dtype = DType::kU8;
  Shape shape{};
};

/// A live block of a pool, or one that was asked for.
struct MemoryBlock {
  static constexpr std::size_t kMostLabel = 47;
  std::size_t bytes = 0;  // with what rounding up adds
  MemoryKind kind = MemoryKind::kWorkspace;
  BlockContent content{};
  std::array<char, kMostLabel + 1> label{};  // of the MemoryLabel then; its end, if it is longer
  std::string text() const;  // "h.0.attn.c_attn.weight f32 (192, 64)", "activations bf16 (8, 64)"
};

/// Names what the calling thread allocates while it lives, such as a weight or a part of the model,
/// so that reports say where memory went. The innermost label counts.
class MemoryLabel {
 public:
  /// `name` must outlive it.
  explicit MemoryLabel(std::string_view name);
  ~MemoryLabel();
  MemoryLabel(const MemoryLabel&) = delete;
  MemoryLabel& operator=(const MemoryLabel&) = delete;
  static std::string_view current();  // "" without one

 private:
  std::string_view outer_;
};

}  // namespace hybrid_trainer
