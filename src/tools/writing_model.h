#pragma once

#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/context_window.h"
#include "hybrid_trainer/run/run_files.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// A model that writes text, with what it computes in. Throws as open_model, and DataError where it
/// has no tokenizer.
struct WritingModel {
  TrainedRun run;
  DType dtype;
  WritingModel(const std::string& folder, const std::string& precision, RunWeights weights,
               const Stream& stream)
      : run(open_model(folder, stream, weights, precision)),
        dtype(compute_in(*run.model, precision, stream)) {
    if (!run.tokenizer)
      throw DataError(
          concat(folder, " has no tokenizer; its data came without one, so text cannot be made"));
  }
  std::int64_t context() const { return run.model->config().context; }
};

}  // namespace hybrid_trainer
