#include "src/run/benchmark.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

BenchmarkSettings tiny() {
  BenchmarkSettings settings;
  settings.model = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 64};
  settings.batch = 2;
  settings.sequence = 16;
  settings.steps = 4;
  return settings;
}

TEST(ThroughputBenchmark, TimesPartsOfTrainingStep) {
  Stream stream(MemoryPool::create("device"));
  const BenchmarkResult result = run_throughput_benchmark(tiny(), stream);
  EXPECT_GT(result.step_seconds, 0);
  EXPECT_GT(result.forward_seconds, 0);
  EXPECT_GT(result.backward_seconds, 0);
  EXPECT_GT(result.optimizer_seconds, 0);
  EXPECT_GT(result.forward_only_seconds, 0);
  EXPECT_EQ(result.bytes_allocated_after_first_step, 0u);
  EXPECT_GT(result.memory.peak[static_cast<std::size_t>(MemoryKind::kOptimizerState)], 0u);
  EXPECT_EQ(result.precision, "fp32");
  EXPECT_EQ(stream.profile(), nullptr);
}

TEST(ThroughputBenchmark, ProfileIncludesEveryKernelOfStep) {
  Stream stream(MemoryPool::create("device"));
  const BenchmarkResult result = run_throughput_benchmark(tiny(), stream);
  const auto calls = [&](StepPart part, Work work) {
    EXPECT_EQ(result.profile.of(part, work).calls % result.profiled_steps, 0);
    return result.profile.of(part, work).calls / result.profiled_steps;
  };
  EXPECT_EQ(calls(StepPart::kForward, Work::kAttention), 2);
  EXPECT_EQ(calls(StepPart::kBackward, Work::kAttention), 2);
  EXPECT_EQ(calls(StepPart::kForward, Work::kNormalization), 5);
  EXPECT_EQ(calls(StepPart::kForward, Work::kProduct), 2 * 4 + 3);  // includes the head's gradient
  EXPECT_EQ(calls(StepPart::kForward, Work::kLoss), 1);
  EXPECT_GT(calls(StepPart::kUpdate, Work::kOptimizer), 0);
  EXPECT_EQ(calls(StepPart::kUpdate, Work::kReduction), 1);
  double sum = 0;
  for (std::size_t work = 0; work < kWorks; ++work)
    sum += result.profile.of(static_cast<Work>(work)).seconds;
  EXPECT_LE(sum, result.profiled_seconds);
}

TEST(ThroughputBenchmark, RunsInRequestedPrecision) {
  Stream stream(MemoryPool::create("device"));
  BenchmarkSettings settings = tiny();
  settings.precision = "bf16";
  const BenchmarkResult result = run_throughput_benchmark(settings, stream);
  EXPECT_EQ(result.precision, "bf16");
  EXPECT_GT(result.profile.of(Work::kProduct).calls, 0);
}

TEST(PublishedBf16Rate, MatchesDeviceAndIsZeroIfUnknown) {
  EXPECT_EQ(published_bf16_rate("NVIDIA H200"), 989e12);
  EXPECT_EQ(published_bf16_rate("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(published_bf16_rate("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(published_bf16_rate("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(published_bf16_rate("NVIDIA GeForce RTX 4090"), 0);
  EXPECT_EQ(published_bf16_rate("cpu"), 0);
}

}  // namespace
}  // namespace hybrid_trainer
