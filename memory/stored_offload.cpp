#include "stored_offload.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

MoveOutResult StoredOffload::move_out(std::vector<OffloadSlot> slots, const Stream& stream) {
  require(slots_.empty(), "move_out: the slots of the last call are still out");
  std::vector<Tensor> tensors;
  for (const OffloadSlot& slot : slots) {
    if (!slot.tensor->defined()) {
      throw Error(ExitCode::kInternal, concat("move_out: ", slot.name, " is not in place"));
    }
    tensors.push_back(*slot.tensor);
  }
  stream.synchronize();
  try {
    store_->keep(tensors);
  } catch (const Error& error) {
    return {0, error.what()};
  }
  const std::size_t live_before = stream.pool()->use().live_total;
  origins_.clear();
  for (const Tensor& tensor : tensors) origins_.push_back({tensor.shape(), tensor.dtype()});
  tensors.clear();
  for (const OffloadSlot& slot : slots) *slot.tensor = Tensor{};
  slots_ = std::move(slots);
  device_pool_ = stream.pool();
  device_ = stream.device();
  const std::size_t freed_bytes = live_before - device_pool_->use().live_total;
  device_pool_->trim();
  return {freed_bytes, ""};
}

std::vector<Tensor> StoredOffload::restored() const {
  const Stream stream(device_pool_, device_);
  std::vector<Tensor> tensors;
  for (const Origin& origin : origins_) {
    tensors.push_back(
        Tensor::empty(origin.shape, origin.dtype, MemoryKind::kOptimizerState, stream));
  }
  store_->write_to(tensors);
  return tensors;
}

void StoredOffload::begin_restore() {
  if (!async_ || slots_.empty() || pending_.valid()) return;
  std::packaged_task<std::vector<Tensor>()> task([this] { return restored(); });
  pending_ = task.get_future();
  worker_ = std::jthread(std::move(task));
}

void StoredOffload::wait_until_restored() {
  if (slots_.empty()) return;
  const std::vector<Tensor> tensors = pending_.valid() ? pending_.get() : restored();
  for (std::size_t i = 0; i < slots_.size(); ++i) *slots_[i].tensor = tensors[i];
  slots_.clear();
  store_->forget();
}

}  // namespace hybrid_trainer
