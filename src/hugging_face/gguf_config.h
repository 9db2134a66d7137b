#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/gguf/gguf_file.h"

namespace hybrid_trainer {

/// The config.json of the folder that a GGUF file would be: what its values and tensors tell of the
/// model. Throws DataError, which names the value, for another architecture and for what no folder can
/// say.
boost::json::object gguf_config(const GgufFile& file);

/// The tensor of a head of its own, where the file has one that differs from the token table; else null.
const GgufTensor* own_head(const GgufFile& file);

}  // namespace hybrid_trainer
