#include "src/hugging_face/expert_copies.h"

#include <cmath>
#include <numeric>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/thread_team.h"

namespace hybrid_trainer {
namespace {

constexpr double kRouterDeviation = 0.02;  // transformers' initializer_range

/// What numbers are drawn for. Each matrix has its own sequence for each purpose.
enum class Draw { kRouter, kColumns, kNoise, kNewColumns };

RandomKey key_of(const Upcycling& asked, const ExpertMatrix& which, Draw draw) {
  const auto layer = static_cast<std::uint64_t>(which.layer);
  const auto part = draw == Draw::kColumns ? 0 : static_cast<std::uint64_t>(which.part);
  return {.seed = asked.seed,
          .step = (layer * 4 + part) * 4 + static_cast<std::uint64_t>(draw),
          .tensor = static_cast<std::uint64_t>(which.expert)};
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(const Tensor& matrix) {
  const float* const begin = matrix.data<float>();
  const float* const end = begin + matrix.elements();
  const auto count = static_cast<double>(matrix.elements());
  const double mean = std::accumulate(begin, end, 0.0) / count;
  const double squares = std::accumulate(
      begin, end, 0.0, [&](double sum, double x) { return sum + (x - mean) * (x - mean); });
  return {mean, std::sqrt(squares / count)};
}

Tensor f32_matrix(std::int64_t rows, std::int64_t columns) {
  const Stream host(MemoryPool::create("host"));
  return Tensor::empty({rows, columns}, DType::kF32, MemoryKind::kWorkspace, host);
}

/// The columns of one of several equal parts.
Tensor part_of_columns(const Tensor& whole, std::int64_t part, std::int64_t parts) {
  const std::int64_t rows = whole.size(0), columns = whole.size(1) / parts;
  const Tensor own = f32_matrix(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const from = whole.data<float>() + i * whole.size(1) + part * columns;
    std::copy(from, from + columns, own.data<float>() + i * columns);
  }
  return own;
}

Tensor read_shard(const SafetensorsFile& file, const std::string& name, const ExpertMatrix& which,
                  std::int64_t shards) {
  const Shape shape = file.entry(name).tensor_shape();
  const std::int64_t shard = which.expert % shards;
  const bool by_rows = which.part != ExpertPart::kDown;
  const Tensor read = f32_matrix(by_rows ? shape[0] / shards : shape[0], shape[1]);
  file.read_part(name, by_rows ? shard : 0, read);
  return by_rows || shards == 1 ? read : part_of_columns(read, shard, shards);
}

/// Calls element(value, i) for all elements, on several threads.
template <class Element>
void for_each_element(const Tensor& matrix, const Element& element) {
  const std::int64_t columns = matrix.size(1);
  run_tasks(matrix.size(0), [&](std::int64_t, std::int64_t row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      element(matrix.data<float>()[i], i);
  });
}

void add_noise(const Tensor& matrix, const ExpertMatrix& which, const Upcycling& asked) {
  const RandomKey key = key_of(asked, which, Draw::kNoise);
  const auto deviation = static_cast<float>(asked.noise * moments_of(matrix).deviation);
  for_each_element(matrix, [&](float& value, std::int64_t i) {
    value += deviation * random_normal(key, static_cast<std::uint64_t>(i));
  });
}

/// The same columns of the inner width in all matrices of an expert.
std::vector<bool> columns_drawn_anew(const ExpertMatrix& which, const Upcycling& asked,
                                     std::int64_t inner_width) {
  const RandomKey key = key_of(asked, which, Draw::kColumns);
  const auto width = static_cast<std::uint64_t>(inner_width);
  const auto count = std::llround(asked.redraw * static_cast<double>(inner_width));
  std::vector<bool> drawn(static_cast<std::size_t>(inner_width));
  for (std::int64_t i = 0; i < count; ++i)
    drawn[random_permuted(key, static_cast<std::uint64_t>(i), width)] = true;
  return drawn;
}

/// Drop-upcycling (Nakamura et al. 2025): normal numbers of the matrix's own mean and deviation.
void redraw(const Tensor& matrix, const ExpertMatrix& which, const Upcycling& asked) {
  const bool by_rows = which.part != ExpertPart::kDown;
  const std::int64_t columns = matrix.size(1);
  const std::vector<bool> drawn =
      columns_drawn_anew(which, asked, by_rows ? matrix.size(0) : columns);
  const RandomKey key = key_of(asked, which, Draw::kNewColumns);
  const auto [mean, deviation] = moments_of(matrix);
  for_each_element(matrix, [&](float& value, std::int64_t i) {
    if (drawn[static_cast<std::size_t>(by_rows ? i / columns : i % columns)])
      value =
          static_cast<float>(mean + deviation * random_normal(key, static_cast<std::uint64_t>(i)));
  });
}

}  // namespace

Tensor expert_matrix(const SafetensorsFile& file, const std::string& name,
                     const ExpertMatrix& which, const Upcycling& asked) {
  const Tensor matrix = read_shard(file, name, which, asked.shards);
  if (asked.noise > 0) add_noise(matrix, which, asked);
  if (asked.redraw > 0) redraw(matrix, which, asked);
  const auto scale = static_cast<float>(which.scale);
  if (scale != 1) for_each_element(matrix, [&](float& value, std::int64_t) { value *= scale; });
  return matrix;
}

Tensor new_router(std::int64_t layer, std::int64_t width, const Upcycling& asked) {
  const Tensor router = f32_matrix(asked.experts, width);
  for (std::int64_t i = 0; i < router.elements(); ++i) {
    const std::int64_t copy = i / width / asked.shards;
    const RandomKey key = key_of(asked, {.layer = layer, .expert = copy}, Draw::kRouter);
    router.data<float>()[i] = static_cast<float>(
        kRouterDeviation * random_normal(key, static_cast<std::uint64_t>(i % width)));
  }
  return router;
}

}  // namespace hybrid_trainer
