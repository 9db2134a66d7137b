#include "src/nn/key_value_cache.h"

namespace hybrid_trainer {

void KeyValueCache::grow(std::int64_t tokens, const Stream& stream) {
  for (Tensor* tensor : {&keys, &values}) {
    const std::int64_t texts = tensor->size(0), before = tensor->size(1);
    if (before >= tokens) continue;  // it grew before another one ran out of memory
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

/// Keys and values have places of their own.
void KeyValueCache::keep(std::int64_t text, const Stream& stream) {
  if (!rows) return;
  if (!kept_rows) kept_rows = Tensor::empty_like(rows, MemoryKind::kActivations, stream);
  copy(kept_rows.rows(text, text + 1), rows.rows(text, text + 1), stream);
}

void KeyValueCache::go_back(std::int64_t text, const Stream& stream) {
  if (rows) copy(rows.rows(text, text + 1), kept_rows.rows(text, text + 1), stream);
}

}  // namespace hybrid_trainer
