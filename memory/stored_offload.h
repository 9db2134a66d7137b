#pragma once

#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "content_store.h"
#include "hybrid_trainer/memory/offload_strategy.h"

namespace hybrid_trainer {

/// Moves tensors out to a ContentStore and back, in a background thread where `async`.
class StoredOffload final : public OffloadStrategy {
 public:
  StoredOffload(std::unique_ptr<ContentStore> store, bool async)
      : store_(std::move(store)), async_(async) {}
  MoveOutResult move_out(std::vector<OffloadSlot> slots, const Stream& stream) override;
  void begin_restore() override;
  void wait_until_restored() override;
  bool keeps_content() const override { return store_->keeps_content(); }

 private:
  struct Origin {
    Shape shape;
    DType dtype;
  };
  std::vector<Tensor> restored() const;

  std::unique_ptr<ContentStore> store_;
  bool async_;
  std::shared_ptr<MemoryPool> device_pool_;
  Device device_;
  std::vector<OffloadSlot> slots_;  // those that are out
  std::vector<Origin> origins_;
  std::future<std::vector<Tensor>> pending_;
  std::jthread worker_;
};

}  // namespace hybrid_trainer
