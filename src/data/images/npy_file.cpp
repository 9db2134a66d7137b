#include "src/data/images/npy_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/data/images/picture_formats.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLongestNpyHeader = 1 << 16, kMaxDimensions = 32;
constexpr std::int64_t kMaxNpyElements = std::int64_t{1} << 40;

constexpr const char* kWantedNumbers =
    "want numbers: u1, i1, i2, i4, i8, f2, f4 or f8; write it with array.astype('float32')";

float half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0x1F)
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
}

template <class T>
float value_of(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<float>(value);
}
float half_of(const unsigned char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return half_value(bits);
}

constexpr NpyNumber kNumbers[] = {
    {"b1", 1, value_of<std::uint8_t>}, {"u1", 1, value_of<std::uint8_t>},
    {"i1", 1, value_of<std::int8_t>},  {"u2", 2, value_of<std::uint16_t>},
    {"i2", 2, value_of<std::int16_t>}, {"u4", 4, value_of<std::uint32_t>},
    {"i4", 4, value_of<std::int32_t>}, {"u8", 8, value_of<std::uint64_t>},
    {"i8", 8, value_of<std::int64_t>}, {"f2", 2, half_of},
    {"f4", 4, value_of<float>},        {"f8", 8, value_of<double>}};

std::string quoted_piece(std::string_view piece) {
  std::string text(piece.substr(0, 40));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
  return "'" + text + "'";
}

/// Parses a header as Python writes it: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::filesystem::path& path)
      : rest_(text), path_(path) {}

  NpyForm read() {
    want('{');
    while (!takes('}')) {
      const std::string key = text();
      want(':');
      read_member(key);
      if (!takes(',')) {
        want('}');
        break;
      }
    }
    skip_spaces();
    if (!rest_.empty()) refuse("its header has text after its end");
    if (!has_number_) refuse("its header has no 'descr'");
    if (!has_order_) refuse("its header has no 'fortran_order'");
    if (!has_shape_) refuse("its header has no 'shape'");
    return form_;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError(concat(path_.native(), ": ", problem));
  }
  void skip_spaces() {
    const std::size_t next = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(next == rest_.npos ? rest_.size() : next);
  }
  bool takes(char wanted) {
    skip_spaces();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void want(char wanted) {
    if (takes(wanted)) return;
    const std::string found = rest_.empty() ? "the end" : quoted_piece(rest_.substr(0, 1));
    refuse(concat("its header is not a .npy header: got ", found, ", want \"", wanted, "\""));
  }
  std::string text() {
    skip_spaces();
    const char quote = rest_.starts_with('"') ? '"' : '\'';
    want(quote);
    const std::size_t end = rest_.find(quote);
    if (end == rest_.npos) refuse("a name in its header has no closing quote");
    std::string name(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return name;
  }
  bool takes_word(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void read_member(const std::string& key) {
    if (key == "descr") {
      read_number();
    } else if (key == "fortran_order") {
      form_.is_column_major = takes_word("True");
      if (!form_.is_column_major && !takes_word("False"))
        refuse("its 'fortran_order' is neither True nor False");
      has_order_ = true;
    } else if (key == "shape") {
      read_shape();
    } else {
      refuse(concat("its header has the key ", quoted_piece(key),
                    "; want only 'descr', 'fortran_order' and 'shape'"));
    }
  }

  void read_number() {
    skip_spaces();
    if (rest_.starts_with('[')) refuse(concat("contains records with fields; ", kWantedNumbers));
    const std::string code = text();
    const bool has_order =
        !code.empty() && std::string_view("<>|=").find(code.front()) != std::string_view::npos;
    const auto* const number = std::ranges::find(
        kNumbers, std::string_view(code).substr(has_order ? 1 : 0), &NpyNumber::code);
    if (code.starts_with("|O") || code == "O")
      refuse(concat("contains Python objects, which are not supported; ", kWantedNumbers));
    if (number == std::end(kNumbers) || !has_order)
      refuse(concat("contains ", quoted_piece(code), "; ", kWantedNumbers));
    form_.number = *number;
    form_.is_big_endian = code.front() == '>';
    has_number_ = true;
  }

  void read_shape() {
    want('(');
    form_.shape.clear();
    while (!takes(')')) {
      form_.shape.push_back(size());
      if (form_.shape.size() > kMaxDimensions)
        refuse(concat("has over ", kMaxDimensions, " dimensions"));
      if (!takes(',')) {
        want(')');
        break;
      }
    }
    has_shape_ = true;
  }
  std::int64_t size() {
    skip_spaces();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value < 0)
      refuse("its 'shape' has an element that is not a whole number of at least 0");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    takes_word("L");  // Python 2 wrote 3L
    return value;
  }

  std::string_view rest_;
  const std::filesystem::path& path_;
  NpyForm form_;
  bool has_number_ = false, has_order_ = false, has_shape_ = false;
};

std::optional<std::int64_t> counted(const std::vector<std::int64_t>& shape) {
  for (const std::int64_t size : shape)
    if (size == 0) return 0;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size > kMaxNpyElements / elements) return {};
    elements *= size;
  }
  return elements;
}

/// Reorders numbers from column-major to row-major order.
std::vector<float> row_major(const std::vector<float>& values,
                             const std::vector<std::int64_t>& shape) {
  std::vector<float> ordered(values.size());
  std::vector<std::int64_t> at(shape.size());
  for (float& to : ordered) {
    std::int64_t from = 0;
    for (std::size_t d = shape.size(); d-- > 0;) from = from * shape[d] + at[d];
    to = values[static_cast<std::size_t>(from)];
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return ordered;
}

}  // namespace

std::int64_t NpyForm::elements() const { return counted(shape).value_or(0); }

NpyForm npy_form_of(const InputFile& file) {
  const auto refuse = [&](const std::string& problem) {
    throw DataError(concat(file.path().native(), ": ", problem));
  };
  std::string start(std::min<std::size_t>(file.bytes(), 12), '\0');
  file.read_at(start.data(), start.size(), 0);
  if (!start.starts_with(kNpyMagic)) refuse_other_file(file, ".npy file");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(start[at]));
  };
  if (start.size() < 12)
    refuse("is truncated: its header ends after " + concat(start.size(), " bytes"));
  const std::size_t version = byte(6);
  if (version < 1 || version > 3)
    refuse(concat("is of version ", version, " of the format; want 1, 2 or 3"));
  const std::size_t text_at = version == 1 ? 10 : 12;
  const std::size_t length = version == 1
                                 ? byte(8) | byte(9) << 8
                                 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > kLongestNpyHeader)
    refuse(concat("its header has ", length, " bytes; want at most ", kLongestNpyHeader));
  if (text_at + length > file.bytes())
    refuse(concat("is truncated: its header has ", length, " bytes, but only ",
                  file.bytes() - text_at, " follow"));
  std::string text(length, '\0');
  file.read_at(text.data(), length, text_at);
  NpyForm form = NpyHeaderReader(text, file.path()).read();
  form.offset = text_at + length;
  const std::optional<std::int64_t> elements = counted(form.shape);
  const std::size_t room = (file.bytes() - form.offset) / form.number.bytes;
  if (!elements || static_cast<std::uint64_t>(*elements) > room)
    refuse(concat(
        "is truncated: its shape needs ",
        elements ? concat(*elements, " numbers") : std::string("more numbers than a file can hold"),
        ", but only ", room, " follow"));
  return form;
}

NpyForm read_npy_form(const FilePart& path) { return npy_form_of(InputFile(path)); }

NpyArray read_npy(const FilePart& path) {
  constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  const InputFile file(path);
  NpyArray array{npy_form_of(file), {}};
  const NpyForm& form = array.form;
  const std::size_t width = form.number.bytes;
  const auto count = static_cast<std::size_t>(form.elements());
  const bool turns = form.is_big_endian == (std::endian::native == std::endian::little);
  array.values.resize(count);
  std::vector<unsigned char> bytes(std::min(kBytesAtOnce, count * width));
  const std::size_t at_once = kBytesAtOnce / width;
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t some = std::min(at_once, count - first);
    file.read_at(bytes.data(), some * width, form.offset + first * width);
    for (std::size_t i = 0; i < some; ++i) {
      unsigned char* number = bytes.data() + i * width;
      if (turns) std::reverse(number, number + width);
      array.values[first + i] = form.number.value(number);
    }
  }
  if (form.is_column_major && form.shape.size() > 1)
    array.values = row_major(array.values, form.shape);
  return array;
}

}  // namespace hybrid_trainer
