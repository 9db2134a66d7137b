#include "hybrid_trainer/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/gguf/block_formats.h"

namespace hybrid_trainer {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kLongestName = 65535;
constexpr std::size_t kLongestText = std::size_t{1} << 28;
constexpr std::uint32_t kMostDimensions = 4;

/// Reads a header from the start of a file, and never behind its end.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.bytes() - at_; }

  void read(void* to, std::size_t bytes, const char* what) {
    if (bytes > left())
      fail("ends within ", what, ", at byte ", at_, " of ", file_.bytes(), "; copy the file anew");
    if (at_ < begin_ || at_ + bytes > begin_ + buffer_.size()) fill(bytes);
    std::memcpy(to, buffer_.data() + (at_ - begin_), bytes);
    at_ += bytes;
  }
  template <class T>
  T number(const char* what) {
    T value{};
    read(&value, sizeof(T), what);
    return value;
  }
  std::string text(std::size_t most, const char* what) {
    const auto bytes = number<std::uint64_t>(what);
    if (bytes > most || bytes > left())
      fail("has ", what, " of ", bytes, " bytes, and ", left(), " bytes are left; copy it anew");
    std::string value(bytes, '\0');
    read(value.data(), bytes, what);
    return value;
  }
  /// Of so many elements that take so many bytes each at least.
  std::uint64_t count(std::size_t least, const char* what) {
    const auto value = number<std::uint64_t>(what);
    if (value > left() / least)
      fail("tells of ", value, " ", what, ", more than its ", file_.bytes(),
           " bytes can hold; copy the file anew");
    return value;
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file_.path().string(), ": ", parts...));
  }

 private:
  void fill(std::size_t bytes) {
    constexpr std::size_t kChunk = std::size_t{1} << 20;
    begin_ = at_;
    buffer_.resize(std::min(std::max(bytes, kChunk), left()));
    file_.read_at(buffer_.data(), buffer_.size(), begin_);
  }
  const InputFile& file_;
  std::size_t at_ = 0, begin_ = 0;
  std::string buffer_;
};

/// Calls f with a number of the kind's type and of the widest of its sort; not for texts and arrays.
template <class F>
bool visit_kind(GgufKind kind, const F& f) {
  switch (kind) {
    case GgufKind::kU8:
      f(std::uint8_t{}, std::uint64_t{});
      return true;
    case GgufKind::kU16:
      f(std::uint16_t{}, std::uint64_t{});
      return true;
    case GgufKind::kU32:
      f(std::uint32_t{}, std::uint64_t{});
      return true;
    case GgufKind::kU64:
      f(std::uint64_t{}, std::uint64_t{});
      return true;
    case GgufKind::kI8:
      f(std::int8_t{}, std::int64_t{});
      return true;
    case GgufKind::kI16:
      f(std::int16_t{}, std::int64_t{});
      return true;
    case GgufKind::kI32:
      f(std::int32_t{}, std::int64_t{});
      return true;
    case GgufKind::kI64:
      f(std::int64_t{}, std::int64_t{});
      return true;
    case GgufKind::kF32:
      f(float{}, double{});
      return true;
    case GgufKind::kF64:
      f(double{}, double{});
      return true;
    case GgufKind::kBool:
      f(std::uint8_t{}, bool{});
      return true;
    default:
      return false;
  }
}

GgufValue::Content read_array(HeaderReader& reader, GgufKind kind, const std::string& key) {
  GgufValue::Content content;
  if (kind == GgufKind::kString) {
    std::vector<std::string> texts(reader.count(8, "elements of an array"));
    for (std::string& text : texts) text = reader.text(kLongestText, "a text");
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
    reader.fail("the value ", key, " is an array of kind ", static_cast<std::uint32_t>(kind),
                ", which is not read here");
  return content;
}

GgufValue read_value(HeaderReader& reader, const std::string& key) {
  GgufValue value{.kind =
                      static_cast<GgufKind>(reader.number<std::uint32_t>("the kind of a value"))};
  if (value.kind == GgufKind::kArray) {
    value.kind = static_cast<GgufKind>(reader.number<std::uint32_t>("the kind of an array"));
    value.content = read_array(reader, value.kind, key);
    return value;
  }
  if (value.kind == GgufKind::kString) {
    value.content = reader.text(kLongestText, "a text");
    return value;
  }
  const bool is_known = visit_kind(value.kind, [&](auto stored, auto wide) {
    value.content = static_cast<decltype(wide)>(reader.number<decltype(stored)>("a value"));
  });
  if (!is_known)
    reader.fail("the value ", key, " is of kind ", static_cast<std::uint32_t>(value.kind),
                ", which no version of GGUF has; copy the file anew");
  return value;
}

GgufTensor read_tensor(HeaderReader& reader) {
  GgufTensor tensor{.name = reader.text(kLongestName, "the name of a tensor")};
  const auto dimensions = reader.number<std::uint32_t>("the dimensions of a tensor");
  if (dimensions == 0 || dimensions > kMostDimensions)
    reader.fail("the tensor ", tensor.name, " has ", dimensions, " dimensions; want 1 to ",
                kMostDimensions);
  std::vector<std::int64_t> sizes(dimensions);  // columns first
  std::int64_t elements = 1;
  for (std::int64_t& size : sizes) {
    const auto value = reader.number<std::uint64_t>("the shape of a tensor");
    constexpr std::int64_t kMost = std::int64_t{1} << 48;
    if (value == 0 || value > static_cast<std::uint64_t>(kMost / elements))
      reader.fail("the tensor ", tensor.name, " has a dimension of ", value,
                  "; copy the file anew");
    size = static_cast<std::int64_t>(value);
    elements *= size;
  }
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) tensor.shape.append(*size);
  const auto type = reader.number<std::uint32_t>("the type of a tensor");
  const std::optional<GgufType> known = gguf_type_of(type);
  if (!known)
    reader.fail("the tensor ", tensor.name, " is of ggml's type ", type,
                ", which is not read here; want one of ", gguf_types_text());
  tensor.type = *known;
  const std::int64_t elements_of_block = block_of(*known).elements;
  if (sizes.front() % elements_of_block != 0)
    reader.fail("the tensor ", tensor.name, " has ", sizes.front(), " columns, and blocks of ",
                name_of(*known), " hold ", elements_of_block);
  tensor.offset = reader.number<std::uint64_t>("the offset of a tensor");
  return tensor;
}

std::size_t alignment_of(const HeaderReader& reader,
                         const std::map<std::string, GgufValue>& values) {
  const auto found = values.find("general.alignment");
  if (found == values.end()) return 32;
  const auto* given = std::get_if<std::uint64_t>(&found->second.content);
  if (given == nullptr || *given == 0 || *given > (1 << 20) || (*given & (*given - 1)) != 0)
    reader.fail("general.alignment is no power of two");
  return *given;
}

}  // namespace

std::size_t GgufTensor::bytes() const {
  const GgufBlock block = block_of(type);
  return static_cast<std::size_t>(shape.elements() / block.elements) * block.bytes;
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

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path) {
  const InputFile file(path);
  HeaderReader reader(file);
  std::array<char, 4> magic{};
  reader.read(magic.data(), magic.size(), "its first four bytes");
  if (std::string_view(magic.data(), magic.size()) != kMagic)
    reader.fail("is no GGUF file: it does not begin with \"GGUF\"");
  const auto version = reader.number<std::uint32_t>("its version");
  if (version != kVersion)
    reader.fail(
        "is of version ",
        version > 0xffff ? concat(version, ", so of a machine with the other byte order")
                         : concat(version),
        "; only version 3 is read: convert the model anew with a llama.cpp of 2024 or later");
  const auto tensors = reader.count(24, "tensors"), pairs = reader.count(12, "values");
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const std::string key = reader.text(kLongestName, "a key");
    if (!values_.emplace(key, read_value(reader, key)).second)
      reader.fail("has the key ", key, " twice");
  }
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(read_tensor(reader));
    if (!names.insert(tensors_.back().name).second)
      reader.fail("has the tensor ", tensors_.back().name, " twice");
  }
  const std::size_t alignment = alignment_of(reader, values_);
  const std::size_t begin = (reader.at() + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : tensors_) {
    const bool is_aligned = tensor.offset % alignment == 0;
    const std::size_t room = begin > file.bytes() ? 0 : file.bytes() - begin;
    if (!is_aligned || tensor.offset > room || tensor.bytes() > room - tensor.offset)
      reader.fail("the tensor ", tensor.name, " lies at byte ", tensor.offset, " of the data with ",
                  tensor.bytes(), " bytes, and the file has ", room,
                  " bytes of data; copy the file anew");
    tensor.offset += begin;
  }
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

const GgufTensor& GgufFile::tensor(const std::string& name) const {
  if (const GgufTensor* found = find_tensor(name)) return *found;
  throw DataError(concat(path_.string(), ": holds no tensor ", name));
}

Tensor GgufFile::values_of(const GgufTensor& tensor) const {
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(tensor.shape, DType::kF32, MemoryKind::kWorkspace, host);
  std::vector<std::byte> bytes(tensor.bytes());
  InputFile(path_).read_at(bytes.data(), bytes.size(), tensor.offset);
  decode_blocks(tensor.type, bytes.data(),
                {values.data<float>(), static_cast<std::size_t>(values.elements())});
  return values;
}

}  // namespace hybrid_trainer
