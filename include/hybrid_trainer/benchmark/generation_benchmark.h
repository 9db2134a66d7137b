#pragma once

#include "hybrid_trainer/benchmark/throughput_benchmark.h"

namespace hybrid_trainer {

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
