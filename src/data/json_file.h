#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>

namespace hybrid_trainer {

/// A JSON object from an untrusted file: at most 256 MiB, nested at most 32 deep, no duplicate
/// keys. Throws MissingInput, or DataError that names the file and the place.
boost::json::object read_json_object(const std::filesystem::path& path);
void write_json(const boost::json::value& value, const std::filesystem::path& path);

/// Members of an object that was read from `path`. Each throws DataError naming the file and the
/// key if the member is absent or of another type.
const boost::json::array& array_member(const boost::json::object& object, const char* key,
                                       const std::filesystem::path& path);
std::string string_member(const boost::json::object& object, const char* key,
                          const std::filesystem::path& path);
/// An integer in 0 … 2^53.
std::int64_t count_member(const boost::json::object& object, const char* key,
                          const std::filesystem::path& path);
double number_member(const boost::json::object& object, const char* key,
                     const std::filesystem::path& path);

}  // namespace hybrid_trainer
