#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Options of commands that open a model: --precision, --weights and --device, with their defaults.
struct ModelOptions {
  std::string precision = "fp32", home = "device", device = "auto";
  RunWeights weights{};
};

/// Adds --precision, --weights, --device, --checkpoint and --average.
void add_model_options(po::options_description& options, ModelOptions& requested);

/// Opens the model of a run, a Hugging Face folder or a PEFT folder, using all cores. Reports
/// skipped checkpoints on standard error. For a folder that is not a run, step is 0, data is empty,
/// and config.data.sequence_length is the context, at most 1024. `precision`, a name of lora.base,
/// is the storage format of a folder's weights. The weights of a run are stored in this format only
/// if it is quantized; otherwise they are stored in the format of training. `home`, one of
/// placement_names(), is the location of the matrices of a Hugging Face folder. Throws UsageError
/// for an invalid precision or home. Also throws like load_trained_run and
/// read_hugging_face_weights.
TrainedRun open_model(const std::string& folder, const Stream& stream,
                      const RunWeights& weights = {}, const std::string& precision = "fp32",
                      const std::string& home = "device");

TrainedRun open_model(const std::string& folder, const Stream& stream, const ModelOptions& options);

/// Adds --precision, which open_model checks.
void add_precision_option(po::options_description& options, std::string& precision);
/// Sets and returns the model's compute precision: f32 for the precisions fp32 and file, otherwise
/// bf16.
DType compute_in(Network& model, const std::string& precision, const Stream& stream);

/// Adds --checkpoint and --average. Parsing throws UsageError if --checkpoint is neither "best" nor a
/// step.
void add_run_weights_options(po::options_description& options, RunWeights& requested);
/// Throws UsageError if --checkpoint or --average is given. `what` names the kind of `folder`.
void refuse_run_weights(const RunWeights& weights, const std::string& folder,
                        const std::string& what);

/// A model that generates text, with its compute precision. The constructor throws like open_model,
/// and DataError if the model is an encoder or has no tokenizer or language head.
struct WritingModel {
  TrainedRun run;
  DType dtype;
  WritingModel(const std::string& folder, const std::string& precision, const RunWeights& weights,
               const Stream& stream, const std::string& home = "device")
      : run(open_model(folder, stream, weights, precision, home)),
        dtype(compute_in(run.model("generating text"), precision, stream)) {
    if (!run.model().config().language_head)
      throw DataError(concat(folder,
                             " has no language head (model.language_head=false), so it cannot "
                             "generate text; apply it to rows with hybrid predict"));
    if (run.model().config().bidirectional)
      throw DataError(
          concat(folder, " is an encoder (model.bidirectional), so it cannot generate text: each ",
                 "of its tokens depends on later ones; measure its loss with hybrid eval"));
    if (!run.tokenizer)
      throw DataError(
          concat(folder,
                 " has no tokenizer, so it cannot generate text; a Hugging Face folder needs "
                 "tokenizer.json next to config.json, a run needs data prepared with a tokenizer"));
  }
  std::int64_t context() const { return run.model().config().context; }
};

}  // namespace hybrid_trainer
