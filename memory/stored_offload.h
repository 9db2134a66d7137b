#pragma once

#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "content_store.h"
#include "hybrid_trainer/memory/offload_strategy.h"

namespace hybrid_trainer {

/// Moves tensors out to a ContentStore and back: where the store blocks, in a background thread
/// when `async`; else by copies on a stream of its own.
class StoredOffload final : public OffloadStrategy {
 public:
  StoredOffload(std::unique_ptr<ContentStore> store, bool async)
      : store_(std::move(store)), async_(async) {}
  ~StoredOffload() override;
  MoveOutResult move_out(std::vector<OffloadSlot> slots, const Stream& stream) override;
  void release_moved_out() override;
  void begin_restore() override;
  void wait_until_restored() override;
  bool keeps_content() const override { return store_->keeps_content(); }

 private:
  struct Origin {
    Shape shape;
    DType dtype;
  };
  void start_restore(bool in_background);

  std::unique_ptr<ContentStore> store_;
  bool async_;
  const Stream* stream_ = nullptr;  // that move_out got
  std::optional<Stream> transfer_;  // of the copies
  Event ready_;                     // what the copies must come after
  Event moved_out_;                 // the copies out are made
  Event moved_in_;                  // the copies in are made
  std::vector<Tensor> leaving_;     // until moved_out_
  std::vector<OffloadSlot> slots_;
  std::vector<Origin> origins_;    // of the slots' tensors
  std::vector<Tensor> returning_;  // the slots' new tensors, being filled
  bool forgets_ = false;           // the store may forget once moved_in_ is reached
  std::future<void> pending_;
  std::jthread worker_;
};

}  // namespace hybrid_trainer
