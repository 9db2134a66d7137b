#include "hybrid_trainer/files/text_file.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kLittleMark = "\xFF\xFE", kBigMark = "\xFE\xFF";
constexpr char32_t kUnreadable = 0xFFFD;

/// Formats other than plain text, by their first bytes. In `way_out` FILE and FILE.txt are words of a command.
struct Container {
  std::string_view begin;
  const char* what;
  const char* way_out;
};

constexpr Container kContainers[] = {
    {"version https://git-lfs"sv, "a Git LFS pointer, not the file itself",
     "run `git lfs pull` where it came from"},
    {"\x1F\x8B"sv, "compressed by gzip", "unpack it first: gunzip --keep FILE"},
    {"\x28\xB5\x2F\xFD"sv, "compressed by zstd", "unpack it first: unzstd FILE"},
    {"\xFD"
     "7zXZ\0"sv,
     "compressed by xz", "unpack it first: unxz --keep FILE"},
    {"BZh"sv, "compressed by bzip2", "unpack it first: bunzip2 --keep FILE"},
    {"PK\3\4"sv, "a zip archive, as Excel's tables and PyTorch's .bin and .pt files are, too",
     "take out or save as text what it holds"},
    {"PAR1"sv, "a Parquet table",
     "name it NAME.parquet where examples or documents are wanted; nothing else reads it"},
    {"ARROW1"sv, "an Arrow table", "write it as JSON lines first: datasets' to_json does it"},
    {"GGUF"sv, "a model in llama.cpp's GGUF format",
     "give it as --model or --tokenizer; hybrid export FILE --output FOLDER makes a Hugging Face "
     "folder of it"},
    {"%PDF-"sv, "a PDF document", "take its text out first: pdftotext FILE"},
    {"SQLite format 3"sv, "an SQLite database", "write what you need of it as text first"},
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

/// Halves of a pair that stand alone, and an odd last byte, become U+FFFD.
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

void refuse_container(std::string_view begin, const std::filesystem::path& path) {
  for (const Container& known : kContainers) {
    if (!begin.starts_with(known.begin)) continue;
    throw DataError(
        concat(path.native(), ": is ", known.what, "; ", with_path(known.way_out, path.native())));
  }
}

/// Throws DataError where every other byte is 0, as in Western text in UTF-16.
static void refuse_unmarked_utf16(std::string_view text, const std::filesystem::path& path) {
  constexpr std::size_t kMostLooked = 512, kLeast = 8;
  const std::size_t looked = std::min(kMostLooked, text.size()) / 2 * 2;
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < looked; ++i) zeros[i % 2] += text[i] == '\0' ? 1u : 0u;
  if (looked < kLeast) return;
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

std::string read_text(const std::filesystem::path& path, std::size_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  refuse_container(text, path);
  if (is_utf16(text)) {
    warn(path.native(), "is UTF-16 text; it is read after a conversion to UTF-8");
    return from_utf16(std::string_view(text).substr(kLittleMark.size()),
                      text.starts_with(kBigMark));
  }
  refuse_unmarked_utf16(text, path);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace hybrid_trainer
