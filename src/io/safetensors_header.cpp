#include "src/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <boost/json/value.hpp>

#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr std::uint64_t kMaxInteger = (std::uint64_t{1} << 48) - 1;
constexpr std::size_t kMaxDimensions = 64;

struct FileDtype {
  const char* name;
  std::uint64_t bits;
};
constexpr std::array<FileDtype, 22> kFileDtypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

/// Reads the header entry of one tensor; throws DataError that names it.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name) : file_(file), name_(name) {}

  SafetensorsEntry read(const json::value& value) const {
    if (!value.is_object()) fail("want an object with dtype, shape and data_offsets");
    const json::object& object = value.get_object();
    for (const auto& member : object) {
      const json::string_view key = member.key();
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail("unknown key " + std::string(key));
    }
    const std::uint64_t bits = bits_of(object.if_contains("dtype"));
    SafetensorsEntry entry;
    entry.name = name_;
    entry.dtype = std::string(object.at("dtype").get_string());
    const std::vector<std::uint64_t> shape =
        integers(object.if_contains("shape"), "shape", kMaxDimensions);
    const std::vector<std::uint64_t> offsets =
        integers(object.if_contains("data_offsets"), "data_offsets", 2);
    if (offsets.size() != 2) fail("data_offsets has not two numbers");
    if (offsets[1] < offsets[0]) fail("data_offsets end before they begin");
    entry.shape.assign(shape.begin(), shape.end());
    entry.offset = offsets[0];
    entry.bytes = offsets[1] - offsets[0];
    if (entry.bytes != bytes_of(shape, bits)) {
      fail(concat("data_offsets span ", entry.bytes, " bytes, the shape and dtype ask for ",
                  bytes_of(shape, bits)));
    }
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(concat(file_, ": tensor \"", name_.substr(0, 200), "\": ", what));
  }

  std::uint64_t bits_of(const json::value* dtype) const {
    if (dtype == nullptr || !dtype->is_string()) fail("has no dtype");
    const std::string name(dtype->get_string());
    std::vector<std::string> names;
    for (const FileDtype& known : kFileDtypes) {
      if (name == known.name) return known.bits;
      names.push_back(known.name);
    }
    fail("unknown dtype \"" + name.substr(0, 40) + "\"" + name_hint(name, names));
  }

  std::vector<std::uint64_t> integers(const json::value* value, const char* key,
                                      std::size_t max_count) const {
    if (value == nullptr || !value->is_array()) fail(concat("has no list ", key));
    if (value->get_array().size() > max_count)
      fail(concat(key, " has more than ", max_count, " numbers"));
    std::vector<std::uint64_t> numbers;
    for (const json::value& element : value->get_array()) {
      const bool whole = element.is_int64() && element.get_int64() >= 0;
      if (!whole || element.to_number<std::uint64_t>() > kMaxInteger) {
        fail(concat(key, " must hold whole numbers from 0 to ", kMaxInteger));
      }
      numbers.push_back(element.to_number<std::uint64_t>());
    }
    return numbers;
  }

  std::uint64_t bytes_of(const std::vector<std::uint64_t>& shape, std::uint64_t bits) const {
    std::uint64_t total_bits = bits;
    for (std::uint64_t dimension : shape) {
      if (__builtin_mul_overflow(total_bits, dimension, &total_bits))
        fail("the size of the shape overflows");
    }
    if (total_bits % 8 != 0) fail("its elements do not fill whole bytes");
    return total_bits / 8;
  }

  const std::string& file_;
  const std::string& name_;
};

std::map<std::string, std::string> read_metadata(const json::value& value,
                                                 const std::string& file) {
  if (value.is_null()) return {};
  if (!value.is_object()) throw DataError(file + ": __metadata__ is no object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.get_object()) {
    if (text.is_null()) continue;
    if (!text.is_string()) throw DataError(file + ": __metadata__ must hold texts only");
    metadata[std::string(key)] = std::string(text.get_string());
  }
  return metadata;
}

}  // namespace

const char* safetensors_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kU16:
      return "U16";
    case DType::kU8:
      return "U8";
    case DType::kF64:
      return "F64";
    case DType::kI8:
      return "I8";
  }
  return "?";
}

std::optional<DType> tensor_dtype_of(std::string_view safetensors_name) {
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kI32, DType::kU16, DType::kU8, DType::kI8}) {
    if (safetensors_name == safetensors_name_of(dtype)) return dtype;
  }
  return {};
}

std::optional<DType> stored_dtype_of(std::string_view safetensors_name) {
  if (safetensors_name == safetensors_name_of(DType::kF64)) return DType::kF64;
  return tensor_dtype_of(safetensors_name);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file,
                                           std::size_t data_begin, std::size_t data_bytes) {
  constexpr std::size_t kMaxDepth = 4;
  const json::value root =
      parse_json_text(text, file + " (header)", {kMaxSafetensorsHeaderBytes, kMaxDepth});
  if (!root.is_object()) throw DataError(file + ": the header is no JSON object");
  SafetensorsHeader header;
  for (const auto& [key, value] : root.get_object()) {
    if (key == "__metadata__") {
      header.metadata = read_metadata(value, file);
    } else {
      const std::string name(key);
      header.entries.push_back(EntryReader(file, name).read(value));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  std::size_t end = 0;
  for (SafetensorsEntry& entry : header.entries) {
    if (entry.offset != end) {
      throw DataError(concat(file, ": tensor \"", entry.name.substr(0, 200), "\" begins at byte ",
                             entry.offset, " of the data, want ", end,
                             ": holes and overlaps are not allowed"));
    }
    end += entry.bytes;
    entry.offset += data_begin;
  }
  if (end != data_bytes) {
    throw DataError(
        concat(file, ": the tensors take ", end, " bytes, the file has ", data_bytes,
               " after its header: ", end < data_bytes ? "trailing bytes" : "it is truncated"));
  }
  return header;
}

}  // namespace hybrid_trainer
