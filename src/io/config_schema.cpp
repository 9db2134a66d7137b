#include <boost/json/value.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

void add_range(json::object& schema, const Range& range) {
  if (std::isfinite(range.low)) schema[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high))
    schema[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
}

json::object schema_of(const FieldNode& field);

void add_properties(json::object& schema, const FieldNode& group) {
  json::object properties;
  for (const FieldNode& field : group.fields) properties[field.name] = schema_of(field);
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  schema["properties"] = std::move(properties);
}

/// Adds type, default and allowed values for one alternative of FieldValue.
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

}  // namespace

std::string fields_schema(const FieldNode& root) {
  json::object schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                      {"title", "HybridTrainer configuration"}};
  add_properties(schema, root);
  schema["properties"].get_object()["$schema"] = json::object{{"type", "string"}};
  return pretty_json(schema);
}

}  // namespace hybrid_trainer
