#include <chrono>
#include <thread>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "memory/weight_copies.h"
#include "tests/cuda/cuda_case.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using kernels::random_tensor;

/// Optimizer state that is offloaded and restored while the stream continues.
class CudaOffload : public ::testing::Test {
 protected:
  CudaOffload() {
    const Stream host = kernels::cpu_stream();
    for (const std::int64_t elements : {70001, 5, 4096}) {
      wanted_.push_back(random_tensor({elements}, DType::kF32, 3, host));
      Tensor there = Tensor::empty_like(wanted_.back(), MemoryKind::kOptimizerState, stream_);
      wait_for_copy(there, wanted_.back(), stream_);
      tensors_.push_back(there);
    }
  }
  std::vector<OffloadSlot> slots() {
    std::vector<OffloadSlot> slots;
    for (Tensor& tensor : tensors_) slots.push_back({"slot", &tensor});
    return slots;
  }
  /// Allocates, writes and frees memory, like the passes of Predict.
  void work() {
    for (const std::int64_t elements : {70001, 4096, 5}) {
      const Tensor x = Tensor::zeros({elements}, DType::kF32, MemoryKind::kActivations, stream_);
      kernels::add(x, x, x, stream_);
    }
  }
  void expect_content() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      kernels::expect_same_bits(wait_for_host(tensors_[i], stream_), wanted_[i]);
    }
  }
  std::size_t live_state() const {
    return stream_.pool()->use().live[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
  }

  const Stream stream_ = cuda_stream();
  std::shared_ptr<MemoryPool> host_ = make_host_pool(stream_.device());
  std::vector<Tensor> wanted_, tensors_;
  TemporaryFolder scratch_;
};

TEST_F(CudaOffload, RestoresIdenticalBitsFromHostAndFile) {
  for (const std::string& strategy_name :
       {std::string("cpu_offload"), std::string("nvme_offload")}) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(concat(strategy_name, async ? " async" : ""));
      const PredictAwareMemoryConfig config{.offload_strategy = strategy_name,
                                            .async_restore = async};
      MemoryPlaces places({.folder = scratch_.path().string()}, stream_, host_);
      const auto strategy = make_offload_strategy(config, offload_pool(config, places));
      for (int cycle = 0; cycle < 3; ++cycle) {
        kernels::scale(tensors_[0], tensors_[0], 2, stream_);
        kernels::scale(tensors_[0], tensors_[0], 0.5f, stream_);
        ASSERT_EQ(strategy->move_out(slots(), stream_).problem, "");
        EXPECT_FALSE(tensors_[0].defined());
        work();
        stream_.synchronize();
        strategy->begin_return();
        work();
        strategy->wait_until_restored();
        kernels::scale(tensors_[1], tensors_[1], 2, stream_);
        kernels::scale(tensors_[1], tensors_[1], 0.5f, stream_);
        expect_content();
      }
    }
  }
}

TEST_F(CudaOffload, FreesDeviceMemoryAfterCopying) {
  const auto strategy = make_offload_strategy({}, host_);
  const std::size_t before = live_state();
  EXPECT_GE(strategy->move_out(slots(), stream_).freed_bytes, 296000u);
  for (int i = 0; i < 2000 && live_state() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    strategy->release_moved_out();
  }
  EXPECT_EQ(live_state(), 0u);
  strategy->wait_until_restored();
  EXPECT_EQ(live_state(), before);
  expect_content();
}

TEST_F(CudaOffload, CompressedStateMatchesCpuBitForBit) {
  const Stream cpu = kernels::cpu_stream();
  std::vector<Tensor> on_cpu;
  std::vector<OffloadSlot> cpu_slots;
  for (const Tensor& tensor : wanted_) on_cpu.push_back(copy_to(tensor, cpu));
  for (Tensor& tensor : on_cpu) cpu_slots.push_back({"slot", &tensor});
  const PredictAwareMemoryConfig config{.offload_strategy = "compress_in_place"};
  const auto cpu_strategy = make_offload_strategy(config, MemoryPool::create("host"));
  cpu_strategy->move_out(cpu_slots, cpu);
  cpu_strategy->wait_until_restored();
  const auto strategy = make_offload_strategy(config, host_);
  const std::size_t before = live_state();
  ASSERT_EQ(strategy->move_out(slots(), stream_).problem, "");
  work();
  stream_.synchronize();
  for (int i = 0; i < 2000 && live_state() > before / 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    strategy->release_moved_out();
  }
  EXPECT_LT(live_state(), before / 3);
  strategy->begin_return();
  work();
  strategy->wait_until_restored();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    EXPECT_EQ(kernels::values_of(wait_for_host(tensors_[i], stream_)),
              kernels::values_of(on_cpu[i]));
}

TEST_F(CudaOffload, DroppedStateRestoresAsZeros) {
  const auto strategy = make_offload_strategy({.offload_strategy = "drop_and_reinitialize"}, host_);
  strategy->move_out(slots(), stream_);
  work();
  strategy->begin_return();
  strategy->wait_until_restored();
  for (const Tensor& tensor : tensors_) {
    EXPECT_EQ(kernels::wait_for_sum_of_squares(tensor, stream_), 0);
  }
}

TEST_F(CudaOffload, SnapshotRestoresWhileStreamIsBusy) {
  WeightSnapshot snapshot(host_);
  std::vector<Parameter> weights;
  for (const Tensor& tensor : tensors_) {
    weights.emplace_back("w", tensor.shape(), Role::kMatrix, stream_);
    weights.back().set_storage(std::make_unique<ResidentWeight>(tensor));
  }
  std::vector<Parameter*> parameters;
  for (Parameter& weight : weights) parameters.push_back(&weight);
  for (int cycle = 0; cycle < 3; ++cycle) {
    snapshot.take(parameters, stream_);
    for (const Tensor& tensor : tensors_) fill_zero(tensor, stream_);
    snapshot.restore(parameters, stream_);
    snapshot.drop();
    EXPECT_EQ(host_->use().live_total, 0u);
    expect_content();
  }
}

}  // namespace
}  // namespace hybrid_trainer
