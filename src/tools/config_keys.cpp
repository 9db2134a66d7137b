#include "src/tools/config_keys.h"

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

void add_keys(const FieldNode& group, const std::string& before, std::vector<ConfigKey>& keys) {
  for (const FieldNode& field : group.fields) {
    if (field.is_group()) {
      add_keys(field, before + field.name + ".", keys);
    } else if (!field.is_list) {
      const bool is_flag = std::holds_alternative<bool>(field.value);
      keys.push_back({before + field.name,
                      is_flag ? std::vector<std::string>{"true", "false"} : field.choices});
    }
  }
}

}  // namespace

std::vector<ConfigKey> config_keys() {
  const HybridTrainerConfig config;
  std::vector<ConfigKey> keys;
  add_keys(field_tree(config), "", keys);
  return keys;
}

}  // namespace hybrid_trainer
