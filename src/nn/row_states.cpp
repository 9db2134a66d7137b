#include "hybrid_trainer/nn/row_states.h"

#include <utility>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {
namespace {

Tensor in_dtype(const Tensor& rows, DType dtype, const Stream& stream) {
  if (!rows || rows.dtype() == dtype) return rows;
  Tensor cast = Tensor::empty(rows.shape(), dtype, MemoryKind::kActivations, stream);
  kernels::cast(cast, rows, stream);
  return cast;
}

/// The rows of `part` become rows from `first` on of `whole`, which has `all`.
void put(Tensor& whole, const Tensor& part, std::int64_t first, std::int64_t all,
         const Stream& stream) {
  if (!part) return;
  Shape shape{all};
  for (int i = 1; i < part.shape().rank(); ++i) shape.append(part.size(i));
  if (!whole || whole.shape() != shape || whole.dtype() != part.dtype())
    whole = Tensor::empty(shape, part.dtype(), MemoryKind::kActivations, stream);
  copy(whole.rows(first, first + part.size(0)), part, stream);
}

Tensor some(const Tensor& whole, std::int64_t first, std::int64_t count) {
  return whole ? whole.rows(first, first + count) : Tensor{};
}

}  // namespace

std::vector<SegmentCarry::State> RowStates::firsts(std::int64_t first, std::int64_t count,
                                                   DType dtype, const Stream& stream) const {
  std::vector<SegmentCarry::State> states;
  for (const SegmentCarry::State& all : now_)
    states.push_back(
        {in_dtype(some(all.rows, first, count), dtype, stream), some(all.scan, first, count)});
  return states;
}

void RowStates::remember(std::int64_t first, const std::vector<SegmentCarry::State>& lasts,
                         const Stream& stream) {
  const MemoryLabel label("carried states");
  next_.resize(lasts.size());
  for (std::size_t i = 0; i < lasts.size(); ++i) {
    put(next_[i].rows, lasts[i].rows, first, all_, stream);
    put(next_[i].scan, lasts[i].scan, first, all_, stream);
  }
}

void RowStates::commit() { std::swap(now_, next_); }

void RowStates::save(State& state) const {
  state.integers["carried.branches"] = std::ssize(now_);
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (now_[i].rows) state.tensors[concat("carried.", i, ".rows")] = now_[i].rows;
    if (now_[i].scan) state.tensors[concat("carried.", i, ".scan")] = now_[i].scan;
  }
}

void RowStates::load(const State& state, const Stream& stream) {
  now_.clear();
  now_.resize(narrow<std::uint16_t>(state.integer("carried.branches"), "carried.branches"));
  const auto read = [&](const std::string& name) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) return Tensor{};
    const Tensor there = Tensor::empty_like(found->second, MemoryKind::kActivations, stream);
    wait_for_copy(there, found->second, stream);
    return there;
  };
  for (std::size_t i = 0; i < now_.size(); ++i)
    now_[i] = {read(concat("carried.", i, ".rows")), read(concat("carried.", i, ".scan"))};
}

}  // namespace hybrid_trainer
