#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace hybrid_trainer {

/// An object as lines "key  value" for people: objects below each other, arrays of objects one line
/// each. Numbers of keys that end in "bytes" get a unit.
std::string json_as_text(const boost::json::object& object);

}  // namespace hybrid_trainer
