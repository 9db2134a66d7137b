#pragma once

#include <boost/json.hpp>
#include <filesystem>

namespace hybrid_trainer {

/// What a GGUF file holds ("gguf"): its values, of arrays their length and first elements, and its
/// tensors. Throws DataError where it is damaged.
boost::json::object inspect_gguf(const std::filesystem::path& path);

}  // namespace hybrid_trainer
