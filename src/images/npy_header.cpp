#include "src/images/npy_header.h"

#include <charconv>
#include <map>
#include <optional>
#include <string>

#include "hybrid_trainer/core/error.h"
#include "src/images/other_files.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kLongestNpyHeader = 1 << 16, kMostDimensions = 32;
constexpr std::int64_t kMostNpyElements = std::int64_t{1} << 40;

constexpr const char* kWantedNumbers =
    "want numbers: u1, i1, i2, i4, i8, f2, f4 or f8; write it with array.astype('float32')";

std::optional<NpyNumber> number_of(std::string_view code) {
  static const std::map<std::string_view, NpyNumber> numbers{
      {"b1", NpyNumber::kBool},      {"u1", NpyNumber::kUnsigned8},
      {"i1", NpyNumber::kInteger8},  {"u2", NpyNumber::kUnsigned16},
      {"i2", NpyNumber::kInteger16}, {"u4", NpyNumber::kUnsigned32},
      {"i4", NpyNumber::kInteger32}, {"u8", NpyNumber::kUnsigned64},
      {"i8", NpyNumber::kInteger64}, {"f2", NpyNumber::kFloat16},
      {"f4", NpyNumber::kFloat32},   {"f8", NpyNumber::kFloat64}};
  const auto found = numbers.find(code);
  if (found == numbers.end()) return {};
  return found->second;
}

/// A piece of a header for a message, which has one line.
std::string quoted_piece(std::string_view piece) {
  std::string text(piece.substr(0, 40));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
  return "'" + text + "'";
}

/// Reads the text of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, as Python
/// writes it.
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
    if (!rest_.empty()) refuse("its header goes on behind its end");
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
    refuse(concat("its header is no .npy header: got ", found, ", want \"", wanted, "\""));
  }
  std::string text() {
    skip_spaces();
    const char quote = rest_.starts_with('"') ? '"' : '\'';
    want(quote);
    const std::size_t end = rest_.find(quote);
    if (end == rest_.npos) refuse("a name in its header does not end");
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
                    "; want 'descr', 'fortran_order' and 'shape' alone"));
    }
  }

  void read_number() {
    skip_spaces();
    if (rest_.starts_with('[')) refuse(concat("holds records with fields; ", kWantedNumbers));
    const std::string code = text();
    const std::optional<NpyNumber> number =
        code.size() == 3 ? number_of(std::string_view(code).substr(1)) : std::nullopt;
    const bool has_order =
        !code.empty() && std::string_view("<>|=").find(code.front()) != std::string_view::npos;
    if (code.starts_with("|O") || code == "O")
      refuse(concat("holds Python objects, which are not read from files; ", kWantedNumbers));
    if (!number || !has_order) refuse(concat("holds ", quoted_piece(code), "; ", kWantedNumbers));
    form_.number = *number;
    form_.is_big_endian = code.front() == '>';
    has_number_ = true;
  }

  void read_shape() {
    want('(');
    form_.shape.clear();
    while (!takes(')')) {
      form_.shape.push_back(size());
      if (form_.shape.size() > kMostDimensions)
        refuse(concat("has over ", kMostDimensions, " dimensions"));
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
    if (error != std::errc{} || value < 0) refuse("its 'shape' has no whole numbers from 0 on");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    takes_word("L");  // Python 2 wrote 3L
    return value;
  }

  std::string_view rest_;
  const std::filesystem::path& path_;
  NpyForm form_;
  bool has_number_ = false, has_order_ = false, has_shape_ = false;
};

/// Numbers of this shape, or none where they are too many to be counted.
std::optional<std::int64_t> counted(const std::vector<std::int64_t>& shape) {
  for (const std::int64_t size : shape)
    if (size == 0) return 0;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size > kMostNpyElements / elements) return {};
    elements *= size;
  }
  return elements;
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
    refuse(concat("is truncated: its header has ", length, " bytes, and ", file.bytes() - text_at,
                  " follow"));
  std::string text(length, '\0');
  file.read_at(text.data(), length, text_at);
  NpyForm form = NpyHeaderReader(text, file.path()).read();
  form.offset = text_at + length;
  const std::optional<std::int64_t> elements = counted(form.shape);
  const std::size_t room = (file.bytes() - form.offset) / bytes_of(form.number);
  if (!elements || static_cast<std::uint64_t>(*elements) > room)
    refuse(concat(
        "is truncated: its shape wants ",
        elements ? concat(*elements, " numbers") : std::string("more numbers than a file holds"),
        ", and ", room, " follow"));
  return form;
}

}  // namespace hybrid_trainer
