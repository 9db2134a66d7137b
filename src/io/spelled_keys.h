#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {

/// Moves a file's values of other names to their keys. Returns what is wrong, "NAME: …".
std::vector<std::string> move_spelled_values(const FieldNode& root, boost::json::object& file,
                                             JsonKeys& keys);
/// Sets the keys that `name` is another name of, and returns them. Throws ConfigError.
std::vector<std::string> set_spelled(const FieldNode& root, const std::string& name,
                                     const std::string& text);

}  // namespace hybrid_trainer
