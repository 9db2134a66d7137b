#pragma once

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Settings for converting a dense model to a mixture of experts.
struct Upcycling {
  std::int64_t experts = 8, chosen = 2;
  /// Number of experts that each feed-forward copy is split into. Must divide experts and chosen.
  std::int64_t shards = 1;
  double redraw = 0;  // share of each expert's inner columns that is redrawn
  double noise = 0;   // standard deviation of added noise, relative to the matrix's
  std::uint64_t seed = 1;
};

struct UpcycledFolder {
  ModelConfig model;
  DType dtype = DType::kF32;
};

/// Writes the Hugging Face folder of a mixture with new routers, whose experts are copies of the
/// dense model's feed-forward branches (Komatsuzaki et al. 2022, "Sparse upcycling"). Without noise
/// and redrawing, its results equal the dense model's. Needs memory for one matrix at a time.
/// Throws UsageError, MissingInput; DataError if no family has such a mixture; CannotCreate if
/// `output` exists and is not empty; IoError.
UpcycledFolder upcycle_hugging_face(const ModelFolder& dense, const Upcycling& requested,
                                    const std::filesystem::path& output,
                                    const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
