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
  std::string precision = "fp32";  // one of precision_names(); "auto" chooses as training does
  int steps = 10;
};

/// Medians over the steps after the first. The parts are measured in separate steps that wait for
/// each kernel. Forward includes the gradient of the head.
struct BenchmarkResult {
  double tokens_per_second = 0;
  double step_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  double forward_only_seconds = 0;      // forward pass of a Predict step
  double model_flops_per_second = 0;    // see ModelFamily::step_flops
  double product_flops_per_second = 0;  // best matrix product rate measured in this precision
  std::string device;                   // "cpu" or the CUDA device's name
  double copy_bytes_per_second = 0;     // read plus written bytes of a device copy
  double share_of_product_rate = 0;
  std::optional<double> mfu;  // model_flops_per_second / published_bf16_rate; only for bf16
  std::size_t bytes_allocated_after_first_step = 0;
  MemoryUse memory;       // memory peaks of the benchmark
  std::string precision;  // see precision_name
  Profile profile;        // totals over profiled_steps steps, which took profiled_seconds
  int profiled_steps = 0;
  double profiled_seconds = 0;
};

/// Returns a device's dense bf16 FLOP/s in NVIDIA's data sheet, or 0 if it is not listed.
double published_bf16_rate(const std::string& device_name);

/// Measures steps of plain training on random tokens, and their memory. On CUDA, the pool's first
/// slab is as large as in a training run. Throws OutOfMemory if the slab does not fit.
BenchmarkResult run_throughput_benchmark(const BenchmarkSettings& settings, Stream& stream);

/// Medians over all tokens except the first.
struct GenerationRates {
  double token_seconds = 0;  // seconds per token of a single sequence
  double tokens_per_second = 0;
  std::int64_t batch = 1;              // sequences per batch
  double batch_token_seconds = 0;      // seconds per token of all sequences of the batch
  double batch_tokens_per_second = 0;  // tokens per second of all sequences of the batch
  /// Tokens per second divided by the tokens per second of a single sequence.
  double batch_gain = 1;
  /// Bytes of weights read per token; excludes tables of which only one row is read.
  double weight_bytes = 0;
  double read_bytes_per_second = 0;  // read rate of arrays much larger than the caches
  double share_of_read_rate = 0;  // weight_bytes / token_seconds, divided by read_bytes_per_second
  std::string device, precision;  // as in BenchmarkResult
};

/// Measures cached generation as in `hybrid sample`: extends a sequence of `settings.sequence`
/// random tokens by `tokens` tokens, one at a time. If `settings.batch` is above 1, alternates with
/// a batch of that size. Uses only model, batch, sequence and precision of the settings. The
/// model's context needs room for `settings.sequence` + `tokens` tokens. Runs on `stream`'s device.
GenerationRates run_generation_benchmark(const BenchmarkSettings& settings, std::int64_t tokens,
                                         const Stream& stream);

}  // namespace hybrid_trainer
