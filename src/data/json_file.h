#pragma once

#include <boost/json.hpp>
#include <filesystem>

namespace hybrid_trainer {

/// A JSON object from an untrusted file: at most 256 MiB, nested at most 32 deep, no duplicate
/// keys. Throws MissingInput, or DataError that names the file and the place.
boost::json::object read_json_object(const std::filesystem::path& path);
void write_json(const boost::json::value& value, const std::filesystem::path& path);

}  // namespace hybrid_trainer
