#include "hybrid_trainer/observability/memory_shortage_json.h"

#include <algorithm>

#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {
namespace {

void write_block(JsonWriter& out, std::string_view key, const MemoryBlock& block) {
  const Shape& shape = block.content.shape;
  out.begin_object(key);
  out.number("bytes", block.bytes);
  out.string("kind", name_of(block.kind));
  out.string("label", block.label.data());
  out.string("dtype", shape.rank() > 0 ? name_of(block.content.dtype) : "");
  out.begin_array("shape");
  for (int i = 0; i < shape.rank(); ++i) out.number("", shape[i]);
  out.end_array();
  out.end_object();
}

void write_kinds_by_size(JsonWriter& out, const MemoryUse& use) {
  std::vector<std::pair<std::size_t, const char*>> kinds;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    if (use.live[kind] > 0)
      kinds.emplace_back(use.live[kind], name_of(static_cast<MemoryKind>(kind)));
  std::sort(kinds.rbegin(), kinds.rend());
  out.begin_array("live_by_kind");
  for (const auto& [bytes, name] : kinds) {
    out.begin_object();
    out.string("kind", name);
    out.number("bytes", bytes);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step) {
  const MemoryUse& use = shortage.use;
  JsonWriter out;
  out.begin_object();
  if (phase) {
    out.string("phase", name_of(*phase));
    out.number("step", step);
  } else {
    out.null("phase");
    out.null("step");
  }
  out.string("pool", shortage.pool);
  write_block(out, "asked", shortage.asked);
  if (shortage.budget_bytes) {
    out.number("budget_bytes", *shortage.budget_bytes);
  } else {
    out.null("budget_bytes");
  }
  out.number("live_bytes", use.live_total);
  out.number("cached_bytes", use.cached);
  const std::size_t budget = shortage.budget_bytes.value_or(0);
  out.number("free_bytes", budget - std::min(budget, use.live_total));
  write_kinds_by_size(out, use);
  out.number("blocks", shortage.blocks);
  out.begin_array("largest_blocks");
  for (const MemoryBlock& block : shortage.largest) write_block(out, "", block);
  out.end_array();
  out.end_object();
  return out.text() + "\n";
}

}  // namespace hybrid_trainer
