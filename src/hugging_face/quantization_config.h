#pragma once

#include <boost/json.hpp>
#include <string>

namespace hybrid_trainer {

/// What the quantization_config in a config.json asks for, as lora.base names it: nf4, fp4 or int8;
/// empty where there is none. `name` stands for the file in messages. Throws DataError that names
/// every key that asks for something else.
std::string parse_quantization_config(const boost::json::object& config, const std::string& name);

/// As transformers writes it.
boost::json::object quantization_config(const std::string& form);

}  // namespace hybrid_trainer
