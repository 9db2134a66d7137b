#include "src/chat/plain_values.h"

#include "src/chat/builtins.h"

namespace hybrid_trainer::jinja {

using NodeKind = Expression::Kind;

static constexpr std::size_t kEntriesPerOperation = 16;

const Value* PlainValues::find(const Expression& node) {
  allowance_.spend(1);
  const Value* value = found_in(node);
  if (value != nullptr && value->is<std::string>()) allowance_.spend_on_copy(*value);
  return value;
}

const Value* PlainValues::found_in(const Expression& node) {
  if (node.kind == NodeKind::kLiteral) return &node.value;
  if (node.kind == NodeKind::kName) return variables_.find(node.name);
  const Value* owner = find(node.items[0]);
  if (owner == nullptr) return nullptr;
  searched(*owner);
  if (node.kind == NodeKind::kAttribute) {
    const Dict* entries = entries_of(*owner);
    return entries == nullptr ? nullptr : jinja::find(*entries, node.text);
  }
  const Value* key = find(node.items[1]);
  const Value* value = key == nullptr ? nullptr : item_in(*owner, *key);
  if (value != nullptr) parts_.looked_up(node.items[1], *value);
  return value;
}

const Value& PlainValues::searched(const Value& value) {
  const Dict* entries = entries_of(value);
  allowance_.spend(entries == nullptr ? 0 : entries->size() / kEntriesPerOperation);
  return value;
}

}  // namespace hybrid_trainer::jinja
