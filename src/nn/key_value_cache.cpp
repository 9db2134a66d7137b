#include "src/nn/key_value_cache.h"

#include <vector>

namespace hybrid_trainer {

KeyValueCache::KeyValueCache(DecodeCapacity room, std::int64_t width, DType dtype,
                             const Stream& stream) {
  for (Tensor* tensor : {&keys, &values})
    *tensor =
        Tensor::empty({room.texts, room.tokens, width}, dtype, MemoryKind::kActivations, stream);
}

void KeyValueCache::grow(std::int64_t tokens, const Stream& stream) {
  for (Tensor* tensor : {&keys, &values}) {
    const std::int64_t texts = tensor->size(0), before = tensor->size(1);
    if (before >= tokens) continue;  // already grown before another state ran out of memory
    const Tensor larger = Tensor::empty({texts, tokens, tensor->size(2)}, tensor->dtype(),
                                        MemoryKind::kActivations, stream);
    const auto part = [&](const Tensor& all, std::int64_t text) {
      return all.rows(text, text + 1).as_rows().rows(0, before);
    };
    for (std::int64_t text = 0; text < texts; ++text)
      copy(part(larger, text), part(*tensor, text), stream);
    *tensor = larger;
  }
}

/// Copies only the rows of the convolution, because keys and values remain in place.
void KeyValueCache::keep(std::int64_t text, const Stream& stream) {
  if (!rows) return;
  if (!kept_rows) kept_rows = Tensor::empty_like(rows, MemoryKind::kActivations, stream);
  copy(kept_rows.rows(text, text + 1), rows.rows(text, text + 1), stream);
}

/// Copies the changed rows through a buffer, because one may be the parent of another.
void KeyValueCache::branch(std::span<const std::int64_t> parents, std::int64_t tokens,
                           const Stream& stream) {
  if (rows) return BranchState::branch(parents, tokens, stream);
  std::vector<std::int64_t> changed;
  for (std::int64_t text = 0; text < std::ssize(parents); ++text)
    if (parents[static_cast<std::size_t>(text)] != text) changed.push_back(text);
  const std::int64_t count = std::ssize(changed);
  if (count == 0 || tokens == 0) return;
  for (const Tensor& all : {keys, values}) {
    const Tensor passing =
        Tensor::empty({count, tokens, all.size(2)}, all.dtype(), MemoryKind::kActivations, stream);
    const auto of = [&](const Tensor& texts, std::int64_t text) {
      return texts.rows(text, text + 1).as_rows().rows(0, tokens);
    };
    for (std::int64_t i = 0; i < count; ++i) {
      const auto text = static_cast<std::size_t>(changed[static_cast<std::size_t>(i)]);
      copy(of(passing, i), of(all, parents[text]), stream);
    }
    for (std::int64_t i = 0; i < count; ++i)
      copy(of(all, changed[static_cast<std::size_t>(i)]), of(passing, i), stream);
  }
}

void KeyValueCache::attend(const Tensor& y, const Tensor& qkv, const DecodeTexts& texts,
                           const Pass& pass, const kernels::AttentionSpec& heads,
                           const Stream& stream) const {
  if (!texts.each) {
    const auto begun = [&](const Tensor& all) { return all.rows(texts.begun, texts.begun + 1); };
    kernels::store_keys_values(begun(keys), begun(values), qkv, stream);
    return kernels::attention_forward(y, Tensor{}, qkv, Tensor{}, heads, stream);
  }
  const std::int64_t batch = qkv.size(0), time = qkv.size(1);
  const Tensor rows = qkv.as_rows(), outputs = y.as_rows(),
               positions = pass.positions.view({batch * time});
  for (std::int64_t t = 0; t < time; ++t) {
    const auto of = [&](const Tensor& all) { return all.rows(t, t + batch); };
    kernels::attention_decode(of(outputs), keys, values, of(rows), of(texts.each), of(positions),
                              heads, stream);
  }
}

namespace {

void copy_text(const Tensor& to, const Tensor& from, std::int64_t text, const Stream& stream) {
  if (from) copy(to.rows(text, text + 1), from.rows(text, text + 1), stream);
}

}  // namespace

RecurrentState::RecurrentState(const Shape& convolution, const std::optional<Shape>& scan,
                               DType dtype, const Stream& stream)
    : convolution_(Tensor::zeros(convolution, dtype, MemoryKind::kActivations, stream)) {
  if (scan) scan_ = Tensor::zeros(*scan, DType::kF32, MemoryKind::kActivations, stream);
}

void RecurrentState::keep(std::int64_t text, const Stream& stream) {
  if (!kept_convolution_) {
    kept_convolution_ = Tensor::empty_like(convolution_, MemoryKind::kActivations, stream);
    if (scan_) kept_scan_ = Tensor::empty_like(scan_, MemoryKind::kActivations, stream);
  }
  copy_text(kept_convolution_, convolution_, text, stream);
  copy_text(kept_scan_, scan_, text, stream);
}

void RecurrentState::restore(std::int64_t text, const Stream& stream) {
  copy_text(convolution_, kept_convolution_, text, stream);
  copy_text(scan_, kept_scan_, text, stream);
}

}  // namespace hybrid_trainer
