#include "src/run/benchmark.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

BenchmarkSettings shape(const std::string& family) {
  BenchmarkSettings settings;
  settings.model = {
      .family = family, .layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 64};
  settings.sequence = 4;
  return settings;
}

TEST(GenerationBenchmark, CountsWeightBytesReadPerToken) {
  const Stream stream(MemoryPool::create("device"));
  BenchmarkSettings settings = shape("gpt2");
  const GenerationRates rates = run_generation_benchmark(settings, 5, stream);
  const double block = 12 * 32 * 32 + 13 * 32;                        // 4 linear layers, 2 norms
  EXPECT_EQ(rates.weight_bytes, 4 * (2 * block + 2 * 32 + 64 * 32));  // the table is also the head
  EXPECT_GT(rates.token_seconds, 0);
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 1 / rates.token_seconds);
  EXPECT_DOUBLE_EQ(rates.share_of_read_rate,
                   rates.weight_bytes * rates.tokens_per_second / rates.read_bytes_per_second);
  EXPECT_EQ(rates.precision, "fp32");

  EXPECT_EQ(rates.batch, settings.batch);
  ASSERT_GT(rates.batch, 1);
  EXPECT_DOUBLE_EQ(rates.batch_tokens_per_second, 4 / rates.batch_token_seconds);
  EXPECT_DOUBLE_EQ(rates.batch_gain, rates.batch_tokens_per_second / rates.tokens_per_second);

  settings.batch = 1;
  settings.precision = "bf16";
  const GenerationRates half = run_generation_benchmark(settings, 5, stream);
  EXPECT_EQ(half.precision, "bf16");
  EXPECT_EQ(half.batch_token_seconds, half.token_seconds);
  EXPECT_EQ(half.weight_bytes, 2 * (2 * 12 * 32 * 32 + 64 * 32) + 4 * (2 * 13 * 32 + 2 * 32));
}

TEST(GenerationBenchmark, ExcludesUntiedEmbeddingTable) {
  const Stream stream(MemoryPool::create("device"));
  BenchmarkSettings settings = shape("llama");
  settings.model.tied_head = true;
  const double shared = run_generation_benchmark(settings, 2, stream).weight_bytes;
  settings.model.tied_head = false;
  EXPECT_EQ(run_generation_benchmark(settings, 2, stream).weight_bytes, shared);
}

}  // namespace
}  // namespace hybrid_trainer
