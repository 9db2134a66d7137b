#include "src/sharding/part_storage.h"

#include <array>
#include <utility>

#include "hybrid_trainer/core/staged_tensor.h"

namespace hybrid_trainer {
namespace {

Tensor cut(const Tensor& whole, const Shard& part, const Shape& shape) {
  return whole.view({whole.elements()}).rows(part.first, part.last).view(shape);
}

class PartInPlace final : public WeightStorage {
 public:
  PartInPlace(WeightArrivals& arrivals, std::size_t weight, const Shard& part, const Shape& shape)
      : arrivals_(arrivals), weight_(weight), part_(part), shape_(shape) {}
  Tensor acquire(DType dtype, const Stream& stream) override {
    return cut(arrivals_.own_storage(weight_).acquire(dtype, stream), part_, shape_);
  }
  void release(DType dtype, Use use, const Stream& stream) noexcept override {
    arrivals_.storage(weight_).release(dtype, use, stream);
  }
  Tensor home_master() const override {
    return cut(arrivals_.own_storage(weight_).home_master(), part_, shape_);
  }
  void compute_in(DType, const Stream&) override {}  // as the whole one does
  DType compute_dtype() const override { return arrivals_.storage(weight_).compute_dtype(); }
  void refresh_compute_copy(const Stream&) override {}

 private:
  WeightArrivals& arrivals_;
  std::size_t weight_;
  Shard part_;
  Shape shape_;
};

class GatheredWeight final : public WeightStorage {
 public:
  GatheredWeight(const Shape& shape, Parameter& mine, std::vector<Shard> parts,
                 WeightGathers& gathers)
      : mine_(mine), gathers_(gathers), number_(gathers.add(shape, mine, std::move(parts))) {}
  Tensor acquire(DType dtype, const Stream& stream) override {
    return gathered_of(dtype).acquire([&] { return gathers_.take(number_, dtype, stream); });
  }
  void release(DType dtype, Use, const Stream&) noexcept override { gathered_of(dtype).release(); }
  Tensor home_master() const override { return {}; }
  void compute_in(DType dtype, const Stream& stream) override {
    gathers_.end_pass(stream);
    mine_.compute_in(dtype, stream);
  }
  DType compute_dtype() const override { return mine_.compute_dtype(); }
  /// Whoever changes weights says so here.
  void refresh_compute_copy(const Stream& stream) override {
    gathers_.end_pass(stream);
    mine_.refresh_compute_copy(stream);
  }
  void park_master(const Stream& home, const Stream& stream) override {
    mine_.park_master(home, stream);
  }
  void recall_master() override { mine_.recall_master(); }

 private:
  HeldValues& gathered_of(DType dtype) { return gathered_[dtype == DType::kF32 ? 0 : 1]; }

  Parameter& mine_;
  WeightGathers& gathers_;
  std::size_t number_;
  std::array<HeldValues, 2> gathered_;  // in f32, and the compute copy
};

}  // namespace

std::unique_ptr<WeightStorage> part_in_place(WeightArrivals& arrivals, std::size_t weight,
                                             const Shard& part, const Shape& shape) {
  return std::make_unique<PartInPlace>(arrivals, weight, part, shape);
}

std::unique_ptr<WeightStorage> part_of_its_own(Parameter& whole, const Shard& part,
                                               const Shape& shape, const Stream& stream) {
  const MemoryLabel label(whole.name());
  const Tensor master = Tensor::empty(shape, DType::kF32, MemoryKind::kParameters, stream);
  if (part.elements() > 0) copy_or_wait(master, cut(whole.home_master(), part, shape), stream);
  return std::make_unique<ResidentWeight>(master);
}

std::unique_ptr<WeightStorage> gathered_weight(const Shape& shape, Parameter& mine,
                                               std::vector<Shard> parts, WeightGathers& gathers) {
  return std::make_unique<GatheredWeight>(shape, mine, std::move(parts), gathers);
}

}  // namespace hybrid_trainer
