#include "hybrid_trainer/gguf/gguf_file.h"

#include <array>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/gguf/block_formats.h"
#include "src/gguf/gguf_header_reader.h"

namespace hybrid_trainer {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kLongestName = 65535;
constexpr std::uint32_t kMostDimensions = 4;

GgufTensor read_tensor(GgufHeaderReader& reader) {
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
    reader.fail("the tensor ", tensor.name, " is of ggml's type ", unread_gguf_type(type),
                ", which is not read here; want one of ", gguf_types_text(),
                "; take such a file of the model, or make one: llama-quantize --allow-requantize ",
                "THIS.gguf OTHER.gguf q8_0");
  tensor.type = *known;
  const std::int64_t elements_of_block = block_of(*known).elements;
  if (sizes.front() % elements_of_block != 0)
    reader.fail("the tensor ", tensor.name, " has ", sizes.front(), " columns, and blocks of ",
                name_of(*known), " hold ", elements_of_block);
  tensor.offset = reader.number<std::uint64_t>("the offset of a tensor");
  return tensor;
}

std::size_t alignment_of(const GgufHeaderReader& reader,
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
  GgufHeaderReader reader(file);
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
    const std::size_t room = begin > file.bytes() ? 0 : file.bytes() - begin;
    if (!is_aligned || tensor.offset > room || tensor.bytes() > room - tensor.offset)
      reader.fail("the tensor ", tensor.name, " lies at byte ", tensor.offset, " of the data with ",
                  tensor.bytes(), " bytes, and the file has ", room,
                  " bytes of data; copy the file anew");
    tensor.offset += begin;
  }
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
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
