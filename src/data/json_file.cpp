#include "src/data/json_file.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;
constexpr JsonLimits kLimits{.max_bytes = std::size_t{256} << 20, .max_depth = 32};

}  // namespace

json::object read_json_object(const std::filesystem::path& path) {
  json::value value = read_json(path, kLimits);
  if (!value.is_object()) throw DataError(concat(path.string(), ": got no object, want {…}"));
  return std::move(value.as_object());
}

void write_json(const json::value& value, const std::filesystem::path& path) {
  write_file(path, json::serialize(value) + "\n");
}

}  // namespace hybrid_trainer
