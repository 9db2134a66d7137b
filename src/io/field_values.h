#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {

const FieldNode* find_field(const FieldNode& group, std::string_view name);
/// A JSON value in brief: 0.5, "text", [0.9, 0.95], an object.
std::string brief(const boost::json::value& value);
/// "a whole number".
const char* wanted(const FieldNode& field);
/// The value in the field's own type, or nothing if the JSON value has another type.
std::optional<FieldValue> converted(const FieldNode& field, const boost::json::value& value);
/// What is wrong with a value of the right type, or "".
std::string value_problem(const FieldNode& field, const std::string& path, const FieldValue& value);

}  // namespace hybrid_trainer
