#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/model_trainable.h"
#include "tests/benchmarks/cuda/kernel_timing.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer {
namespace {

using Launches = std::map<std::string, double>;

/// Launches of `work`, by kernel name.
template <class Work>
Launches launches_of(const Work& work) {
  Launches launches;
  emulation::device().sees_launch = [&](const std::string& name, const auto&) { ++launches[name]; };
  work();
  emulation::device().sees_launch = nullptr;
  return launches;
}

/// Sums the launches of the benchmark's kernels in the step that they belong to.
class StepOfTable final : public benchmarks::KernelTimer {
 public:
  explicit StepOfTable(const Stream& stream)
      : KernelTimer(benchmarks::sizes_of("small"), "", stream) {}
  const Launches& launches() const { return launches_; }

 private:
  benchmarks::Timing timed(const benchmarks::Kernel& kernel,
                           const std::function<benchmarks::Work()>& make) const override {
    const benchmarks::Work work = make();
    if (kernel.calls_per_step > 0 && benchmarks::in_bf16_step(kernel)) {
      for (const auto& [name, count] : launches_of(work.run))
        launches_[name] += kernel.calls_per_step * count;
    }
    return {.kernel = kernel, .problem = ""};
  }
  mutable Launches launches_;
};

Launches launches_of_table(const Stream& stream) {
  StepOfTable table(stream);
  for (const auto time_some :
       {benchmarks::time_products, benchmarks::time_head, benchmarks::time_attention,
        benchmarks::time_rows, benchmarks::time_embedding}) {
    time_some(table, DType::kBF16);
  }
  benchmarks::time_updates(table);
  return table.launches();
}

/// Launches of a training step of a GPT-2 of the table's sizes.
Launches launches_of_training(const Stream& stream) {
  const benchmarks::Sizes sizes = benchmarks::sizes_of("small");
  HybridTrainerConfig config;
  config.model.vocabulary = sizes.vocabulary;
  config.model.width = sizes.channels;
  config.model.heads = sizes.channels / 64;
  config.model.layers = sizes.layers;
  config.model.context = sizes.length;
  config.data.batch_size = sizes.batch;
  config.data.sequence_length = sizes.length;
  config.mixed_precision = {"bf16", "bf16", "bf16", "bf16"};
  const std::unique_ptr<LossModel> model = make_model(config.model, 0, stream);
  ModelTrainable trainable(*model, config, stream, make_host_pool(stream.device()),
                           [](const std::string& note) { throw Error(ExitCode::kMemory, note); });
  const Tensor tokens =
      Tensor::zeros({sizes.batch, sizes.length}, DType::kI32, MemoryKind::kData, stream);
  const Batch batch = token_batch(tokens, tokens);
  trainable.enter_phase(Phase::kFull);
  return launches_of([&] {
    require(trainable.wait_for_gradient(batch).finite(), "the gradient is not finite");
    trainable.apply_gradient();
  });
}

TEST(StepTable, MatchesLaunchesOfTrainingStep) {
  const Stream stream(MemoryPool::create("device", {}, cuda_memory(find_device("cuda"))));
  EXPECT_EQ(launches_of_table(stream), launches_of_training(stream));
}

}  // namespace
}  // namespace hybrid_trainer
