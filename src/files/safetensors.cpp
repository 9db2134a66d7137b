#include "src/files/safetensors.h"

#include <algorithm>
#include <boost/json/value.hpp>
#include <cctype>
#include <cmath>
#include <cstring>

#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/json.h"

namespace hybrid_trainer {

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
    if (offsets.size() != 2) fail("data_offsets does not have two numbers");
    if (offsets[1] < offsets[0]) fail("data_offsets end before they begin");
    entry.shape.assign(shape.begin(), shape.end());
    entry.offset = offsets[0];
    entry.bytes = offsets[1] - offsets[0];
    if (entry.bytes != bytes_of(shape, bits))
      fail(concat("data_offsets span ", entry.bytes, " bytes, but the shape and dtype need ",
                  bytes_of(shape, bits)));
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
      if (!whole || element.to_number<std::uint64_t>() > kMaxInteger)
        fail(concat(key, " must contain whole numbers from 0 to ", kMaxInteger));
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
  if (!value.is_object()) throw DataError(file + ": __metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.get_object()) {
    if (text.is_null()) continue;
    if (!text.is_string()) throw DataError(file + ": __metadata__ must contain only strings");
    metadata[std::string(key)] = std::string(text.get_string());
  }
  return metadata;
}

struct ElementConversion {
  /// Converts `count` elements; returns false if a value does not fit. Null: unsupported.
  bool (*convert)(void* to, const void* from, std::size_t count) = nullptr;
  std::size_t from_bytes = 0;  // bytes per element in the file
};

struct Float16 {
  std::uint16_t bits = 0;
};

float to_float(Float16 value) {
  const float sign = (value.bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (value.bits >> 10) & 31;
  const int fraction = value.bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(static_cast<float>(fraction), -24)
                       : sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}
float to_float(double value) { return static_cast<float>(value); }
float to_float(std::int64_t value) { return static_cast<float>(value); }

void store(float& to, float value) { to = value; }
void store(BFloat16& to, float value) { to = to_bfloat16(value); }

template <class To, class From>
bool through_float(void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(From), sizeof(From));
    store(static_cast<To*>(to)[i], to_float(value));
  }
  return true;
}

bool narrow_integers(void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(from) + i * sizeof value, sizeof value);
    if (!holds_number<std::int32_t>(value)) return false;
    static_cast<std::int32_t*>(to)[i] = narrow<std::int32_t>(value);
  }
  return true;
}

template <class To>
ElementConversion find_float_conversion(std::string_view from) {
  if (from == "F32") return {through_float<To, float>, 4};
  if (from == "BF16") return {through_float<To, BFloat16>, 2};
  if (from == "F16") return {through_float<To, Float16>, 2};
  if (from == "F64") return {through_float<To, double>, 8};
  if (from == "I64") return {through_float<To, std::int64_t>, 8};
  return {};
}

ElementConversion find_conversion(std::string_view from, DType to) {
  if (to == DType::kF32) return find_float_conversion<float>(from);
  if (to == DType::kBF16) return find_float_conversion<BFloat16>(from);
  if (to == DType::kI32 && from == "I64") return {narrow_integers, 8};
  return {};
}

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;

/// Throws DataError for a Git LFS pointer file, often used by mistake instead of the weights.
void refuse_git_lfs_pointer(const InputFile& file) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (file.bytes() < kPointer.size()) return;
  std::string front(kPointer.size(), '\0');
  file.read_at(front.data(), front.size(), 0);
  if (front == kPointer)
    throw DataError(
        file.path().native() +
        ": is a Git LFS pointer, not the weights; run `git lfs pull` in its repository");
}

std::size_t header_bytes(const InputFile& file) {
  const std::string& path = file.path().native();
  const std::size_t size = file.bytes();
  if (size < kLengthBytes)
    throw DataError(
        concat(path, ": has ", size, " bytes; a safetensors file has at least ", kLengthBytes));
  std::uint64_t length = 0;
  file.read_at(&length, sizeof length, 0);
  if (length > kMaxSafetensorsHeaderBytes)
    throw DataError(concat(path, ": the header claims ", length, " bytes; at most ",
                           kMaxSafetensorsHeaderBytes,
                           " are allowed: this is not a safetensors file"));
  if (length > size - kLengthBytes)
    throw DataError(concat(path, ": the header claims ", length, " bytes, but only ",
                           size - kLengthBytes, " follow: the file is truncated"));
  return length;
}

}  // namespace

std::string safetensors_name_of(DType dtype) {
  std::string name = name_of(dtype);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
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
  if (!root.is_object()) throw DataError(file + ": the header is not a JSON object");
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
    if (entry.offset != end)
      throw DataError(concat(file, ": tensor \"", entry.name.substr(0, 200), "\" begins at byte ",
                             entry.offset, " of the data, want ", end,
                             ": gaps and overlaps are not allowed"));
    end += entry.bytes;
    entry.offset += data_begin;
  }
  if (end != data_bytes)
    throw DataError(
        concat(file, ": the tensors take ", end, " bytes, but the file has ", data_bytes,
               " after its header: ", end < data_bytes ? "trailing bytes" : "it is truncated"));
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  refuse_git_lfs_pointer(file_);
  const std::size_t length = header_bytes(file_);
  std::string text(length, '\0');
  file_.read_at(text.data(), length, kLengthBytes);
  const std::size_t data_begin = kLengthBytes + length;
  SafetensorsHeader header =
      parse_safetensors_header(text, path, data_begin, file_.bytes() - data_begin);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

Shape SafetensorsEntry::tensor_shape() const {
  if (shape.size() > static_cast<std::size_t>(Shape::kMaxRank))
    throw DataError(concat("tensor \"", name, "\" has ", shape.size(), " dimensions; at most ",
                           Shape::kMaxRank, " are supported"));
  Shape result;
  for (std::int64_t dimension : shape) result.append(dimension);
  if (shape.empty()) result.append(1);
  return result;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return entries_[found->second];
  std::vector<std::string> names;
  for (const SafetensorsEntry& known : entries_) names.push_back(known.name);
  const std::string nearest = nearest_name(name, names);
  throw DataError(concat(
      path(), ": has no tensor \"", name, "\"",
      nearest.empty() ? concat(" among its ", names.size()) : "; did you mean " + nearest + "?"));
}

bool SafetensorsFile::rename(const std::string& from, const std::string& to) {
  bool found = false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::string& name = entries_[i].name;
    if (!name.starts_with(from)) continue;
    const std::string renamed = to + name.substr(from.size());
    if (!index_.emplace(renamed, i).second) continue;
    index_.erase(name);
    name = renamed;
    found = true;
  }
  return found;
}

void SafetensorsFile::read(const std::string& name, const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  if (from.tensor_shape() != into.shape())
    throw DataError(concat(path(), ": tensor \"", name, "\" has shape ", from.tensor_shape().text(),
                           ", want ", into.shape().text()));
  read_part(name, 0, into);
}

void SafetensorsFile::read_part(const std::string& name, std::int64_t part,
                                const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  const std::size_t count = static_cast<std::size_t>(into.elements());
  const std::size_t first = static_cast<std::size_t>(part) * count;
  if (from.tensor_shape().elements() < static_cast<std::int64_t>(first + count))
    throw DataError(concat(path(), ": tensor \"", name, "\" has shape ", from.tensor_shape().text(),
                           ", which ends before part ", part, " of ", count, " elements"));
  if (from.dtype == safetensors_name_of(into.dtype())) {
    file_.read_at(into.raw(), into.bytes(), from.offset + first * size_of(into.dtype()));
    return;
  }
  const ElementConversion conversion = find_conversion(from.dtype, into.dtype());
  if (conversion.convert == nullptr)
    throw DataError(concat(path(), ": tensor \"", name, "\" has dtype ", from.dtype,
                           ", which cannot be converted to ", name_of(into.dtype())));
  constexpr std::size_t kChunkElements = std::size_t{1} << 19;
  std::vector<char> chunk(std::min(count, kChunkElements) * conversion.from_bytes);
  for (std::size_t at = 0; at < count; at += kChunkElements) {
    const std::size_t elements = std::min(count - at, kChunkElements);
    file_.read_at(chunk.data(), elements * conversion.from_bytes,
                  from.offset + (first + at) * conversion.from_bytes);
    char* target = static_cast<char*>(into.raw()) + at * size_of(into.dtype());
    if (!conversion.convert(target, chunk.data(), elements))
      throw DataError(concat(path(), ": tensor \"", name, "\" has a number that ",
                             name_of(into.dtype()), " cannot represent"));
  }
}

void SafetensorsFile::read_elements(const std::string& name, std::int64_t first,
                                    const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  const std::size_t each = size_of(into.dtype()), begin = static_cast<std::size_t>(first) * each;
  if (from.dtype != safetensors_name_of(into.dtype()) || begin > from.bytes ||
      from.bytes - begin < into.bytes()) {
    throw DataError(concat(path(), ": tensor \"", name, "\" is ", from.dtype, " of ", from.bytes,
                           " bytes, want ", into.elements(), " ", name_of(into.dtype()),
                           " from element ", first, " on"));
  }
  file_.read_at(into.raw(), into.bytes(), from.offset + begin);
}

Tensor SafetensorsFile::load(const std::string& name, MemoryKind kind, const Stream& stream) const {
  const SafetensorsEntry& from = entry(name);
  const DType dtype = tensor_dtype_of(from.dtype).value_or(DType::kF32);
  const Tensor tensor = Tensor::empty(from.tensor_shape(), dtype, kind, stream);
  read(name, tensor);
  return tensor;
}

}  // namespace hybrid_trainer
