#include "hybrid_trainer/benchmark/generation_benchmark.h"

#include <algorithm>
#include <optional>

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/generation/batch_decoder.h"
#include "hybrid_trainer/kernels/machine_rates.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/benchmark/measured.h"

namespace hybrid_trainer {
namespace {

DType dtype_of(const BenchmarkSettings& settings, const Stream& stream) {
  if (settings.precision == "auto")
    return automatic_precision(settings.model.width, stream.device()).dtype;
  return settings.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

/// Bytes of weights that the products and norms of one token read. A table is read whole where the
/// head shares it; of any other a token takes one row.
double weight_bytes(LanguageModel& model, DType dtype) {
  double bytes = 0, tables = 0;
  bool has_head = false;
  model.visit_parameters([&](const Parameter& parameter) {
    const bool is_vector = parameter.role() == Role::kVector;
    const double all = static_cast<double>(parameter.elements()) *
                       static_cast<double>(size_of(is_vector ? DType::kF32 : dtype));
    has_head |= parameter.role() == Role::kHead;
    if (parameter.role() != Role::kEmbedding) {
      bytes += all;
    } else if (parameter.shape()[0] >= model.config().vocabulary) {
      tables += all;
    }
  });
  return has_head ? bytes : bytes + tables;
}

/// Texts of random tokens that grow by one each at a time.
class RandomTexts {
 public:
  RandomTexts(LanguageModel& model, const BenchmarkSettings& settings, std::int64_t count,
              std::int64_t tokens, const Stream& stream)
      : decoder_(model, {.texts = count, .tokens = settings.sequence + tokens},
                 dtype_of(settings, stream), stream) {
    std::vector<std::int32_t> text;
    while (std::ssize(text) < settings.sequence) text.push_back(next_token());
    for (std::int64_t row = 0; row < count; ++row) decoder_.begin(row, text);
  }
  double time_token() {
    std::vector<BatchDecoder::Next> tokens;
    for (std::int64_t row = 0; row < decoder_.rows(); ++row) tokens.push_back({row, next_token()});
    const auto begin = Clock::now();
    decoder_.add(tokens);
    return seconds_since(begin);
  }

 private:
  std::int32_t next_token() {
    const auto words = static_cast<std::uint64_t>(decoder_.vocabulary());
    return static_cast<std::int32_t>(random_below({1}, drawn_++, words));
  }
  BatchDecoder decoder_;
  std::uint64_t drawn_ = 0;
};

}  // namespace

GenerationRates run_generation_benchmark(const BenchmarkSettings& settings, std::int64_t tokens,
                                         const Stream& stream) {
  const DType dtype = dtype_of(settings, stream);
  const auto model = make_model(settings.model, 0, stream);
  model->visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype, stream); });
  const double rate_before = kernels::measure_read_rate(stream);

  RandomTexts alone(*model, settings, 1, tokens, stream);
  std::optional<RandomTexts> together;
  if (settings.batch > 1) together.emplace(*model, settings, settings.batch, tokens, stream);
  std::vector<double> seconds, batch_seconds;
  for (std::int64_t i = 0; i < tokens; ++i) {
    seconds.push_back(alone.time_token());
    if (together) batch_seconds.push_back(together->time_token());
  }

  GenerationRates rates;
  rates.token_seconds = median(seconds);
  rates.tokens_per_second = 1 / rates.token_seconds;
  rates.batch = settings.batch;
  rates.batch_token_seconds = together ? median(batch_seconds) : rates.token_seconds;
  rates.batch_tokens_per_second = static_cast<double>(rates.batch) / rates.batch_token_seconds;
  rates.batch_gain = rates.batch_tokens_per_second / rates.tokens_per_second;
  rates.weight_bytes = weight_bytes(*model, dtype);
  rates.read_bytes_per_second = std::max(rate_before, kernels::measure_read_rate(stream));
  rates.share_of_read_rate = rates.weight_bytes / rates.token_seconds / rates.read_bytes_per_second;
  rates.precision = precision_name({dtype});
  rates.device = hardware_name_of(stream.device());
  return rates;
}

}  // namespace hybrid_trainer
