#include "hybrid_trainer/observability/memory_shortage_json.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

json::object block_json(const MemoryBlock& block) {
  const Shape& shape = block.content.shape;
  json::array sizes;
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  return {{"bytes", block.bytes},
          {"kind", name_of(block.kind)},
          {"label", block.label.data()},
          {"dtype", shape.rank() > 0 ? name_of(block.content.dtype) : ""},
          {"shape", sizes}};
}

}  // namespace

std::string to_json(const MemoryShortage& shortage, std::optional<Phase> phase, std::int64_t step) {
  const MemoryUse& use = shortage.use;
  const std::size_t budget = shortage.budget_bytes.value_or(0);
  json::array kinds, largest;
  for (const auto& [bytes, name] : kinds_by_size(use))
    kinds.push_back({{"kind", name}, {"bytes", bytes}});
  for (const MemoryBlock& block : shortage.largest) largest.push_back(block_json(block));
  const json::object line{
      {"phase", phase ? json::value(name_of(*phase)) : json::value()},
      {"step", phase ? json::value(step) : json::value()},
      {"pool", shortage.pool},
      {"asked", block_json(shortage.asked)},
      {"budget_bytes", shortage.budget_bytes ? json::value(*shortage.budget_bytes) : json::value()},
      {"live_bytes", use.live_total},
      {"cached_bytes", use.cached},
      {"free_bytes", budget - std::min(budget, use.live_total)},
      {"live_by_kind", kinds},
      {"blocks", shortage.blocks},
      {"largest_blocks", largest}};
  return json_line(line) + "\n";
}

}  // namespace hybrid_trainer
