#pragma once

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/memory/offload_strategy.h"
#include "memory/content_store.h"

namespace hybrid_trainer {

/// Offloads tensors to a ContentStore and restores them: if the store blocks, in a background
/// thread when `async`; otherwise by copies on a stream of its own. It is no Prefetcher: all tensors
/// leave together for a whole phase, and come back when the phase asks for them.
class StoredOffload final : public OffloadStrategy {
 public:
  StoredOffload(std::unique_ptr<ContentStore> store, bool async)
      : store_(std::move(store)), async_(async) {}
  ~StoredOffload() override;
  Whereabouts whereabouts() const override { return now_; }
  MoveOutResult move_out(std::vector<OffloadSlot> slots, const Stream& stream) override;
  void release_moved_out() override;
  void begin_restore() override;
  void begin_return() override;
  void wait_until_restored() override;
  Restored restored() const override { return store_->restored(); }
  const OffloadUse& use() const override { return use_; }

 private:
  struct Origin {
    Shape shape;
    DType dtype;
    MemoryKind kind;
  };
  void allocate_returning();
  void start_restore(bool in_background);
  void forget_what_is_back();
  void give_up_restore();

  std::unique_ptr<ContentStore> store_;
  bool async_;
  Whereabouts now_ = Whereabouts::kResident;
  const Stream* stream_ = nullptr;  // the one given to move_out
  std::optional<Stream> transfer_;  // for the copies
  Event ready_;                     // what the copies must come after
  Event moved_out_;                 // the copies out are done
  Event moved_in_;                  // the copies in are done
  std::vector<OffloadSlot> slots_;  // of the last move_out
  std::vector<Origin> origins_;     // of the slots' tensors
  std::vector<Tensor> leaving_;     // until moved_out_
  std::vector<Tensor> returning_;   // the slots' new tensors, being filled
  bool store_is_full_ = false;      // it may forget once moved_in_ is reached
  OffloadUse use_;
  std::future<double> staging_;  // gives the seconds that it took
  std::future<double> pending_;  // the same
};

}  // namespace hybrid_trainer
