#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <iostream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/benchmark.h"
#include "src/tasks/task_kind.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/options.h"
#include "src/tools/train/train_output.h"

namespace hybrid_trainer {

namespace {

boost::json::array profile_json(const BenchmarkResult& result) {
  boost::json::array rows;
  for (std::size_t p = 0; p < kStepParts; ++p) {
    for (std::size_t w = 0; w < kWorks; ++w) {
      const auto part = static_cast<StepPart>(p);
      const auto work = static_cast<Work>(w);
      const Profile::Entry& entry = result.profile.of(part, work);
      if (entry.calls == 0) continue;
      rows.push_back({{"part", name_of(part)},
                      {"work", name_of(work)},
                      {"seconds", entry.seconds / result.profiled_steps},
                      {"calls", entry.calls / result.profiled_steps}});
    }
  }
  return rows;
}

/// Prints a step's milliseconds by kernel and by part; the last line is the time outside kernels.
void print_profile(const BenchmarkResult& result) {
  const double per_step = 1e3 / result.profiled_steps, step = per_step * result.profiled_seconds;
  std::printf("\n%-14s%10s%10s%10s%10s%8s%8s\n", "ms a step", "forward", "backward", "update",
              "together", "share", "calls");
  double known = 0;
  for (std::size_t w = 0; w < kWorks; ++w) {
    const auto work = static_cast<Work>(w);
    const Profile::Entry sum = result.profile.of(work);
    if (sum.calls == 0) continue;
    known += per_step * sum.seconds;
    std::printf("%-14s", name_of(work));
    for (const StepPart part : {StepPart::kForward, StepPart::kBackward, StepPart::kUpdate})
      std::printf("%10.2f", per_step * result.profile.of(part, work).seconds);
    std::printf("%10.2f%7.1f%%%8lld\n", per_step * sum.seconds, 100 * per_step * sum.seconds / step,
                static_cast<long long>(sum.calls / result.profiled_steps));
  }
  std::printf("%-14s%30s%10.2f%7.1f%%\n", "rest", "", step - known, 100 * (step - known) / step);
  std::printf("%-14s%30s%10.2f\n", "step", "", step);
}

boost::json::object as_json(const BenchmarkResult& result) {
  boost::json::object peaks;
  for (std::size_t k = 0; k < kMemoryKinds; ++k)
    peaks[name_of(static_cast<MemoryKind>(k))] = result.memory.peak[k];
  boost::json::object object{
      {"tokens_per_second", result.tokens_per_second},
      {"step_seconds", result.step_seconds},
      {"forward_seconds", result.forward_seconds},
      {"backward_seconds", result.backward_seconds},
      {"optimizer_seconds", result.optimizer_seconds},
      {"forward_only_seconds", result.forward_only_seconds},
      {"model_flops_per_second", result.model_flops_per_second},
      {"product_flops_per_second", result.product_flops_per_second},
      {"share_of_product_rate", result.share_of_product_rate},
      {"copy_bytes_per_second", result.copy_bytes_per_second},
      {"bytes_allocated_after_first_step", result.bytes_allocated_after_first_step},
      {"peak_bytes", peaks},
      {"peak_total_bytes", result.memory.peak_total},
      {"precision", result.precision},
      {"device", result.device},
      {"threads", threads()},
      {"instruction_set", name_of(instruction_set())}};
  if (result.mfu) object["mfu"] = *result.mfu;
  return object;
}

void print(const BenchmarkResult& result, const char* unit) {
  std::printf(
      "%.0f %s/s: step %.1f ms = forward %.1f + backward %.1f + optimizer %.1f ms (medians)\n",
      result.tokens_per_second, unit, 1e3 * result.step_seconds, 1e3 * result.forward_seconds,
      1e3 * result.backward_seconds, 1e3 * result.optimizer_seconds);
  std::printf("forward only, as a Predict step: %.1f ms, %.2f of a step\n",
              1e3 * result.forward_only_seconds, result.forward_only_seconds / result.step_seconds);
  std::printf(
      "model: %.1f GFLOP/s, %.1f %% of the fastest measured matrix product (%.1f GFLOP/s)\n",
      1e-9 * result.model_flops_per_second, 100 * result.share_of_product_rate,
      1e-9 * result.product_flops_per_second);
  if (result.mfu)
    std::printf("%.1f %% MFU, relative to the device's published rate\n", 100 * *result.mfu);
  std::printf("allocated after the first step: %zu bytes; peaks:",
              result.bytes_allocated_after_first_step);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (result.memory.peak[k] == 0) continue;
    std::printf(" %s %s", name_of(static_cast<MemoryKind>(k)),
                units::bytes(result.memory.peak[k]).c_str());
  }
  std::printf("\n");
}

boost::json::object as_json(const GenerationRates& rates) {
  return {{"tokens_per_second", rates.tokens_per_second},
          {"token_seconds", rates.token_seconds},
          {"batch", rates.batch},
          {"batch_token_seconds", rates.batch_token_seconds},
          {"batch_tokens_per_second", rates.batch_tokens_per_second},
          {"batch_gain", rates.batch_gain},
          {"weight_bytes", rates.weight_bytes},
          {"read_bytes_per_second", rates.read_bytes_per_second},
          {"share_of_read_rate", rates.share_of_read_rate},
          {"precision", rates.precision},
          {"device", rates.device},
          {"threads", threads()},
          {"instruction_set", name_of(instruction_set())}};
}

void print(const GenerationRates& rates) {
  std::printf("%.1f tokens/s for one text: %.2f ms per token (median)\n", rates.tokens_per_second,
              1e3 * rates.token_seconds);
  std::printf("weights: %s, read at %.1f GB/s, %.1f %% of the memory bandwidth of %.1f GB/s\n",
              units::bytes(static_cast<std::size_t>(rates.weight_bytes)).c_str(),
              1e-9 * rates.weight_bytes * rates.tokens_per_second, 100 * rates.share_of_read_rate,
              1e-9 * rates.read_bytes_per_second);
  if (rates.batch > 1)
    std::printf(
        "%.1f tokens/s for %ld texts in parallel: %.2f ms per token of each, %.2f times one text\n",
        rates.batch_tokens_per_second, static_cast<long>(rates.batch),
        1e3 * rates.batch_token_seconds, rates.batch_gain);
}

constexpr std::int64_t kDefaultSequence = 256, kDefaultBatch = 4;

struct BenchOptions {
  ConfigArguments source;
  std::string model, precision = "fp32", optimizer, device = "auto";
  std::optional<std::int64_t> batch{};
  std::int64_t sequence = -1;  // as given on the command line
  int steps = 10;
  std::optional<std::int64_t> tokens{};  // number of tokens to generate
  bool json = false, profile = false;
};

CommandSyntax bench_syntax(BenchOptions& options) {
  CommandSyntax syntax{
      .name = "bench",
      .usage =
          "(--preset NAME | --config FILE | --model HF_DIR) [--batch 4] [--sequence T] [options]",
      .description =
          "Measures training steps on random tokens and compares them with this machine's\n"
          "fastest matrix product. The forward time includes the gradient of the output head,\n"
          "which is computed together with the loss. With --generate, measures text generation,\n"
          "one token at a time, and compares it with the memory bandwidth; --batch B also\n"
          "generates B texts in parallel."};
  auto add = syntax.options.add_options();
  add_source_options(syntax.options, options.source);
  add("model", model_value(options.model),
      "Use the model shape of a Hugging Face folder; its weights are not read.");
  add("batch", optional_value(options.batch, "B"),
      "Sequences per step (default: data.batch_size if --config or --set gives it, else 4); with "
      "--generate, texts in parallel (default: 1).");
  add("sequence", po::value(&options.sequence)->value_name("T"),
      "Tokens per sequence (default: data.sequence_length if --config or --set gives it, else 256, "
      "or fewer if the model's context is shorter).");
  add("precision", po::value(&options.precision)->value_name("fp32|bf16|fp16|fp8|auto"),
      "Precision (default: fp32); auto uses the precision that training selects on this machine. "
      "--generate does not support fp16 and fp8.");
  add("optimizer", po::value(&options.optimizer)->value_name("NAME"),
      concat("One of ", join(optimizer_names()), " (default: optimizer.name, which is adamw).")
          .c_str());
  add_device_option(syntax.options, options.device);
  add("steps", po::value(&options.steps)->value_name("N"),
      "Steps to measure, after one warm-up step (default: 10).");
  add("generate", optional_value(options.tokens, "N"),
      "Measure the generation of N tokens after a prompt of T tokens instead.");
  add("profile", po::bool_switch(&options.profile),
      "Also print the time of each kernel, with a synchronization around each.");
  add("json", po::bool_switch(&options.json), "Print the result as one JSON object.");
  return syntax;
}

void check_generation(const BenchOptions& options) {
  if (!options.tokens) return;
  const BenchOptions plain;
  if (options.profile || options.steps != plain.steps || options.optimizer != plain.optimizer)
    throw UsageError(
        "bench: --generate does not measure training steps; it accepts only the model, --batch, "
        "--sequence, --precision, --device and --json");
  if (*options.tokens < 1)
    throw UsageError(concat("bench: --generate ", *options.tokens, "; want at least 1"));
}

void check_settings(const BenchOptions& options) {
  for (const std::string& setting : options.source.settings) {
    const bool counts = setting.starts_with("model.") || setting.starts_with("optimizer.") ||
                        setting.starts_with("data.batch_size=") ||
                        setting.starts_with("data.sequence_length=");
    if (!counts)
      throw UsageError(concat("bench: --set ", setting,
                              ": has no effect, since a benchmark uses only model.*, optimizer.*, "
                              "data.batch_size and data.sequence_length; leave it out"));
  }
  if (!options.model.empty()) check_model_is_not_set("bench", options.source.settings);
}

HybridTrainerConfig config_of(const BenchOptions& options) {
  check_settings(options);
  if (!options.source.names_a_source() && options.model.empty())
    throw UsageError("bench: give --preset NAME, --config FILE or --model HF_DIR");
  const ModelFolder model(options.model);
  HybridTrainerConfig of_folder;
  if (!options.model.empty() && !options.source.names_a_source())
    of_folder.model = read_hugging_face_model_config(model, 0);
  HybridTrainerConfig config = build_config(options.source, of_folder);
  if (!options.model.empty())
    config.model = with_training_of(read_hugging_face_model_config(model, 0), config.model,
                                    explicit_keys(options.source));
  set_vocabulary("bench", options.source, config);
  if (!options.optimizer.empty()) config.optimizer.name = options.optimizer;
  return config;
}

/// Returns `value` if a file or --set sets it, otherwise `usual`.
std::int64_t configured(const BenchOptions& options, const std::string& key, std::int64_t value,
                        std::int64_t usual) {
  return !options.source.file.empty() || options.source.sets(key) ? value : usual;
}

std::int64_t checked_sequence(const BenchOptions& options, const HybridTrainerConfig& config) {
  const std::int64_t context = config.model.context;
  const std::int64_t room = context - options.tokens.value_or(0);
  if (room < 1)
    throw UsageError(concat("bench: --generate ", *options.tokens, "; want less than ", context,
                            ", the model's context"));
  if (options.sequence < 0 && !task_kind(config.model).in_sequences)
    return config.data.sequence_length;
  if (options.sequence < 0)
    return std::min(room, configured(options, "data.sequence_length", config.data.sequence_length,
                                     kDefaultSequence));
  if (options.sequence >= 1 && options.sequence <= room) return options.sequence;
  throw UsageError(concat("bench: --sequence ", options.sequence, "; want 1 to ", room,
                          options.tokens ? ", the model's context minus the tokens to generate"
                                         : ", the model's context"));
}

BenchmarkSettings settings_of(const BenchOptions& options) {
  check_generation(options);
  BenchmarkSettings settings;
  settings.steps = options.steps;
  HybridTrainerConfig config = config_of(options);
  settings.batch =
      options.batch.value_or(options.tokens ? 1
                                            : configured(options, "data.batch_size",
                                                         config.data.batch_size, kDefaultBatch));
  settings.sequence = checked_sequence(options, config);
  if (settings.batch < 1)
    throw UsageError(concat("bench: --batch ", settings.batch, "; want at least 1"));
  config.data.batch_size = settings.batch;
  config.data.sequence_length = settings.sequence;
  config.validate();
  const std::vector<std::string> of_generation{"fp32", "bf16", "auto"};
  const std::vector<std::string>& precisions = options.tokens ? of_generation : precision_names();
  if (std::ranges::count(precisions, options.precision) == 0)
    throw UsageError("bench: --precision " + options.precision +
                     name_hint(options.precision, precisions));
  if (settings.steps < 1)
    throw UsageError(concat("bench: --steps ", settings.steps, "; want at least 1"));
  settings.model = config.model;
  settings.optimizer = config.optimizer;
  settings.precision = options.precision;
  return settings;
}

void time_generation(const BenchmarkSettings& settings, const BenchOptions& options,
                     const Stream& stream) {
  const GenerationRates rates = run_generation_benchmark(settings, *options.tokens, stream);
  if (options.json) {
    std::cout << json_line(as_json(rates)) << "\n";
  } else {
    print(rates);
  }
}

void time_training(const BenchmarkSettings& settings, const BenchOptions& options, Stream& stream) {
  const BenchmarkResult result = run_throughput_benchmark(settings, stream);
  if (options.json) {
    boost::json::object object = as_json(result);
    if (options.profile) object["profile"] = profile_json(result);
    std::cout << json_line(object) << "\n";
  } else {
    print(result, task_kind(settings.model).unit);
    if (options.profile) print_profile(result);
  }
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  BenchOptions options;
  if (!parse_command_line(bench_syntax(options), arguments)) return 0;
  const BenchmarkSettings settings = settings_of(options);
  set_default_threads();
  Stream stream(make_device_pool(device_of_option(options.device)));
  options.tokens ? time_generation(settings, options, stream)
                 : time_training(settings, options, stream);
  return 0;
}

}  // namespace hybrid_trainer
