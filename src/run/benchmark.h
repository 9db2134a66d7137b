#pragma once

#include <optional>
#include <string>

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/core/profile.h"

namespace hybrid_trainer {

struct BenchmarkSettings {
  ModelConfig model;
  OptimizerConfig optimizer;
  std::int64_t batch = 4;
  std::int64_t sequence = 256;
  std::string precision = "fp32";  // of precision_names(); "auto" as training would choose
  int steps = 10;
};

/// Medians over the steps after the first. Forward, backward and optimizer are measured in further
/// steps, in which a profile waits for each kernel; forward includes the head's gradient, which is
/// computed chunk by chunk with its loss.
struct BenchmarkResult {
  double tokens_per_second = 0;
  double step_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  double forward_only_seconds = 0;      // the pass that a Predict step makes
  double model_flops_per_second = 0;    // see ModelFamily::step_flops
  double product_flops_per_second = 0;  // best product of the same run and precision
  std::string device;                   // "cpu" or the CUDA device's name
  double copy_bytes_per_second = 0;     // of the device, read and written
  double share_of_product_rate = 0;
  std::optional<double> mfu;  // share of published_bf16_rate; of a bf16 run on such a device
  std::size_t bytes_allocated_after_first_step = 0;
  MemoryUse memory;       // peaks of the whole benchmark
  std::string precision;  // see precision_name
  Profile profile;        // of profiled_steps steps, which took profiled_seconds
  int profiled_steps = 0;
  double profiled_seconds = 0;
};

/// Dense bf16 FLOP/s that NVIDIA's data sheets give for a CUDA device, by its name; 0 where the
/// name is none of those listed.
double published_bf16_rate(const std::string& device_name);

/// Steps of HybridTrainer in plain training, on random tokens. `stream`'s pool is measured too; on
/// CUDA its first slab is that of a run. Throws OutOfMemory, as `hybrid train`, where that is too
/// large.
BenchmarkResult run_throughput_benchmark(const BenchmarkSettings& settings, Stream& stream);

/// Medians over the tokens after the first.
struct GenerationRates {
  double token_seconds = 0;  // one text alone
  double tokens_per_second = 0;
  std::int64_t batch = 1;              // texts at a time
  double batch_token_seconds = 0;      // for a token of each of them
  double batch_tokens_per_second = 0;  // of all
  double batch_gain = 1;               // over one text alone
  double weight_bytes = 0;           // that a token reads, tables of which it takes a row left out
  double read_bytes_per_second = 0;  // of the device, over arrays much larger than the caches
  double share_of_read_rate = 0;     // weight_bytes / token_seconds, of that rate
  std::string device, precision;     // as in BenchmarkResult
};

/// One text of `settings.sequence` random tokens, after which `tokens` more are computed one at a
/// time, as `hybrid sample` does it; then, in turn with each, a token of each of `settings.batch`
/// such texts, if these are several. Of the settings, model, batch, sequence and precision count;
/// the context must have room for both. `stream`: where the model is.
GenerationRates run_generation_benchmark(const BenchmarkSettings& settings, std::int64_t tokens,
                                         const Stream& stream);

}  // namespace hybrid_trainer
