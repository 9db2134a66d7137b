#pragma once

#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/context_window.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// A model that writes text, with what it computes in. Throws as open_model, and DataError where it
/// is an encoder or has no tokenizer.
struct WritingModel {
  TrainedRun run;
  DType dtype;
  WritingModel(const std::string& folder, const std::string& precision, const RunWeights& weights,
               const Stream& stream, const std::string& home = "device")
      : run(open_model(folder, stream, weights, precision, home)),
        dtype(compute_in(run.model("writing text"), precision, stream)) {
    if (run.model().config().two_way)
      throw DataError(concat(folder,
                             " is an encoder (model.two_way), so it cannot write text: each ",
                             "of its tokens depends on later ones; eval measures its loss"));
    if (!run.tokenizer)
      throw DataError(
          concat(folder, " has no tokenizer, so text cannot be made; a Hugging Face folder wants ",
                 "tokenizer.json beside config.json, a run data prepared with a tokenizer"));
  }
  std::int64_t context() const { return run.model().config().context; }
};

}  // namespace hybrid_trainer
