#pragma once

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// How a dense model becomes a mixture of experts.
struct Upcycling {
  std::int64_t experts = 8, chosen = 2;
  /// Parts that each copy of a feed-forward branch is cut into along its inner width; each is an
  /// expert. Divides experts and chosen.
  std::int64_t shards = 1;
  double redraw = 0;  // share of each expert's inner columns that is drawn anew
  double noise = 0;   // deviation of what is added to each matrix, relative to the matrix's own
  std::uint64_t seed = 1;
};

struct UpcycledFolder {
  ModelConfig model;
  DType dtype = DType::kF32;
};

/// Writes the Hugging Face folder of a mixture whose experts are copies of the dense model's
/// feed-forward branches, and whose routers are new (Komatsuzaki et al. 2022, "Sparse upcycling").
/// Without noise and redrawing it computes what the dense model does. Memory holds one matrix at a
/// time. Throws UsageError, MissingInput; DataError where no family has such a mixture; CannotCreate
/// where `output` exists and is not empty; IoError.
UpcycledFolder upcycle_hugging_face(const ModelFolder& dense, const Upcycling& asked,
                                    const std::filesystem::path& output,
                                    const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
