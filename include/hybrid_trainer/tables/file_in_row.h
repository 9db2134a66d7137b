#pragma once

#include <string>
#include <string_view>

namespace boost::json {
class object;
class value;
}  // namespace boost::json

namespace hybrid_trainer {

/// What a row has under this name; null where it has nothing, or null.
const boost::json::value* value_in_row(const boost::json::object& row, std::string_view name);

/// How messages speak of the files that rows name.
struct RowFileWords {
  std::string_view holds;  // "holds the sound itself; write it to WAV files and give their paths"
  std::string_view file;   // "a WAV file"
  std::string_view wanted;
};

/// The path of a file, such as a clip or a picture, that a row has under `name`: by itself, or as the
/// "path" of an object. Throws DataError where there is none.
std::string path_in_row(const boost::json::object& row, std::string_view name,
                        const RowFileWords& words);

}  // namespace hybrid_trainer
