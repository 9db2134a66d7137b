#pragma once

#include <string>

#include "hybrid_trainer/hugging_face/upcycling.h"
#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {

/// A matrix of a gated feed-forward branch: the two that read its input, (inner, width) in files, and
/// the last one, (width, inner).
enum class ExpertPart { kGate, kUp, kDown };

/// The matrix of one expert.
struct ExpertMatrix {
  std::int64_t layer = 0, expert = 0;
  ExpertPart part = ExpertPart::kGate;
  double scale = 1;
};

/// The expert's part of a dense model's matrix, in f32: with its noise and what is drawn anew, numbers
/// that depend only on the seed, the layer and the expert.
Tensor expert_matrix(const SafetensorsFile& file, const std::string& name,
                     const ExpertMatrix& which, const Upcycling& asked);

/// A new router, (experts, width). The shards of one copy have the same rows, so their logits tie and
/// a copy is chosen as a whole.
Tensor new_router(std::int64_t layer, std::int64_t width, const Upcycling& asked);

}  // namespace hybrid_trainer
