#include "src/data/nfc.h"

#include "hybrid_trainer/files/unicode_forms.h"
#include "hybrid_trainer/files/utf8.h"
#include "src/data/unicode_classes.h"

namespace hybrid_trainer {

std::string to_nfc(std::string_view text) {
  std::string result;
  std::size_t begin = 0;  // of what is not in the result yet
  bool composes = false;  // whether that may not be in form C
  const auto flush = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (composes) {
      result += in_unicode_form(part, UnicodeForm::kC);
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
