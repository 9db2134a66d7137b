#include "src/gguf/gguf_header_reader.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

void GgufHeaderReader::read(void* to, std::size_t bytes, const char* what) {
  if (bytes > left())
    fail("ends within ", what, ", at byte ", at_, " of ", file_.bytes(), "; copy the file anew");
  if (at_ < begin_ || at_ + bytes > begin_ + buffer_.size()) fill(bytes);
  std::memcpy(to, buffer_.data() + (at_ - begin_), bytes);
  at_ += bytes;
}

std::string GgufHeaderReader::text(std::size_t most, const char* what) {
  const auto bytes = number<std::uint64_t>(what);
  if (bytes > most || bytes > left())
    fail("has ", what, " of ", bytes, " bytes, and ", left(), " bytes are left; copy it anew");
  std::string value(bytes, '\0');
  read(value.data(), bytes, what);
  if (valid_utf8_bytes(value, 0) != value.size())
    fail("has ", what, " before byte ", at_, " that is not UTF-8; convert the model anew");
  return value;
}

std::uint64_t GgufHeaderReader::count(std::size_t least, const char* what) {
  const auto value = number<std::uint64_t>(what);
  if (value > left() / least)
    fail("tells of ", value, " ", what, ", more than its ", file_.bytes(),
         " bytes can hold; copy the file anew");
  return value;
}

void GgufHeaderReader::fill(std::size_t bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  begin_ = at_;
  buffer_.resize(std::min(std::max(bytes, kChunk), left()));
  file_.read_at(buffer_.data(), buffer_.size(), begin_);
}

namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 28;

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

GgufValue::Content read_array(GgufHeaderReader& reader, GgufKind kind, const std::string& key) {
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
    reader.fail("the value ", key, " is an array of kind ", narrow<std::uint32_t>(kind),
                ", which is not read here");
  return content;
}

}  // namespace

GgufValue read_gguf_value(GgufHeaderReader& reader, const std::string& key) {
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
    reader.fail("the value ", key, " is of kind ", narrow<std::uint32_t>(value.kind),
                ", which no version of GGUF has; copy the file anew");
  return value;
}

}  // namespace hybrid_trainer
