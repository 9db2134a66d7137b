#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {

/// The elements of a named list, of which each is an object by its name.
struct NamedElements {
  const std::vector<FieldNode>& elements;
};

static void save(cereal::JSONOutputArchive& archive, const NamedElements& list);

/// Called by cereal: a group is an object of its fields.
static void save(cereal::JSONOutputArchive& archive, const FieldNode& group) {
  for (const FieldNode& field : group.fields) {
    if (field.left_out) continue;
    if (field.is_group()) {
      archive(cereal::make_nvp(field.name, field));
      continue;
    }
    if (field.is_named) {
      archive(cereal::make_nvp(field.name, NamedElements{field.elements}));
      continue;
    }
    if (field.is_list) {
      archive(cereal::make_nvp(field.name, field.elements));
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

static void save(cereal::JSONOutputArchive& archive, const NamedElements& list) {
  for (const FieldNode& element : list.elements) archive(cereal::make_nvp(element.name, element));
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

std::string field_text(const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    std::string text;
    for (const double number : *list) text += (text.empty() ? "[" : ", ") + shortest(number);
    return text.empty() ? "[]" : text + "]";
  }
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* count = std::get_if<std::int64_t>(&value)) return concat(*count);
  return shortest(std::get<double>(value));
}

std::string field_text(const FieldNode& field) {
  if (!field.is_list) return field_text(field.value);
  std::string text;
  for (const FieldNode& element : field.elements) {
    std::string keys;
    for (const FieldNode& key : element.fields) {
      if (!key.left_out) keys += concat(keys.empty() ? "" : ", ", key.name, ": ", field_text(key));
    }
    text +=
        concat(text.empty() ? "" : ", ", field.is_named ? element.name + ": " : "", "{", keys, "}");
  }
  return field.is_named ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace hybrid_trainer
