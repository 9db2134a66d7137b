#include "src/tools/open_model.h"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "src/core/machine.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/model_files/model_folder.h"
#include "src/tools/options.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kLongestWindow = 1024;

TrainedRun with_windows(TrainedRun opened) {
  opened.config.data.sequence_length = std::min(kLongestWindow, opened.config.model.context);
  return opened;
}

}  // namespace

void add_precision_option(po::options_description& options, std::string& precision) {
  options.add_options()(
      "precision", po::value(&precision)->value_name("fp32|bf16|int8|fp4|nf4|mxfp4|file"),
      "Format of weights and products (default: fp32). fp32, bf16: both. int8, fp4, nf4, mxfp4: "
      "quantized matrices, products in bf16. file: the blocks of a GGUF file, multiplied by 8-bit "
      "inputs as in llama.cpp; slow on CUDA.");
}

void add_run_weights_options(po::options_description& options, RunWeights& requested) {
  auto add = options.add_options();
  const auto take_checkpoint = [&requested](const std::string& text) {
    if (text == "best") {
      requested.checkpoint = RunWeights::Checkpoint::kBest;
      return;
    }
    requested.checkpoint = RunWeights::Checkpoint::kStep;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, requested.step);
    if (error != std::errc() || end != last || requested.step < 0)
      throw UsageError(concat("--checkpoint: got ", text, ", want best or a step, such as 500"));
  };
  add("checkpoint", po::value<std::string>()->notifier(take_checkpoint)->value_name("best|STEP"),
      "Checkpoint of a run: a step, or best for the lowest validation loss (checkpoint.keep_best). "
      "Default: the newest.");
  const auto take_average = [&requested](bool is_given) {
    requested.kind = is_given ? RunWeights::kAverage : RunWeights::kLast;
  };
  add("average", po::bool_switch()->notifier(take_average),
      "Use the running mean of the weights (training.average_weights) instead of the last "
      "weights.");
}

void add_model_options(po::options_description& options, ModelOptions& requested) {
  add_precision_option(options, requested.precision);
  options.add_options()("weights", po::value(&requested.home)->value_name("device|host|file"),
                        "Location of a Hugging Face model's matrices (default: device): device, "
                        "host or file, a scratch file in TMPDIR. From the file, only the matrices "
                        "in use are read, such as the experts that a token chooses.");
  add_device_option(options, requested.device);
  add_run_weights_options(options, requested.weights);
}

void refuse_run_weights(const RunWeights& weights, const std::string& folder,
                        const std::string& what) {
  if (weights.is_average())
    throw UsageError(concat("--average: ", folder, " is ", what,
                            ", but only runs have averaged weights; leave it out"));
  if (weights.checkpoint != RunWeights::Checkpoint::kNewest)
    throw UsageError(concat("--checkpoint: ", folder, " is ", what,
                            ", but only runs have checkpoints; leave it out"));
}

TrainedRun open_model(const std::string& path, const Stream& stream, const RunWeights& weights,
                      const std::string& precision, const std::string& home) {
  if (std::ranges::count(placement_names(), home) == 0)
    throw UsageError(choice_problem("--weights", home, placement_names()));
  if (std::ranges::count(frozen_base_names(), precision) == 0)
    throw UsageError(choice_problem("--precision", precision, frozen_base_names()));
  set_default_threads();
  const bool is_run = RunPaths{path}.contains_run();
  const ModelFolder folder(path);
  if (!is_run && std::filesystem::exists(path)) refuse_run_weights(weights, path, "a model folder");
  if (home != "device" && (is_run || !folder.is_model()))
    throw UsageError(concat(
        "--weights ", home, ": ", path,
        " is not a Hugging Face model folder, the only kind that supports it; leave it out"));
  if (!is_run && holds_adapter(path) && !folder.has_weights())
    return with_windows(load_adapter_folder(path, precision, stream));
  if (!is_run && folder.is_model())
    return with_windows(
        load_hugging_face_folder(folder, precision, stream, model_families(), home));
  if (!is_run)
    throw MissingInput(concat(
        path,
        std::filesystem::exists(path) ? ": does not contain a run or a model" : ": does not exist",
        "; want the folder of a run, a Hugging Face model or a PEFT adapter", adapters_hint(path),
        download_hint(path)));
  std::optional<std::string> form;
  if (is_quantized_base(precision)) form = precision;
  TrainedRun run = load_trained_run(path, stream, model_families(), weights, form);
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << warning << "\n";
  return run;
}

TrainedRun open_model(const std::string& path, const Stream& stream, const ModelOptions& options) {
  return open_model(path, stream, options.weights, options.precision, options.home);
}

DType compute_in(Network& model, const std::string& precision, const Stream& stream) {
  const DType dtype = precision == "fp32" || precision == kFileBase ? DType::kF32 : DType::kBF16;
  model.visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype, stream); });
  return dtype;
}

}  // namespace hybrid_trainer
