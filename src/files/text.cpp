#include "src/files/text.h"

#include <utf8proc.h>
#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"

namespace hybrid_trainer {

Utf8Prefix utf8_prefix(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xC2 || first > 0xF4) return {1, 0};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  unsigned char low = 0x80, high = 0xBF;  // range of the second byte (Unicode 15, table 3-7)
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  const std::size_t end = std::min(length, text.size() - position);
  std::size_t bytes = 1;
  for (; bytes < end && byte(bytes) >= low && byte(bytes) <= high; ++bytes) low = 0x80, high = 0xBF;
  return {bytes, length};
}

CodePoint decode_utf8(std::string_view text, std::size_t position) {
  if (position == text.size()) return {};
  const auto [bytes, length] = utf8_prefix(text, position);
  if (bytes != length) return {};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  if (length == 1) return {byte(0), 1};
  char32_t value = byte(0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (byte(i) & 0x3Fu);
  return {value, length};
}

void append_utf8(char32_t value, std::string& text) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto push_tail = [&](int shift) { push(0x80u | ((value >> shift) & 0x3Fu)); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0u | value >> 6);
    push_tail(0);
  } else if (value < 0x10000) {
    push(0xE0u | value >> 12);
    push_tail(6);
    push_tail(0);
  } else {
    push(0xF0u | value >> 18);
    push_tail(12);
    push_tail(6);
    push_tail(0);
  }
}

std::size_t whole_characters(std::string_view text, std::size_t limit) {
  constexpr std::size_t kLongestTail = 3;
  if (text.size() <= limit) return text.size();
  std::size_t end = limit;
  while (end > 0 && limit - end < kLongestTail && is_continuation(text[end])) --end;
  return end == 0 || is_continuation(text[end]) ? limit : end;
}

std::size_t valid_utf8_bytes(std::string_view text, std::size_t position) {
  std::size_t i = position;
  while (i < text.size()) {
    std::uint64_t eight;
    while (i + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080u) != 0) break;
      i += sizeof(eight);
    }
    const std::size_t bytes = decode_utf8(text, i).bytes;
    if (bytes == 0) break;
    i += bytes;
  }
  return i - position;
}

std::string well_formed_utf8(std::string_view text) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t valid = valid_utf8_bytes(text, at);
    out += text.substr(at, valid);
    at += valid;
    if (at == text.size()) return out;
    append_utf8(0xFFFD, out);
    ++at;
  }
}

std::size_t invalid_utf8_bytes(std::string_view text, std::size_t position) {
  std::size_t i = position;
  while (i < text.size() && decode_utf8(text, i).bytes == 0) ++i;
  return i - position;
}

namespace {

using Characters = std::vector<utf8proc_int32_t>;
using namespace std::string_view_literals;

[[noreturn]] void fail(utf8proc_ssize_t code) {
  throw Error(ExitCode::kInternal, utf8proc_errmsg(code));
}

void append_decomposed(utf8proc_int32_t character, utf8proc_option_t options, Characters& to) {
  constexpr std::size_t kLongest = 32;  // 18 in Unicode 15
  const std::size_t before = to.size();
  to.resize(before + kLongest);
  int boundary = 0;  // of graphemes, which are not detected
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(character, &to[before], kLongest, options, &boundary);
  if (count < 0) fail(count);
  to.resize(before + static_cast<std::size_t>(count));
}

/// Sorts marks by class in O(n log n), because utf8proc_decompose takes quadratic time.
void sort_marks(Characters& characters) {
  const auto mark_class = [](utf8proc_int32_t character) {
    return utf8proc_get_property(character)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t character) { return mark_class(character) != 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, mark_class);
    begin = end;
  }
}

constexpr std::string_view kLittleMark = "\xFF\xFE", kBigMark = "\xFE\xFF";
constexpr char32_t kUnreadable = 0xFFFD;

/// A format other than plain text, by its first bytes. FILE and FILE.txt in `hint` are the path.
struct Container {
  std::string_view begin;
  const char* what;
  const char* hint;
};

constexpr Container kContainers[] = {
    {"version https://git-lfs"sv, "a Git LFS pointer, not the file itself",
     "run `git lfs pull` in its repository"},
    {"\x1F\x8B"sv, "compressed with gzip", "unpack it first: gunzip --keep FILE"},
    {"\x28\xB5\x2F\xFD"sv, "compressed with zstd", "unpack it first: unzstd FILE"},
    {"\xFD"
     "7zXZ\0"sv,
     "compressed with xz", "unpack it first: unxz --keep FILE"},
    {"BZh"sv, "compressed with bzip2", "unpack it first: bunzip2 --keep FILE"},
    {"PK\3\4"sv, "a zip archive, such as an Excel table or a .bin or .pt file of PyTorch",
     "extract it first, or save its content as text"},
    {"PAR1"sv, "a Parquet table",
     "for examples or documents, rename it to NAME.parquet; other inputs cannot be Parquet"},
    {"ARROW1"sv, "an Arrow table",
     "convert it to JSON lines first, for example with to_json of the library datasets"},
    {"GGUF"sv, "a model in llama.cpp's GGUF format",
     "give it as --model or --tokenizer, or convert it to a Hugging Face folder: hybrid export "
     "FILE --output FOLDER"},
    {"%PDF-"sv, "a PDF document", "extract its text first: pdftotext FILE"},
    {"SQLite format 3"sv, "an SQLite database", "export the data as text first"},
    {"\xFF\xFE\0\0"sv, "text in UTF-32",
     "convert it first: iconv -f UTF-32 -t UTF-8 FILE > FILE.txt"},
    {"\0\0\xFE\xFF"sv, "text in UTF-32",
     "convert it first: iconv -f UTF-32 -t UTF-8 FILE > FILE.txt"},
};

std::string with_path(std::string text, const std::string& path) {
  constexpr std::string_view kFile = "FILE", kCopy = "FILE.txt";
  for (std::size_t at = 0; (at = text.find(kFile, at)) != text.npos;) {
    const bool is_copy = text.compare(at, kCopy.size(), kCopy) == 0;
    const std::string word = shell_path(is_copy ? path + ".txt" : path);
    text.replace(at, is_copy ? kCopy.size() : kFile.size(), word);
    at += word.size();
  }
  return text;
}

/// Converts UTF-16 to UTF-8. Unpaired surrogates, and an odd last byte, become U+FFFD.
std::string from_utf16(std::string_view bytes, bool is_big) {
  const std::size_t count = bytes.size() / 2;
  const auto unit = [&](std::size_t i) -> char32_t {
    const auto first = static_cast<unsigned char>(bytes[2 * i]),
               second = static_cast<unsigned char>(bytes[2 * i + 1]);
    return is_big ? char32_t{first} << 8 | second : char32_t{second} << 8 | first;
  };
  const auto is_half = [](char32_t value, char32_t first) { return (value & 0xFC00) == first; };
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    char32_t value = unit(i);
    if (is_half(value, 0xD800) && i + 1 < count && is_half(unit(i + 1), 0xDC00)) {
      value = 0x10000 + ((value & 0x3FF) << 10 | (unit(++i) & 0x3FF));
    } else if (is_half(value, 0xD800) || is_half(value, 0xDC00)) {
      value = kUnreadable;
    }
    append_utf8(value, text);
  }
  if (bytes.size() % 2 != 0) append_utf8(kUnreadable, text);
  return text;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::string in_unicode_form(std::string_view text, UnicodeForm form) {
  const bool composes = form == UnicodeForm::kC || form == UnicodeForm::kKC;
  const bool is_compatible = form == UnicodeForm::kKC || form == UnicodeForm::kKD;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (is_compatible ? UTF8PROC_COMPAT : 0));
  Characters characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint found = decode_utf8(text, at);
    if (found.bytes == 0) fail(UTF8PROC_ERROR_INVALIDUTF8);
    append_decomposed(static_cast<utf8proc_int32_t>(found.value), options, characters);
    at += found.bytes;
  }
  sort_marks(characters);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters), options);
  if (count < 0) fail(count);
  std::string composed;
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(static_cast<char32_t>(characters[static_cast<std::size_t>(i)]), composed);
  return composed;
}

void refuse_container(std::string_view begin, const std::filesystem::path& path) {
  for (const Container& known : kContainers) {
    if (!begin.starts_with(known.begin)) continue;
    throw DataError(
        concat(path.native(), ": is ", known.what, "; ", with_path(known.hint, path.native())));
  }
}

/// Throws DataError if every other byte is 0, as in Western text in UTF-16.
static void refuse_unmarked_utf16(std::string_view text, const std::filesystem::path& path) {
  constexpr std::size_t kMaxInspectedBytes = 512, kMin = 8;
  const std::size_t looked = std::min(kMaxInspectedBytes, text.size()) / 2 * 2;
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < looked; ++i) zeros[i % 2] += text[i] == '\0' ? 1u : 0u;
  if (looked < kMin) return;
  for (const bool is_big : {false, true}) {
    if (4 * zeros[is_big ? 0 : 1] < looked || zeros[is_big ? 1 : 0] > 0) continue;
    const std::string file = path.native();
    throw DataError(concat(file, ": is text in UTF-16; convert it first: iconv -f UTF-16",
                           is_big ? "BE" : "LE", " -t UTF-8 ", shell_path(file), " > ",
                           shell_path(file + ".utf8")));
  }
}

void refuse_container(const std::filesystem::path& path) {
  constexpr std::size_t kLongestBegin = 32;
  const InputFile file(path);
  std::string begin(std::min(kLongestBegin, file.bytes()), '\0');
  file.read_at(begin.data(), begin.size(), 0);
  refuse_container(begin, path);
}

bool is_utf16(std::string_view begin) {
  return begin.starts_with(kLittleMark) || begin.starts_with(kBigMark);
}

std::string text_of_bytes(std::string text, const std::filesystem::path& path) {
  refuse_container(text, path);
  if (is_utf16(text)) {
    warn(path.native(), "is UTF-16 text; converting it to UTF-8");
    return from_utf16(std::string_view(text).substr(kLittleMark.size()),
                      text.starts_with(kBigMark));
  }
  refuse_unmarked_utf16(text, path);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::string read_text(const std::filesystem::path& path, std::size_t max_bytes) {
  return text_of_bytes(read_file(path, max_bytes), path);
}

}  // namespace hybrid_trainer
