#include "src/data/nfc.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"
#include "src/data/unicode_classes.h"

namespace hybrid_trainer {

namespace {

/// Appends the form C of a text in UTF-8.
void append_composed(std::string_view text, std::string& result) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, std::free);
  if (bytes < 0) throw Error(ExitCode::kInternal, utf8proc_errmsg(bytes));
  result.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string result;
  std::size_t begin = 0;  // of what is not in the result yet
  bool composes = false;  // whether that may not be in form C
  const auto flush = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (composes) {
      append_composed(part, result);
    } else {
      result += part;
    }
    composes = false;
    begin = end;
  };
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint found = decode_utf8(text, i);
    const std::size_t bytes = found.bytes == 0 ? 1 : found.bytes;
    if (found.bytes == 0 || (unicode_classes()[found.value] & kUnknownToNfc) != 0) {
      flush(i);
      result += text.substr(i, bytes);
      begin = i + bytes;
    } else if (found.value >= kFirstComposing) {
      composes = true;
    }
    i += bytes;
  }
  flush(text.size());
  return result;
}

}  // namespace hybrid_trainer
