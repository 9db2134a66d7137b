#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace hybrid_trainer {

/// An object as lines "key  value" for people: nested objects below each other, arrays of objects
/// one per line. Numbers whose key ends in "bytes" get a unit.
std::string json_as_text(const boost::json::object& object);

}  // namespace hybrid_trainer
