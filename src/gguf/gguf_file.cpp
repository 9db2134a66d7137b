#include "src/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>

#include "src/core/narrow.h"
#include "src/files/text.h"
#include "src/gguf/block_formats.h"

namespace hybrid_trainer {

namespace {

struct TypeRow {
  GgufType type;
  const char* name;
  GgufBlock block;
};

constexpr TypeRow kTypes[] = {
    {GgufType::kF32, "f32", {1, 4}},       {GgufType::kF16, "f16", {1, 2}},
    {GgufType::kBF16, "bf16", {1, 2}},     {GgufType::kQ4_0, "q4_0", {32, 18}},
    {GgufType::kQ4_1, "q4_1", {32, 20}},   {GgufType::kQ5_0, "q5_0", {32, 22}},
    {GgufType::kQ5_1, "q5_1", {32, 24}},   {GgufType::kQ8_0, "q8_0", {32, 34}},
    {GgufType::kQ4_K, "q4_K", {256, 144}}, {GgufType::kQ5_K, "q5_K", {256, 176}},
    {GgufType::kQ6_K, "q6_K", {256, 210}}, {GgufType::kMXFP4, "mxfp4", {32, 17}}};

/// Unsupported ggml types, by code.
constexpr std::pair<std::uint32_t, const char*> kOtherTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"}, {40, "NVFP4"},  {41, "Q1_0"}};

const TypeRow* find_type(std::uint32_t number) {
  const auto* found = std::ranges::find_if(
      kTypes, [&](const TypeRow& row) { return narrow<std::uint32_t>(row.type) == number; });
  return found == std::end(kTypes) ? nullptr : found;
}

const TypeRow& row_of(GgufType type) { return *find_type(narrow<std::uint32_t>(type)); }

[[noreturn]] void refuse_kind(const GgufFile& file, const std::string& key, const char* wanted) {
  throw DataError(concat(file.path().string(), ": the value ", key, " is not a ", wanted,
                         "; convert the model again"));
}

template <class T>
std::optional<T> plain_value(const GgufFile& file, const std::string& key, const char* wanted) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return {};
  if (const T* found = std::get_if<T>(&value->content)) return *found;
  refuse_kind(file, key, wanted);
}

template <class T>
std::vector<T> array_value(const GgufFile& file, const std::string& key, const char* wanted) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return {};
  if (const auto* found = std::get_if<std::vector<T>>(&value->content)) return *found;
  refuse_kind(file, key, wanted);
}

/// Reads a GGUF file's header, never beyond the file's end. Throws DataError for contents that
/// would be outside.
class GgufHeaderReader {
 public:
  explicit GgufHeaderReader(const InputFile& file) : file_(file) {}

  std::size_t at() const { return at_; }
  void read(void* to, std::size_t bytes, const char* what);
  template <class T>
  T number(const char* what) {
    T value{};
    read(&value, sizeof(T), what);
    return value;
  }
  std::string text(std::size_t most, const char* what);
  /// Reads a count of elements of at least `least` bytes each.
  std::uint64_t count(std::size_t least, const char* what);
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file_.path().string(), ": ", parts...));
  }

 private:
  std::size_t left() const { return file_.bytes() - at_; }
  void fill(std::size_t bytes);
  const InputFile& file_;
  std::size_t at_ = 0, begin_ = 0;
  std::string buffer_;
};

void GgufHeaderReader::read(void* to, std::size_t bytes, const char* what) {
  if (bytes > left())
    fail("ends inside ", what, ", at byte ", at_, " of ", file_.bytes(), "; copy the file again");
  if (at_ < begin_ || at_ + bytes > begin_ + buffer_.size()) fill(bytes);
  std::memcpy(to, buffer_.data() + (at_ - begin_), bytes);
  at_ += bytes;
}

std::string GgufHeaderReader::text(std::size_t most, const char* what) {
  const auto bytes = number<std::uint64_t>(what);
  if (bytes > most || bytes > left())
    fail("has ", what, " of ", bytes, " bytes, but only ", left(), " bytes remain; copy it again");
  std::string value(bytes, '\0');
  read(value.data(), bytes, what);
  if (valid_utf8_bytes(value, 0) != value.size())
    fail("has ", what, " before byte ", at_, " that is not UTF-8; convert the model again");
  return value;
}

std::uint64_t GgufHeaderReader::count(std::size_t least, const char* what) {
  const auto value = number<std::uint64_t>(what);
  if (value > left() / least)
    fail("declares ", value, " ", what, ", more than its ", file_.bytes(),
         " bytes can hold; copy the file again");
  return value;
}

void GgufHeaderReader::fill(std::size_t bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  begin_ = at_;
  buffer_.resize(std::min(std::max(bytes, kChunk), left()));
  file_.read_at(buffer_.data(), buffer_.size(), begin_);
}

constexpr std::size_t kLongestText = std::size_t{1} << 28;

/// Calls f(stored, wide) with a value of the kind's type and a value of the widest type that
/// replaces it. Returns false for kinds that are not numbers or Booleans.
template <class F>
bool visit_kind(GgufKind kind, const F& f) {
  switch (kind) {
    case GgufKind::kU8: f(std::uint8_t{}, std::uint64_t{}); return true;
    case GgufKind::kU16: f(std::uint16_t{}, std::uint64_t{}); return true;
    case GgufKind::kU32: f(std::uint32_t{}, std::uint64_t{}); return true;
    case GgufKind::kU64: f(std::uint64_t{}, std::uint64_t{}); return true;
    case GgufKind::kI8: f(std::int8_t{}, std::int64_t{}); return true;
    case GgufKind::kI16: f(std::int16_t{}, std::int64_t{}); return true;
    case GgufKind::kI32: f(std::int32_t{}, std::int64_t{}); return true;
    case GgufKind::kI64: f(std::int64_t{}, std::int64_t{}); return true;
    case GgufKind::kF32: f(float{}, double{}); return true;
    case GgufKind::kF64: f(double{}, double{}); return true;
    case GgufKind::kBool: f(std::uint8_t{}, bool{}); return true;
    default: return false;
  }
}

GgufValue::Content read_array(GgufHeaderReader& reader, GgufKind kind, const std::string& key) {
  GgufValue::Content content;
  if (kind == GgufKind::kString) {
    std::vector<std::string> texts(reader.count(8, "elements of an array"));
    for (std::string& text : texts) text = reader.text(kLongestText, "a string");
    return texts;
  }
  const bool is_known = visit_kind(kind, [&](auto stored, auto wide) {
    std::vector<decltype(wide)> values(reader.count(sizeof(stored), "elements of an array"));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] =
          static_cast<decltype(wide)>(reader.number<decltype(stored)>("the elements of an array"));
    content = std::move(values);
  });
  if (!is_known)
    reader.fail("the value ", key, " is an array of kind ", narrow<std::uint32_t>(kind),
                ", which is not supported");
  return content;
}

GgufValue read_gguf_value(GgufHeaderReader& reader, const std::string& key) {
  GgufValue value{.kind =
                      static_cast<GgufKind>(reader.number<std::uint32_t>("the kind of a value"))};
  if (value.kind == GgufKind::kArray) {
    value.kind = static_cast<GgufKind>(reader.number<std::uint32_t>("the kind of an array"));
    value.content = read_array(reader, value.kind, key);
    return value;
  }
  if (value.kind == GgufKind::kString) {
    value.content = reader.text(kLongestText, "a string");
    return value;
  }
  const bool is_known = visit_kind(value.kind, [&](auto stored, auto wide) {
    value.content = static_cast<decltype(wide)>(reader.number<decltype(stored)>("a value"));
  });
  if (!is_known)
    reader.fail("the value ", key, " is of kind ", narrow<std::uint32_t>(value.kind),
                ", which GGUF does not define; copy the file again");
  return value;
}

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kLongestName = 65535;
constexpr std::uint32_t kMaxDimensions = 4;

GgufTensor read_tensor(GgufHeaderReader& reader) {
  GgufTensor tensor{.name = reader.text(kLongestName, "the name of a tensor")};
  const auto dimensions = reader.number<std::uint32_t>("the dimensions of a tensor");
  if (dimensions == 0 || dimensions > kMaxDimensions)
    reader.fail("the tensor ", tensor.name, " has ", dimensions, " dimensions; want 1 to ",
                kMaxDimensions);
  std::vector<std::int64_t> sizes(dimensions);  // columns first
  std::int64_t elements = 1;
  for (std::int64_t& size : sizes) {
    const auto value = reader.number<std::uint64_t>("the shape of a tensor");
    constexpr std::int64_t kMax = std::int64_t{1} << 48;
    if (value == 0 || value > static_cast<std::uint64_t>(kMax / elements))
      reader.fail("the tensor ", tensor.name, " has a dimension of ", value,
                  "; copy the file again");
    size = static_cast<std::int64_t>(value);
    elements *= size;
  }
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) tensor.shape.append(*size);
  const auto type = reader.number<std::uint32_t>("the type of a tensor");
  const std::optional<GgufType> known = gguf_type_of(type);
  if (!known)
    reader.fail("the tensor ", tensor.name, " has the ggml type ", unread_gguf_type(type),
                ", which is not supported; want one of ", gguf_types_text(),
                "; use a file of the model with one of these types, or convert it: llama-quantize "
                "--allow-requantize ",
                "THIS.gguf OTHER.gguf q8_0");
  tensor.type = *known;
  const std::int64_t elements_of_block = block_of(*known).elements;
  if (sizes.front() % elements_of_block != 0)
    reader.fail("the tensor ", tensor.name, " has ", sizes.front(), " columns, but blocks of ",
                name_of(*known), " have ", elements_of_block);
  tensor.offset = reader.number<std::uint64_t>("the offset of a tensor");
  return tensor;
}

std::size_t alignment_of(const GgufHeaderReader& reader,
                         const std::map<std::string, GgufValue>& values) {
  const auto found = values.find("general.alignment");
  if (found == values.end()) return 32;
  const auto* given = std::get_if<std::uint64_t>(&found->second.content);
  if (given == nullptr || *given == 0 || *given > (1 << 20) || (*given & (*given - 1)) != 0)
    reader.fail("general.alignment is not a power of two");
  return *given;
}

}  // namespace

const char* name_of(GgufType type) { return row_of(type).name; }

GgufBlock block_of(GgufType type) { return row_of(type).block; }

std::optional<GgufType> gguf_type_of(std::uint32_t number) {
  const TypeRow* row = find_type(number);
  return row == nullptr ? std::nullopt : std::optional(row->type);
}

std::string unread_gguf_type(std::uint32_t number) {
  for (const auto& [known, name] : kOtherTypes)
    if (known == number) return name;
  return concat("number ", number);
}

std::string gguf_types_text() {
  std::string names;
  for (const TypeRow& known : kTypes) names += concat(names.empty() ? "" : ", ", known.name);
  return names;
}

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  return plain_value<std::string>(*this, key, "text");
}

std::optional<bool> GgufFile::flag(const std::string& key) const {
  return plain_value<bool>(*this, key, "flag");
}

std::optional<std::int64_t> GgufFile::count(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (const auto* whole = std::get_if<std::int64_t>(&value->content)) return *whole;
  const auto* positive = std::get_if<std::uint64_t>(&value->content);
  if (positive == nullptr) refuse_kind(*this, key, "whole number");
  return narrow<std::int64_t>(*positive, concat(path().string(), ": ", key));
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && std::holds_alternative<double>(value->content))
    return std::get<double>(value->content);
  const std::optional<std::int64_t> whole = count(key);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  return array_value<std::string>(*this, key, "list of strings");
}

std::vector<double> GgufFile::numbers(const std::string& key) const {
  return array_value<double>(*this, key, "list of numbers");
}

std::vector<bool> GgufFile::flags(const std::string& key) const {
  return array_value<bool>(*this, key, "list of booleans");
}

std::vector<std::int64_t> GgufFile::counts(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !std::holds_alternative<std::vector<std::uint64_t>>(value->content))
    return array_value<std::int64_t>(*this, key, "list of whole numbers");
  std::vector<std::int64_t> counts;
  for (const std::uint64_t one : std::get<std::vector<std::uint64_t>>(value->content))
    counts.push_back(narrow<std::int64_t>(one, concat(path().string(), ": an element of ", key)));
  return counts;
}

std::size_t GgufTensor::bytes() const {
  const GgufBlock block = block_of(type);
  return static_cast<std::size_t>(shape.elements() / block.elements) * block.bytes;
}

GgufTensor GgufTensor::element(std::int64_t index) const {
  GgufTensor found{.name = name, .type = type};
  for (int i = 1; i < shape.rank(); ++i) found.shape.append(shape[i]);
  found.offset = offset + static_cast<std::size_t>(index) * found.bytes();
  return found;
}

bool GgufFile::is_one(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  const InputFile file(path);
  std::array<char, 4> begin{};
  if (file.bytes() < begin.size()) return false;
  file.read_at(begin.data(), begin.size(), 0);
  return std::string_view(begin.data(), begin.size()) == kMagic;
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  GgufHeaderReader reader(file_);
  std::array<char, 4> magic{};
  reader.read(magic.data(), magic.size(), "its first four bytes");
  if (std::string_view(magic.data(), magic.size()) != kMagic)
    reader.fail("is not a GGUF file: it does not begin with \"GGUF\"");
  const auto version = reader.number<std::uint32_t>("its version");
  if (version != kVersion)
    reader.fail(
        "has version ",
        version > 0xffff ? concat(version, ", written with the other byte order") : concat(version),
        "; only version 3 is supported: convert the model again with a llama.cpp of 2024 or later");
  const auto tensors = reader.count(24, "tensors"), pairs = reader.count(12, "values");
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const std::string key = reader.text(kLongestName, "a key");
    if (!values_.emplace(key, read_gguf_value(reader, key)).second)
      reader.fail("has the key ", key, " twice");
  }
  for (std::uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(read_tensor(reader));
    if (!places_.emplace(tensors_.back().name, tensors_.size() - 1).second)
      reader.fail("has the tensor ", tensors_.back().name, " twice");
  }
  const std::size_t alignment = alignment_of(reader, values_);
  const std::size_t begin = (reader.at() + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : tensors_) {
    const bool is_aligned = tensor.offset % alignment == 0;
    const std::size_t room = begin > file_.bytes() ? 0 : file_.bytes() - begin;
    if (!is_aligned || tensor.offset > room || tensor.bytes() > room - tensor.offset)
      reader.fail("the tensor ", tensor.name, " has ", tensor.bytes(), " bytes at byte ",
                  tensor.offset, " of the data, but the file has ", room,
                  " bytes of data; copy the file again");
    tensor.offset += begin;
  }
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(const std::string& name) const {
  if (const GgufTensor* found = find_tensor(name)) return *found;
  throw DataError(concat(path().string(), ": has no tensor ", name));
}

Tensor GgufFile::values_of(const GgufTensor& tensor) const {
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(tensor.shape, DType::kF32, MemoryKind::kWorkspace, host);
  std::vector<std::byte> bytes(tensor.bytes());
  file_.read_at(bytes.data(), bytes.size(), tensor.offset);
  decode_blocks(tensor.type, bytes.data(),
                {values.data<float>(), static_cast<std::size_t>(values.elements())});
  return values;
}

}  // namespace hybrid_trainer
