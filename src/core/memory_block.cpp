#include "hybrid_trainer/core/memory_block.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

thread_local std::string_view memory_label;

}  // namespace

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, kMemoryKinds> names{
      "parameters", "gradients", "optimizer_state", "activations", "predictor", "snapshot",
      "workspace",  "data",      "master_weights",  "logits"};
  return names[static_cast<std::size_t>(kind)];
}

std::string MemoryBlock::text() const {
  const std::string what = label[0] == 0 ? name_of(kind) : label.data();
  if (content.shape.rank() == 0) return what;
  return concat(what, " ", name_of(content.dtype), " ", content.shape.text());
}

MemoryLabel::MemoryLabel(std::string_view name) : outer_(memory_label) { memory_label = name; }

MemoryLabel::~MemoryLabel() { memory_label = outer_; }

std::string_view MemoryLabel::current() { return memory_label; }

}  // namespace hybrid_trainer
