#pragma once

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

struct Upcycling {
  std::int64_t experts = 8, chosen = 2;
  /// Number of experts into which each copy is split; must divide `experts` and `chosen`.
  std::int64_t shards = 1;
  double redraw = 0;  // share of each expert's inner columns that is reinitialized at random
  /// Standard deviation of added noise, divided by the standard deviation of the matrix.
  double noise = 0;
  std::uint64_t seed = 1;
};

struct UpcycledFolder {
  ModelConfig model;
  DType dtype = DType::kF32;
};

/// Writes the Hugging Face folder of a mixture of experts. The routers are new; the experts are
/// copies of the dense model's feed-forward branches (Komatsuzaki et al. 2022, "Sparse upcycling").
/// Without noise and redrawing, its results equal the results of the dense model. Needs memory for
/// one matrix at a time. Throws DataError if no family has such a mixture, and CannotCreate if
/// `output` exists and is not empty. Also throws UsageError, MissingInput and IoError.
UpcycledFolder upcycle_hugging_face(const ModelFolder& dense, const Upcycling& requested,
                                    const fs::path& output,
                                    const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
