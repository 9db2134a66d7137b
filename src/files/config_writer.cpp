#include <boost/algorithm/string/replace.hpp>
#include <boost/json/value.hpp>
#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "src/files/config_fields.h"
#include "src/files/json.h"

namespace hybrid_trainer {

struct NamedElements {
  const std::vector<FieldNode>& elements;
};

static void save(cereal::JSONOutputArchive& archive, const NamedElements& list);

/// Writes a group as an object of its fields. Called by cereal.
static void save(cereal::JSONOutputArchive& archive, const FieldNode& group) {
  for (const FieldNode& field : group.fields) {
    if (field.left_out || field.owner != KeyOwner::kOwn) continue;
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
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
            archive(cereal::make_nvp(field.name, value));
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
    constexpr int kNoDecimalLimit = 324;
    cereal::JSONOutputArchive archive(out, Options(kNoDecimalLimit, Options::IndentChar::space, 2));
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

namespace {

void add_range(json::object& schema, const Range& range) {
  if (std::isfinite(range.low)) schema[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high))
    schema[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
}

json::object schema_of(const FieldNode& field);

void add_properties(json::object& schema, const FieldNode& group) {
  json::object properties;
  for (const FieldNode& field : group.fields)
    if (!field.is_constant) properties[field.name] = schema_of(field);
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  schema["properties"] = std::move(properties);
}

struct AddType {
  json::object& schema;
  const FieldNode& field;

  void operator()(std::monostate) const {
    if (!field.is_list) return add_properties(schema, field);
    json::object items;
    add_properties(items, field);
    if (field.is_named) {
      schema["type"] = "object";
      schema["default"] = json::object();
      schema["additionalProperties"] = std::move(items);
      return;
    }
    schema["type"] = "array";
    schema["default"] = json::array();
    schema["items"] = std::move(items);
  }
  void operator()(bool value) const {
    schema["type"] = "boolean";
    schema["default"] = value;
  }
  void operator()(std::int64_t value) const {
    schema["type"] = "integer";
    schema["default"] = value;
    add_range(schema, field.range);
  }
  void operator()(double value) const {
    schema["type"] = "number";
    schema["default"] = value;
    add_range(schema, field.range);
  }
  void operator()(const std::string& value) const {
    schema["type"] = "string";
    if (field.is_size) schema["type"] = json::array{"string", "integer"};
    schema["default"] = value;
    if (!field.letters.empty()) {
      json::array words;
      for (const LetterWord& letter : field.letters) words.emplace_back(letter.word);
      schema["type"] = json::array{"string", "array"};
      schema["items"] = json::object{{"enum", std::move(words)}};
    }
    if (field.choices.empty()) return;
    json::array choices;
    for (const std::string& choice : field.choices) choices.emplace_back(choice);
    schema["enum"] = std::move(choices);
  }
  void operator()(const std::vector<double>& value) const {
    json::object items{{"type", "number"}};
    add_range(items, field.range);
    schema["type"] = "array";
    schema["default"] = json::array(value.begin(), value.end());
    schema["items"] = std::move(items);
  }
};

json::object schema_of(const FieldNode& field) {
  json::object schema;
  if (!field.help.empty()) schema["description"] = field.help;
  std::visit(AddType{schema, field}, field.value);
  if (field.left_out) schema.erase("default");
  return schema;
}

std::string bounded(const std::string& word, const Range& range) {
  const bool any = range.text() == Range{}.text();
  return any ? word : concat(word, " in ", range.text());
}

std::string default_text(const FieldNode& field) {
  if (field.is_list) return field.is_named ? "`{}`" : "`[]`";
  if (field.left_out) return "left out";
  const char* const quote = std::holds_alternative<std::string>(field.value) ? "\"" : "";
  return concat("`", quote, field_text(field.value), quote, "`");
}

std::string allowed_text(const FieldNode& field) {
  if (field.is_list) return field.is_named ? "object of objects" : "list of objects";
  struct Text {
    const FieldNode& field;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool) const { return "true, false"; }
    std::string operator()(std::int64_t) const { return bounded("whole number", field.range); }
    std::string operator()(double) const { return bounded("number", field.range); }
    std::string operator()(const std::string&) const {
      if (field.is_size) return "bytes, 16GiB";
      if (!field.letters.empty())
        return concat("letters, or a list of their words: ", text_of(field.letters));
      return field.choices.empty() ? "string" : join(field.choices);
    }
    std::string operator()(const std::vector<double>&) const {
      return bounded("list of numbers", field.range);
    }
  };
  return std::visit(Text{field}, field.value);
}

void append_group(std::string& out, const FieldNode& group, const std::string& path) {
  if (std::ranges::all_of(group.fields, &FieldNode::is_constant)) return;
  std::string rows;
  for (const FieldNode& field : group.fields) {
    if (field.is_group() || field.is_constant || field.owner == KeyOwner::kOther) continue;
    rows += concat("| `", path, field.name, "` | ", default_text(field), " | ", allowed_text(field),
                   " | ", field.help, " |\n");
  }
  if (!path.empty())
    out += concat("## ", path.substr(0, path.size() - 1), "\n\n",
                  boost::replace_all_copy(group.help, ". ", ".\n"),  // keeps lines short
                  group.help.empty() ? "" : "\n\n");
  if (!rows.empty())
    out += "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n" + rows + "\n";
  for (const FieldNode& field : group.fields) {
    if (field.owner == KeyOwner::kOther) continue;
    if (field.is_group()) append_group(out, field, path + field.name + ".");
    if (field.is_list)
      append_group(out, field, path + field.name + (field.is_named ? ".NAME." : "[]."));
  }
}

}  // namespace

std::string fields_schema(const FieldNode& root) {
  json::object schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                      {"title", "HybridTrainer configuration"}};
  add_properties(schema, root);
  schema["properties"].get_object()["$schema"] = json::object{{"type", "string"}};
  return pretty_json(schema);
}

std::string fields_markdown(const FieldNode& root) {
  std::string out;
  append_group(out, root, "");
  if (!out.empty()) out.pop_back();  // the final empty line
  return out;
}

}  // namespace hybrid_trainer
