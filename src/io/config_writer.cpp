#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <sstream>

#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {

/// Found by cereal: a group is an object of its fields.
static void save(cereal::JSONOutputArchive& archive, const FieldNode& group) {
  for (const FieldNode& field : group.fields) {
    if (field.is_group()) {
      archive(cereal::make_nvp(field.name, field));
      continue;
    }
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            archive(cereal::make_nvp(field.name, value));
          }
        },
        field.value);
  }
}

std::string fields_json(const FieldNode& root) {
  std::ostringstream out;
  {
    using Options = cereal::JSONOutputArchive::Options;
    constexpr int kNoLimitOfDecimals = 324;
    cereal::JSONOutputArchive archive(out,
                                      Options(kNoLimitOfDecimals, Options::IndentChar::space, 2));
    save(archive, root);
  }
  return out.str() + "\n";
}

}  // namespace hybrid_trainer
