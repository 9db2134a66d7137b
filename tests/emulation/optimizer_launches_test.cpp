// AdamW updates many tensors in one launch.

#include <algorithm>
#include <map>
#include <mutex>

#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/updates/optimizer_update.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer::kernels {
namespace {

class EmulatedAdamW : public ::testing::Test {
 protected:
  EmulatedAdamW() {
    emulation::device().sees_launch = [this](const std::string& kernel, const cuda::Grid&) {
      std::lock_guard lock(mutex_);
      ++launches_[kernel];
    };
  }
  ~EmulatedAdamW() override { emulation::device().sees_launch = nullptr; }

  std::mutex mutex_;
  std::map<std::string, int> launches_;
};

/// A weight, its moments and gradient, and a bf16 copy except for every third tensor.
AdamWUpdate update_of(int i, std::int64_t elements, DType moments, const Stream& stream) {
  const Stream host = cpu_stream();
  const auto random = [&](DType dtype, unsigned int seed) {
    const Tensor tensor = random_tensor({elements}, DType::kF32, seed, host);
    for (std::int64_t k = 0; k < elements; ++k) {
      float& one = tensor.data<float>()[k];
      one = std::abs(one);
    }
    const Tensor there = Tensor::empty({elements}, dtype, MemoryKind::kParameters, stream);
    cast(there, copy_to(tensor, stream), stream);
    return there;
  };
  AdamWUpdate update{random(DType::kF32, 1),
                     random(moments, 2),
                     random(moments, 3),
                     random(DType::kF32, 4),
                     i % 3 == 0 ? Tensor() : random(DType::kBF16, 5),
                     kAdamW};
  update.settings.weight_decay = i % 2 == 0 ? 0.0f : 0.1f;
  update.settings.rounding_key = static_cast<std::uint32_t>(i);
  update.settings.first_element = 7 * i;
  return update;
}

/// The update without its first element, which misaligns vector loads.
AdamWUpdate tail_of(const AdamWUpdate& update) {
  const auto tail = [](const Tensor& tensor) {
    return tensor ? tensor.rows(1, tensor.elements()) : tensor;
  };
  return {tail(update.w), tail(update.m), tail(update.v), tail(update.g), tail(update.compute_copy),
          update.settings};
}

TEST_F(EmulatedAdamW, FewLaunchesMatchSingleTensorUpdates) {
  const Stream stream = cuda_stream();
  std::vector<AdamWUpdate> alone, together;
  for (int i = 0; i < 90; ++i) {
    const std::int64_t elements = std::array{1, 3, 4, 1000, 4096, 4097, 9001}[i % 7];
    const DType moments = i % 5 == 0 ? DType::kBF16 : DType::kF32;
    alone.push_back(update_of(i, elements, moments, stream));
    together.push_back(update_of(i, elements, moments, stream));
  }
  alone.push_back(tail_of(update_of(1, 100, DType::kF32, stream)));
  together.push_back(tail_of(update_of(1, 100, DType::kF32, stream)));
  launches_.clear();
  adamw_updates(together, stream);
  EXPECT_EQ(launches_["adamw_updates"], 3);  // 72 and 18 tensors, 40 per launch
  EXPECT_EQ(launches_["adamw_update"], 1);   // misaligned
  for (const AdamWUpdate& u : alone)
    adamw_update(u.w, u.m, u.v, u.g, u.compute_copy, u.settings, stream);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(i);
    const auto expect_same = [&](const Tensor& a, const Tensor& b) {
      if (a) expect_same_bits(wait_for_host(a, stream), wait_for_host(b, stream));
    };
    expect_same(together[i].w, alone[i].w);
    expect_same(together[i].m, alone[i].m);
    expect_same(together[i].v, alone[i].v);
    expect_same(together[i].compute_copy, alone[i].compute_copy);
  }
}

TEST_F(EmulatedAdamW, TrainingLaunchesOncePerStep) {
  TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  HybridTrainerConfig config = tiny_config();
  config.device = "cuda";
  config.phases.max_predict_steps = 0;
  train_tiny(config, scratch / "data", scratch / "run");
  EXPECT_EQ(launches_["adamw_update"], 0);
  EXPECT_EQ(launches_["adamw_updates"], config.training.steps);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
