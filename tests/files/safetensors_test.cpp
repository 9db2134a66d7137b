#include "src/files/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

Stream test_stream() { return Stream(MemoryPool::create("test")); }

template <class T>
Tensor tensor_of(const Shape& shape, const std::vector<T>& values, const Stream& stream) {
  const Tensor tensor = Tensor::empty(shape, DTypeOf<T>::value, MemoryKind::kParameters, stream);
  std::memcpy(tensor.raw(), values.data(), tensor.bytes());
  return tensor;
}

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string file_bytes(const std::string& header, const std::string& data) {
  return raw_bytes<std::uint64_t>({header.size()}) + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) {
    write_text(path_, bytes);
    return SafetensorsFile(path_);
  }
  std::string problem(const std::string& bytes) {
    const std::string message = message_of<DataError>([&] { open(bytes); });
    EXPECT_TRUE(contains(message, path_));
    return message;
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "t.safetensors";
  Stream stream_ = test_stream();
};

const std::string kGoldenHeader = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";
const std::string kGolden =
    std::string("\x38\0\0\0\0\0\0\0", 8) + kGoldenHeader + std::string("\0\0\x80\x3f\0\0\0\xc0", 8);

TEST_F(Safetensors, WritesSmallestFileByteForByte) {
  ASSERT_EQ(kGolden.size(), 72u);
  const FileDigest digest =
      write_safetensors(path_, {{"w", tensor_of<float>({2}, {1.0f, -2.0f}, stream_)}}, {});
  EXPECT_EQ(read_text(path_), kGolden);
  EXPECT_EQ(digest, (FileDigest{72, checksum_of(kGolden)}));
}

TEST_F(Safetensors, ReadsSmallestFile) {
  const SafetensorsFile file = open(kGolden);
  const Tensor tensor = file.load("w", MemoryKind::kParameters, stream_);
  EXPECT_EQ(tensor.shape(), (Shape{2}));
  EXPECT_EQ(tensor.data<float>()[0], 1.0f);
  EXPECT_EQ(tensor.data<float>()[1], -2.0f);
}

TEST_F(Safetensors, RoundTripsEveryDtypeAndEmptyTensors) {
  const std::vector<NamedTensor> tensors{
      {"a", tensor_of<std::uint8_t>({3}, {1, 2, 255}, stream_)},
      {"b", tensor_of<float>({1, 2, 1, 2}, {NAN, -0.0f, INFINITY, 1e-45f}, stream_)},
      {"c", tensor_of<BFloat16>({2}, {{0x7FC1}, {0x8000}}, stream_)},
      {"d", tensor_of<std::int32_t>({1}, {-7}, stream_)},
      {"e \"\xC3\xA4\n", tensor_of<std::uint16_t>({2}, {50256, 1}, stream_)},
      {"f", Tensor::empty({0, 5}, DType::kF32, MemoryKind::kParameters, stream_)}};
  write_safetensors(path_, tensors, {{"format", "pt"}, {"k", "v"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"k", "v"}}));
  for (const auto& [name, tensor] : tensors) {
    const Tensor back = file.load(name, MemoryKind::kParameters, stream_);
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_EQ(back.dtype(), tensor.dtype());
    EXPECT_EQ(file.entry(name).offset % size_of(tensor.dtype()), 0u) << name;
    const std::string_view got(static_cast<char*>(back.raw()), back.bytes());
    EXPECT_EQ(got, std::string_view(static_cast<char*>(tensor.raw()), tensor.bytes())) << name;
  }
}

TEST_F(Safetensors, TensorOrderDoesNotChangeBytes) {
  const NamedTensor a{"a", tensor_of<std::uint8_t>({1}, {1}, stream_)},
      b{"b", tensor_of<float>({1}, {2}, stream_)};
  const FileDigest first = write_safetensors(path_, {a, b});
  EXPECT_EQ(write_safetensors(path_, {b, a}), first);
}

TEST_F(Safetensors, LazyTensorsGiveSameBytes) {
  const NamedTensor a{"a", tensor_of<std::uint8_t>({1}, {1}, stream_)},
      b{"b", tensor_of<float>({1, 2}, {2, 3}, stream_)};
  const FileDigest whole = write_safetensors(path_, {a, b});
  const auto write = [&](const Shape& shape, DType dtype) {
    return write_safetensors(path_, {a}, {{"format", "pt"}}, {},
                             {{"b", shape, dtype, [&] { return b.tensor; }}});
  };
  EXPECT_EQ(write({1, 2}, DType::kF32), whole);
  EXPECT_TRUE(contains(message_of<Error>([&] { write({2}, DType::kF32); }),
                       "\"b\" was made as f32 (1, 2), want f32 (2)"));
  EXPECT_THROW(write({1, 2}, DType::kI32), Error);
}

TEST_F(Safetensors, CopiesTensorsOfAnyTypeFromOtherFiles) {
  const SafetensorsFile from =
      open(file_bytes(R"({"five":{"dtype":"F16","shape":[1,1,1,1,3],"data_offsets":[0,6]},)"
                      R"("eight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[6,8]},)"
                      R"("none":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                      R"("whole":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})",
                      "abcdefghijklmnop"));
  const std::string to = folder_ / "carried.safetensors";
  const std::map<std::string, std::string> names{
      {"five", "abcdef"}, {"eight", "gh"}, {"none", ""}, {"whole", "ijklmnop"}};
  std::vector<CopiedTensor> carried;
  for (const auto& [name, bytes] : names) carried.push_back({&from, name});
  write_safetensors(to, {{"own", tensor_of<float>({1}, {1}, stream_)}}, {}, carried);
  const SafetensorsFile file(to);
  EXPECT_EQ(file.entries().size(), 5u);
  EXPECT_EQ(file.entries().front().name, "whole") << "larger elements come first";
  EXPECT_EQ(file.load("own", MemoryKind::kParameters, stream_).data<float>()[0], 1);
  for (const auto& [name, wanted] : names) {
    std::string bytes(file.entry(name).bytes, '\0');
    file.read_bytes(name, 0, bytes.data(), bytes.size());
    EXPECT_EQ(bytes, wanted) << name;
    EXPECT_EQ(file.entry(name).dtype, from.entry(name).dtype);
    EXPECT_EQ(file.entry(name).shape, from.entry(name).shape);
  }
  carried.push_back(carried.front());
  EXPECT_THROW(write_safetensors(to, {}, {}, carried), Error) << "twice";
}

TEST_F(Safetensors, ConvertsDtypesOnReading) {
  const std::string header =
      R"({"f64":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"i64":{"dtype":"I64","shape":[],"data_offsets":[16,24]},)"
      R"("f16":{"dtype":"F16","shape":[5],"data_offsets":[24,34]},"bf16":{"dtype":"BF16","shape":[1],"data_offsets":[34,36]}})";
  const SafetensorsFile file = open(file_bytes(
      header, raw_bytes<double>({0.1, -3e38}) + raw_bytes<std::int64_t>({-50256}) +
                  raw_bytes<std::uint16_t>({0x3C00, 0xC000, 0x0001, 0x7C00, 0x7BFF, 0x3FC0})));
  const auto as_float = [&](const char* name, int i) {
    return file.load(name, MemoryKind::kParameters, stream_).data<float>()[i];
  };
  EXPECT_EQ(as_float("f64", 0), 0.1f);
  EXPECT_EQ(as_float("i64", 0), -50256.0f);
  const float expected[] = {1.0f, -2.0f, 0x1p-24f, INFINITY, 65504.0f};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(as_float("f16", i), expected[i]);

  const Tensor wide = tensor_of<float>({1}, {0}, stream_);
  file.read("bf16", wide);
  EXPECT_EQ(wide.data<float>()[0], 1.5f);
  const Tensor narrow = tensor_of<BFloat16>({2}, {{0}, {0}}, stream_);
  file.read("f64", narrow);
  EXPECT_EQ(narrow.data<BFloat16>()[0].bits, to_bfloat16(0.1f).bits);
  const Tensor whole = tensor_of<std::int32_t>({1}, {0}, stream_);
  file.read("i64", whole);
  EXPECT_EQ(whole.data<std::int32_t>()[0], -50256);
}

TEST_F(Safetensors, RejectsWrongShapeDtypeOrName) {
  const SafetensorsFile file = open(kGolden);
  const Tensor longer = tensor_of<float>({3}, {0, 0, 0}, stream_);
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { file.read("w", longer); }), "has shape (2), want (3)"));
  const Tensor other = tensor_of<std::int32_t>({2}, {0, 0}, stream_);
  EXPECT_TRUE(contains(message_of<DataError>([&] { file.read("w", other); }), "dtype F32"));
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { file.read("W", longer); }), "has no tensor \"W\""));
}

TEST_F(Safetensors, RejectsIntegerOverflow) {
  const SafetensorsFile file =
      open(file_bytes(R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
                      raw_bytes<std::int64_t>({std::int64_t{1} << 31})));
  const Tensor whole = tensor_of<std::int32_t>({1}, {0}, stream_);
  EXPECT_TRUE(contains(message_of<DataError>([&] { file.read("i", whole); }), "cannot represent"));
}

TEST_F(Safetensors, RejectsDamagedFraming) {
  EXPECT_TRUE(contains(problem(""), "at least 8"));
  EXPECT_TRUE(contains(problem("1234567"), "at least 8"));
  EXPECT_TRUE(contains(problem(raw_bytes<std::uint64_t>({~0ull}) + "{}"), "at most 100000000"));
  EXPECT_TRUE(contains(problem(raw_bytes<std::uint64_t>({std::uint64_t{1} << 63}) + "{}"),
                       "at most 100000000"));
  EXPECT_TRUE(contains(problem(raw_bytes<std::uint64_t>({3}) + "{}"), "truncated"));
  EXPECT_TRUE(contains(problem(kGolden.substr(0, 71)), "truncated"));
  EXPECT_TRUE(contains(problem(kGolden + "x"), "trailing bytes"));
  EXPECT_TRUE(contains(problem("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  for (std::size_t length = 0; length < kGolden.size(); ++length)
    problem(kGolden.substr(0, length));
}

struct BadHeader {
  const char* header;
  const char* message;
};

TEST_F(Safetensors, RejectsInvalidHeaders) {
  const BadHeader table[] = {
      {"[]", "not a JSON object"},
      {"\xff\xfe", "not valid JSON"},
      {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "not valid JSON"},
      {"{\"w\"", "not valid JSON"},
      {R"({"w":1})", "want an object"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", "has no dtype"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", "has no list shape"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", "has no list data_offsets"},
      {R"({"w":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}})", "unknown dtype \"f32\""},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "unknown key x"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "more than 2"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", "not have two numbers"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "end before they begin"},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "whole numbers from 0"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "whole numbers from 0"},
      {R"({"w":{"dtype":"F32","shape":[281474976710656],"data_offsets":[0,8]}})",
       "whole numbers from 0"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})",
       "whole numbers from 0"},
      {R"({"w":{"dtype":"F32","shape":[281474976710655,281474976710655],"data_offsets":[0,8]}})",
       "overflow"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "need 12"},
      {R"({"w":{"dtype":"F4","shape":[1],"data_offsets":[0,8]}})", "whole bytes"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gaps and overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "gaps and overlaps"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "gaps and overlaps"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "twice"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "trailing bytes"},
      {R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "truncated"},
      {R"({})", "trailing bytes"},
      {R"({"__metadata__":{"a":1},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "only strings"},
      {R"({"__metadata__":[],"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "not an object"},
      {R"({"w":{"dtype":[[[[[]]]]],"shape":[2],"data_offsets":[0,8]}})", "not valid JSON"},
  };
  for (const auto& [header, message] : table) {
    EXPECT_TRUE(contains(problem(file_bytes(header, std::string(8, '\0'))), message)) << header;
  }
  problem(file_bytes(std::string("{}\0", 3), ""));
}

TEST_F(Safetensors, MutatedHeadersStayInBounds) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})";
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string mutated = header;
    for (int edits = 0; edits < 1 + i % 4; ++edits) {
      const std::size_t at = random() % mutated.size(), from = random() % mutated.size();
      if (i % 3 == 0) mutated[at] = static_cast<char>(random());
      if (i % 3 == 1) mutated.insert(at, mutated.substr(from, random() % 20));
      if (i % 3 == 2) mutated.erase(at, random() % 8);
      if (mutated.empty()) mutated.push_back('{');
    }
    try {
      const SafetensorsHeader parsed = parse_safetensors_header(mutated, "mutated", 8, 8);
      for (const SafetensorsEntry& entry : parsed.entries)
        EXPECT_LE(entry.offset + entry.bytes, 16u);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST_F(Safetensors, AcceptsWhitespaceAndUnsupportedDtypes) {
  EXPECT_EQ(open(file_bytes(" \n" + kGoldenHeader + "\n", std::string(8, '\0'))).entries().size(),
            1u);
  const SafetensorsFile file =
      open(file_bytes(R"({"w":{"dtype":"BOOL","shape":[1,1,1,1,1,1],"data_offsets":[0,1]}})", "x"));
  EXPECT_TRUE(contains(message_of<DataError>([&] { file.load("w", MemoryKind::kData, stream_); }),
                       "6 dimensions"));
}

TEST_F(Safetensors, RejectsMissingFileAndFolder) {
  EXPECT_TRUE(contains(message_of<MissingInput>([] { SafetensorsFile("absent.safetensors"); }),
                       "absent.safetensors"));
  EXPECT_THROW(SafetensorsFile{folder_.path()}, DataError);
}

TEST_F(Safetensors, RejectsDuplicateNamesAndUnallocatedTensors) {
  const Tensor tensor = tensor_of<float>({1}, {0}, stream_);
  EXPECT_THROW(write_safetensors(path_, {{"a", tensor}, {"a", tensor}}), Error);
  EXPECT_THROW(write_safetensors(path_, {{"a", Tensor()}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Safetensors, FailedWriteLeavesFolderUnchanged) {
  write_text(path_, kGolden);
  EXPECT_THROW(write_safetensors("/dev/full/x", {}), IoError);
  std::filesystem::create_directory(folder_ / "taken");
  EXPECT_THROW(write_safetensors(folder_ / "taken", {{"a", tensor_of<float>({1}, {0}, stream_)}}),
               IoError);
  EXPECT_EQ(read_text(path_), kGolden);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(Safetensors, ReadsLargeTensorsInChunks) {
  const std::int64_t count = 3'000'001;
  const Tensor source = Tensor::empty({count}, DType::kF32, MemoryKind::kParameters, stream_);
  for (std::int64_t i = 0; i < count; ++i) source.data<float>()[i] = static_cast<float>(i);
  write_safetensors(path_, {{"w", source}});
  const Tensor rounded = Tensor::empty({count}, DType::kBF16, MemoryKind::kParameters, stream_);
  SafetensorsFile(path_).read("w", rounded);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    wrong += rounded.data<BFloat16>()[i].bits != to_bfloat16(static_cast<float>(i)).bits;
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hybrid_trainer
