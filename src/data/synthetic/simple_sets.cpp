#include "src/data/synthetic/simple_sets.h"

#include <cmath>
#include <numbers>

#include "src/core/narrow.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

namespace {

/// Calls write(example, draws) for each example of the memory.
template <class Write>
void write_each(const Batch& memory, std::uint64_t seed, std::uint64_t first, const Write& write) {
  for (std::int64_t i = 0; i < memory.size(); ++i) {
    RandomDraws draws({seed, first + static_cast<std::uint64_t>(i), 0});
    write(ExampleMemory(memory, i), draws);
  }
}

}  // namespace

Batch SectorSet::empty_batch(std::int64_t examples, const Stream& stream) const {
  return empty_examples(examples, {{"x", {2}}, {"class", {}, DType::kI32}}, stream);
}

void SectorSet::write(const Batch& memory, std::uint64_t first) const {
  write_each(memory, seed_, first, [&](const ExampleMemory& example, RandomDraws& draws) {
    const std::int64_t sector = draws.below(classes_);
    const float angle = 2 * std::numbers::pi_v<float> / static_cast<float>(classes_) *
                        (static_cast<float>(sector) + draws.between(0.1f, 0.9f));
    const float radius = draws.between(0.3f, 1.0f);
    example.floats("x")[0] = radius * std::cos(angle);
    example.floats("x")[1] = radius * std::sin(angle);
    example.labels("class")[0] = narrow<std::int32_t>(noisy_label(sector, classes_, noise_, draws));
  });
}

std::vector<BestLoss> SectorSet::best_losses() const {
  return {{"class.loss", noisy_label_entropy(classes_, noise_)}};
}

Batch SurfaceSet::empty_batch(std::int64_t examples, const Stream& stream) const {
  return empty_examples(examples, {{"x", {2}}, {"y", {1}}}, stream);
}

void SurfaceSet::write(const Batch& memory, std::uint64_t first) const {
  write_each(memory, seed_, first, [&](const ExampleMemory& example, RandomDraws& draws) {
    const std::span<float> x = example.floats("x");
    for (float& value : x) value = draws.between(-1, 1);
    example.floats("y")[0] =
        std::sin(3 * x[0]) + 0.5f * x[1] + static_cast<float>(deviation_ * draws.normal());
  });
}

std::vector<BestLoss> SurfaceSet::best_losses() const {
  return {{"y.loss", deviation_ * deviation_}};
}

Batch ReversalSet::empty_batch(std::int64_t examples, const Stream& stream) const {
  return empty_examples(examples,
                        {{"source", {length_}, DType::kI32},
                         {"before", {length_}, DType::kI32},
                         {"targets", {length_}, DType::kI32}},
                        stream);
}

void ReversalSet::write(const Batch& memory, std::uint64_t first) const {
  write_each(memory, seed_, first, [&](const ExampleMemory& example, RandomDraws& draws) {
    const auto source = example.labels("source"), before = example.labels("before"),
               targets = example.labels("targets");
    for (std::int32_t& symbol : source) symbol = narrow<std::int32_t>(draws.below(symbols_));
    auto last = narrow<std::int32_t>(symbols_);
    for (std::size_t i = 0; i < source.size(); ++i) {
      before[i] = last;
      last = targets[i] =
          narrow<std::int32_t>(noisy_label(source[source.size() - 1 - i], symbols_, noise_, draws));
    }
  });
}

std::vector<BestLoss> ReversalSet::best_losses() const {
  return {{"targets.loss", noisy_label_entropy(symbols_, noise_)}};
}

Batch PlumeSet::empty_batch(std::int64_t examples, const Stream& stream) const {
  return empty_examples(examples,
                        {{"infrared", {shape_.size, shape_.size, 1}},
                         {"plume_boxes", {shape_.grid, shape_.grid, kBoxNumbers}},
                         {"plume_kinds", {shape_.grid, shape_.grid}, DType::kI32}},
                        stream);
}

void PlumeSet::write(const Batch& memory, std::uint64_t first) const {
  for (std::int64_t i = 0; i < memory.size(); ++i) {
    const ExampleMemory example(memory, i);
    const RandomKey key{seed_, first + static_cast<std::uint64_t>(i), 0};
    const auto kind = static_cast<PlumeKind>(RandomDraws(key).below(kPlumeKinds));
    write_plume_scene({.image = example.floats("infrared"),
                       .boxes = example.floats("plume_boxes"),
                       .kinds = example.labels("plume_kinds")},
                      shape_, kind, {key.seed, key.step, 1});
  }
}

std::vector<BestLoss> PlumeSet::best_losses() const {
  return {{"plumes.loss", best_plume_loss(shape_)}};
}

}  // namespace hybrid_trainer
