#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// The model of a run's folder or of a Hugging Face folder, using all cores; skipped checkpoints are
/// reported on standard error. Of a Hugging Face folder step is 0, data empty, and
/// config.data.sequence_length at most 1024 of its context. `precision`, a name of lora.base, says how
/// a folder's weights are held; those of a run only where it is one that quantizes them, else they
/// stay as they were trained. `home`, one of placement_names(), says where a Hugging Face folder's
/// matrices lie. Throws UsageError for another precision or home, and like load_trained_run and
/// read_hugging_face_weights.
TrainedRun open_model(const std::string& folder, const Stream& stream,
                      const RunWeights& weights = {}, const std::string& precision = "fp32",
                      const std::string& home = "device");

/// Adds --weights, which open_model checks.
void add_weights_option(po::options_description& options, std::string& home);
/// Adds --precision, which open_model checks.
void add_precision_option(po::options_description& options, std::string& precision);
/// Sets what the model computes in, which is returned: f32 by fp32, else bf16.
DType compute_in(Network& model, const std::string& precision, const Stream& stream);

/// Which weights of a run a command reads, as it was typed.
struct RunWeightsOption {
  bool average = false;
  std::string checkpoint;  // "best", a step, or empty
};

/// Adds --checkpoint and --average.
void add_run_weights_options(po::options_description& options, RunWeightsOption& asked);
/// Throws UsageError where --checkpoint is neither "best" nor a step.
RunWeights run_weights(const RunWeightsOption& asked);
/// Throws UsageError where one of both options is given for `folder`, which is no run but `what`.
void refuse_run_weights(const RunWeights& weights, const std::string& folder,
                        const std::string& what);

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
