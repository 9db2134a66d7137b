#include "memory/offloaded_weights.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

OffloadedWeight::OffloadedWeight(Tensor master, std::shared_ptr<Prefetcher> prefetcher)
    : home_(master.pool()), prefetcher_(std::move(prefetcher)), master_{std::move(master)} {}

OffloadedWeight::~OffloadedWeight() { prefetcher_->forget(master_.home); }

Tensor OffloadedWeight::master_in_place() const {
  prefetcher_->drain();
  return master_.home;
}

Tensor OffloadedWeight::acquire(DType dtype, const Stream& stream) {
  Staged& staged = of(dtype);
  require(staged.home.defined(),
          "a weight has no bf16 compute copy; call Parameter::compute_in first");
  return staged.held.acquire([&] { return prefetcher_->acquire(staged.home, stream); });
}

void OffloadedWeight::release(DType dtype, Use use, const Stream& stream) noexcept {
  Staged& staged = of(dtype);
  staged.changed = staged.changed || use != Use::kRead;
  const Tensor here = staged.held.release();
  if (!here) return;
  prefetcher_->release(staged.home, here, std::exchange(staged.changed, false), stream);
}

void OffloadedWeight::compute_in(DType dtype, const Stream& stream) {
  const bool copies = dtype == DType::kBF16;
  master_.home.set_kind(copies ? MemoryKind::kMasterWeights : MemoryKind::kParameters);
  if (!copies) {
    if (copy_.home) prefetcher_->forget(copy_.home);
    copy_ = {};
    return;
  }
  if (!copy_.home)
    copy_.home = Tensor::empty(master_.home.shape(), DType::kBF16, MemoryKind::kParameters, home_);
  refresh_compute_copy(stream);
}

void OffloadedWeight::refresh_compute_copy(const Stream& stream) {
  if (!copy_.home) return;
  prefetcher_->drain();
  kernels::cast(StagedTensor(copy_.home, Use::kWrite, stream),
                StagedTensor(master_.home, Use::kRead, stream), stream);
}

void move_weights(LossModel& model, const DeviceMap& map, MemoryPlaces& places) {
  const Stream& device = places.device();
  const auto in_stream = std::make_shared<Prefetcher>(Copies::kInStream);
  const bool is_in_background = device.device().type == DeviceType::kCpu;
  const auto of_file = is_in_background ? std::make_shared<Prefetcher>() : in_stream;
  model.visit_parameters([&](Parameter& parameter) {
    const Tensor master = parameter.master_in_place();
    if (!master) return;
    const std::string place =
        parameter.role() == Role::kVector ? "device" : map.place_of(parameter.name());
    const Stream& wanted = place == "device" ? device : places.at(place);
    Tensor moved = master;
    if (master.pool() != wanted.pool()) {
      moved = Tensor::empty_like(master, MemoryKind::kParameters, wanted);
      copy_or_wait(moved, master, device);
    }
    device.synchronize();  // before the old memory is freed
    if (place == "device") {
      parameter.set_storage(std::make_unique<ResidentWeight>(moved));
    } else {
      parameter.set_storage(
          std::make_unique<OffloadedWeight>(moved, place == "file" ? of_file : in_stream));
    }
  });
}

Tensor ConsumedGradients::gradient(const Parameter& parameter) const {
  Tensor& gradient = gradients_[&parameter];
  if (!gradient)
    gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return gradient;
}

Tensor ConsumedGradients::memory_for(const Parameter& parameter, bool, DType, const Stream&) {
  Tensor& home_gradient = home_gradients_[&parameter];
  if (!home_gradient)
    home_gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, home_);
  return gradient(parameter);
}

void ConsumedGradients::ready(const Parameter& parameter, const Stream& stream) {
  Tensor& gradient = gradients_.at(&parameter);
  copy_or_wait(home_gradients_.at(&parameter), gradient, stream);
  gradient = std::exchange(home_gradients_.at(&parameter), {});
}

}  // namespace hybrid_trainer
