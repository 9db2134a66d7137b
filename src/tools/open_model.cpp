#include "src/tools/open_model.h"

#include <algorithm>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/hugging_face/adapter_files.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/hugging_face/hugging_face_weights.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongestWindow = 1024;

/// Of a folder that is no run.
TrainedRun with_windows(TrainedRun opened) {
  opened.config.data.sequence_length = std::min(kLongestWindow, opened.config.model.context);
  return opened;
}

}  // namespace

void add_precision_option(po::options_description& options, std::string& precision) {
  options.add_options()(
      "precision", po::value(&precision)->value_name("fp32|bf16|int8|fp4|nf4|mxfp4"),
      "What is multiplied: fp32 or bf16; or bf16 with the matrices held as lora.base "
      "says by int8, fp4, nf4 or mxfp4 (fp32).");
}

void add_average_option(po::options_description& options, bool& average) {
  options.add_options()("average", po::bool_switch(&average),
                        "Read the mean of the weights (training.average_weights), not the last.");
}

void add_weights_option(po::options_description& options, std::string& home) {
  options.add_options()(
      "weights", po::value(&home)->value_name("device|host|file"),
      "Where a Hugging Face folder's matrices lie: device, host or file, a scratch "
      "file in TMPDIR of which only what is multiplied is read, such as the experts "
      "that a token chooses (device).");
}

TrainedRun open_model(const std::string& folder, const Stream& stream, RunWeights weights,
                      const std::string& precision, const std::string& home) {
  if (std::ranges::count(placement_names(), home) == 0)
    throw UsageError(choice_problem("--weights", home, placement_names()));
  if (std::ranges::count(frozen_base_names(), precision) == 0)
    throw UsageError(choice_problem("--precision", precision, frozen_base_names()));
  set_threads(processor_info().cores);
  const bool is_run = RunPaths{folder}.hold_a_run();
  if (!is_run && weights == RunWeights::kAverage && std::filesystem::exists(folder))
    throw UsageError(
        concat("--average: ", folder, " is no run, which alone has a mean of weights"));
  if (home != "device" && (is_run || !HuggingFaceWeights::are_meant(folder)))
    throw UsageError(concat("--weights ", home, ": ", folder, " is no Hugging Face folder of a ",
                            "model, whose matrices alone can lie elsewhere; leave it out"));
  if (!is_run && holds_adapter(folder) && !HuggingFaceWeights::are_in(folder))
    return with_windows(load_adapter_folder(folder, precision, stream));
  if (!is_run && HuggingFaceWeights::are_meant(folder))
    return with_windows(
        load_hugging_face_folder(folder, precision, stream, model_families(), home));
  if (!is_run)
    throw MissingInput(
        concat(folder,
               std::filesystem::exists(folder) ? ": holds no run and no model" : ": does not exist",
               "; want a run's folder, a model's of Hugging Face or an adapter's of PEFT",
               how_to_download(folder)));
  std::optional<std::string> form;
  if (is_quantized_base(precision)) form = precision;
  TrainedRun run = load_trained_run(folder, stream, model_families(), weights, form);
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << warning << "\n";
  return run;
}

DType compute_in(LanguageModel& model, const std::string& precision, const Stream& stream) {
  const DType dtype = precision == "fp32" ? DType::kF32 : DType::kBF16;
  model.visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype, stream); });
  return dtype;
}

}  // namespace hybrid_trainer
