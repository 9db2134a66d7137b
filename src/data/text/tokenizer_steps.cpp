#include "src/data/text/tokenizer_steps.h"

#include "hybrid_trainer/core/error.h"
#include "src/core/sha256.h"
#include "src/data/text/normalizers.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

/// Calls f for the object, or, if it is a Sequence, for each element under `key`, recursively.
template <class F>
void for_each_step(const JsonPlace& place, const char* key, const F& f) {
  if (place.at("type").text() != "Sequence") return f(place);
  place.know({"type", key});
  for (const JsonPlace& item : place.at(key).items()) for_each_step(item, key, f);
}

[[noreturn]] void refuse_type(const JsonPlace& place, const char* known) {
  place.fail("is ", place.at("type").text(), ", which is not supported; want ", known);
}

/// Returns the text in {"String": text}. Also accepts {"Regex": …} and stores the expression,
/// unless `regex` is null.
std::string literal_of(const JsonPlace& pattern, std::optional<std::string>* regex = nullptr) {
  pattern.know({"String", "Regex"});
  if (const auto expression = pattern.find("Regex")) {
    if (regex == nullptr) expression->fail("is not supported; want a String");
    return regex->emplace(expression->text());
  }
  const std::string text = pattern.at("String").text();
  if (text.empty()) pattern.fail("is empty");
  return text;
}

/// Limits the growth of a text in the steps. Common tokenizers replace a blank by ▁, which has
/// three bytes. Many steps that each double the text would exhaust the memory.
class Growth {
 public:
  /// Counts a step. Steps are limited because each one processes all texts or tokens.
  void add(const JsonPlace& step) {
    constexpr int kMaxSteps = 256;
    if (++steps_ > kMaxSteps) step.fail("is step ", steps_, "; at most ", kMaxSteps, " are read");
  }
  void replace(const JsonPlace& step, const std::string& pattern, const std::string& content) {
    const double times = static_cast<double>(content.size()) / static_cast<double>(pattern.size());
    factor_ *= std::max(times, 1.0);
    if (factor_ > kMax)
      step.fail("and the steps before it can make a text more than ", kMax,
                " times as long; want shorter content");
  }
  void insert(const JsonPlace& step, const std::string& content) const {
    if (content.size() > kMax) step.fail("adds more than ", kMax, " bytes before a text");
  }

 private:
  static constexpr int kMax = 64;
  double factor_ = 1;
  int steps_ = 0;
};

std::string character_of(const JsonPlace& place) {
  const std::string text = place.text();
  if (text.empty() || decode_utf8(text, 0).bytes != text.size()) place.fail("is not one character");
  return text;
}

SplitBehavior behavior_of(const JsonPlace& place) {
  constexpr std::array<const char*, 5> kNames{"Removed", "Isolated", "MergedWithPrevious",
                                              "MergedWithNext", "Contiguous"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (place.text() == kNames[i]) return static_cast<SplitBehavior>(i);
  }
  place.fail("is ", place.text(),
             "; want Removed, Isolated, MergedWithPrevious, MergedWithNext "
             "or Contiguous");
}

WordSplitter words_of(const JsonPlace& pattern, const std::string& regex) {
  try {
    return WordSplitter(regex);
  } catch (const DataError& error) {
    pattern.at("Regex").fail("is ", regex, ", which is not supported: ", error.what());
  }
}

PreTokenizerStep read_split(const JsonPlace& place) {
  place.know({"type", "pattern", "behavior", "invert"});
  std::optional<std::string> regex;
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kLiteral,
                        .literal = literal_of(place.at("pattern"), &regex),
                        .behavior = behavior_of(place.at("behavior")),
                        .inverted = place.at("invert").flag()};
  if (!regex) return step;
  step.words = words_of(place.at("pattern"), *regex);
  const bool covers_all = step.words.pattern() != WordPattern::kOther;
  const bool isolates = step.behavior == SplitBehavior::kIsolated ||
                        (covers_all && step.inverted && step.behavior == SplitBehavior::kRemoved);
  step.kind = isolates ? PreTokenizerStep::Kind::kWords : PreTokenizerStep::Kind::kMatches;
  return step;
}

PreTokenizerStep read_metaspace(const JsonPlace& place) {
  using Prepend = PreTokenizerStep::Prepend;
  place.know({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kMetaspace,
                        .literal = character_of(place.at("replacement")),
                        .prepend = Prepend::kAlways};
  if (const auto scheme = place.find("prepend_scheme")) {
    const std::string name = scheme->text();
    if (name != "always" && name != "first" && name != "never")
      scheme->fail("is ", name, "; want always, first or never");
    if (name == "first") step.prepend = Prepend::kFirst;
    if (name == "never") step.prepend = Prepend::kNever;
  }
  if (const auto add = place.find("add_prefix_space"); add && !add->flag()) {
    if (step.prepend != Prepend::kNever) add->fail("does not match prepend_scheme");
  }
  if (const auto split = place.find("split")) step.splits = split->flag();
  return step;
}

using Convert = std::function<std::string(std::string_view)>;

NormalizerStep conversion(Convert convert) {
  return {.kind = NormalizerStep::Kind::kConvert, .convert = std::move(convert)};
}

NormalizerStep to_unicode_form(UnicodeForm form) {
  return conversion([form](std::string_view text) { return to_form(text, form); });
}

NormalizerStep without(int traits) {
  return conversion([traits](std::string_view text) { return without_traits(text, traits); });
}

void add_bert(const JsonPlace& place, std::vector<NormalizerStep>& steps) {
  place.know({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lowers = place.at("lowercase").flag();
  if (place.at("clean_text").flag()) steps.push_back(conversion(without_controls));
  if (place.at("handle_chinese_chars").flag()) steps.push_back(conversion(with_spaced_ideographs));
  if (place.flag("strip_accents", lowers)) {
    steps.push_back(to_unicode_form(UnicodeForm::kD));
    steps.push_back(without(kNonspacingMark));
  }
  if (lowers) steps.push_back(conversion(lowercased));
}

NormalizerStep read_replacement(const JsonPlace& place, Growth& growth) {
  using Kind = NormalizerStep::Kind;
  place.know({"type", "pattern", "content"});
  const JsonPlace pattern = place.at("pattern");
  std::optional<std::string> regex;
  NormalizerStep step{.kind = Kind::kReplace,
                      .pattern = literal_of(pattern, &regex),
                      .content = place.at("content").text()};
  if (regex) {
    step.kind = Kind::kReplaceMatches;
    step.words = words_of(pattern, *regex);
  }
  growth.replace(place, regex ? " " : step.pattern, step.content);
  return step;
}

NormalizerStep read_character_map(const JsonPlace& place) {
  place.know({"type", "precompiled_charsmap"});
  const JsonPlace table = place.at("precompiled_charsmap");
  const auto bytes = bytes_of_base64(table.text());
  if (!bytes) table.fail("is not in base64");
  try {
    auto map = std::make_shared<const CharacterMap>(*bytes);
    return {.kind = NormalizerStep::Kind::kCharacterMap,
            .convert = [map](std::string_view text) { return map->replaced(text); }};
  } catch (const DataError& error) {
    table.fail("cannot be read: ", error.what());
  }
}

/// Returns the conversion of a normalizer without settings, or nullopt for another type.
std::optional<NormalizerStep> simple_conversion(const std::string& type) {
  if (type == "NFD") return to_unicode_form(UnicodeForm::kD);
  if (type == "NFKC") return to_unicode_form(UnicodeForm::kKC);
  if (type == "NFKD") return to_unicode_form(UnicodeForm::kKD);
  if (type == "StripAccents") return without(kMark);
  if (type == "Lowercase") return conversion(lowercased);
  if (type == "Nmt") return conversion(for_translation);
  return {};
}

/// Returns the steps of a pre-tokenizer that splits by classes of characters; empty if it does not.
std::vector<PreTokenizerStep> read_class_split(const JsonPlace& place, const std::string& type) {
  using Kind = PreTokenizerStep::Kind;
  if (type == "Digits") {
    place.know({"type", "individual_digits"});
    const bool individual = place.at("individual_digits").flag();
    return {{.kind = Kind::kDigits,
             .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous}};
  }
  if (type == "Punctuation") {
    place.know({"type", "behavior"});
    const auto behavior = place.find("behavior");
    return {{.kind = Kind::kPunctuation,
             .behavior = behavior ? behavior_of(*behavior) : SplitBehavior::kIsolated}};
  }
  if (type == "Whitespace")
    return place.know({"type"}), std::vector{PreTokenizerStep{Kind::kWordRuns}};
  if (type != "WhitespaceSplit" && type != "BertPreTokenizer") return {};
  place.know({"type"});
  std::vector<PreTokenizerStep> steps{{.kind = Kind::kWhiteSpace}};
  if (type == "BertPreTokenizer") steps.push_back({.kind = Kind::kPunctuation});
  return steps;
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const std::optional<JsonPlace>& place) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  Growth growth;
  if (!place) return steps;
  for_each_step(*place, "normalizers", [&](const JsonPlace& step) {
    growth.add(step);
    const std::string type = step.at("type").text();
    if (type == "NFC") {
      step.know({"type"});
      steps.push_back({.kind = Kind::kNfc});
    } else if (type == "Prepend") {
      step.know({"type", "prepend"});
      steps.push_back({.kind = Kind::kPrepend, .content = step.at("prepend").text()});
      growth.insert(step, steps.back().content);
    } else if (type == "Replace") {
      steps.push_back(read_replacement(step, growth));
    } else if (type == "BertNormalizer") {
      add_bert(step, steps);
    } else if (type == "Precompiled") {
      steps.push_back(read_character_map(step));
    } else if (type == "Strip") {
      step.know({"type", "strip_left", "strip_right"});
      const bool left = step.at("strip_left").flag(), right = step.at("strip_right").flag();
      steps.push_back(
          conversion([=](std::string_view text) { return stripped(text, left, right); }));
    } else if (auto simple = simple_conversion(type)) {
      step.know({"type"});
      steps.push_back(std::move(*simple));
    } else {
      refuse_type(step,
                  "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, "
                  "Replace, Sequence, Strip or StripAccents");
    }
  });
  return steps;
}

PreTokenizer read_pre_tokenizer(const std::optional<JsonPlace>& place,
                                std::optional<bool> adds_prefix_space) {
  using Kind = PreTokenizerStep::Kind;
  PreTokenizer read;
  if (!place) return read;
  Growth growth;
  for_each_step(*place, "pretokenizers", [&](const JsonPlace& step) {
    growth.add(step);
    if (read.by_bytes) step.fail("comes after ByteLevel, which is supported only as the last step");
    const std::string type = step.at("type").text();
    if (type == "ByteLevel") {
      step.know({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      const auto regex = step.find("use_regex");
      const bool splits_words = !regex || regex->flag();
      read.adds_prefix_space = step.at("add_prefix_space").flag();
      if (splits_words) read.adds_prefix_space = adds_prefix_space.value_or(read.adds_prefix_space);
      if (read.adds_prefix_space) read.steps.push_back({.kind = Kind::kPrefixSpace});
      if (splits_words) read.steps.push_back({.kind = Kind::kWords});
      read.by_bytes = true;
    } else if (type == "Split") {
      read.steps.push_back(read_split(step));
    } else if (type == "Metaspace") {
      read.steps.push_back(read_metaspace(step));
    } else {
      const std::vector<PreTokenizerStep> steps = read_class_split(step, type);
      if (steps.empty())
        refuse_type(step,
                    "BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, "
                    "Whitespace or WhitespaceSplit");
      read.steps.insert(read.steps.end(), steps.begin(), steps.end());
    }
  });
  return read;
}

std::vector<DecoderStep> read_decoder(const std::optional<JsonPlace>& place, bool by_bytes) {
  using Kind = DecoderStep::Kind;
  std::vector<DecoderStep> steps;
  if (!place) return {{.kind = by_bytes ? Kind::kByteLevel : Kind::kBlanks}};
  Growth growth;
  for_each_step(*place, "decoders", [&](const JsonPlace& step) {
    growth.add(step);
    const std::string type = step.at("type").text();
    if (type == "ByteLevel") {
      step.know({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      steps.push_back({.kind = Kind::kByteLevel});
    } else if (type == "Replace") {
      step.know({"type", "pattern", "content"});
      steps.push_back({.kind = Kind::kReplace,
                       .pattern = literal_of(step.at("pattern")),
                       .content = step.at("content").text()});
      growth.replace(step, steps.back().pattern, steps.back().content);
    } else if (type == "ByteFallback" || type == "Fuse") {
      step.know({"type"});
      steps.push_back({.kind = type == "Fuse" ? Kind::kFuse : Kind::kByteFallback});
    } else if (type == "Strip") {
      step.know({"type", "content", "start", "stop"});
      steps.push_back({.kind = Kind::kStrip,
                       .pattern = character_of(step.at("content")),
                       .start = static_cast<std::size_t>(step.at("start").count()),
                       .stop = static_cast<std::size_t>(step.at("stop").count())});
    } else if (type == "Metaspace") {
      const PreTokenizerStep metaspace = read_metaspace(step);
      steps.push_back({.kind = Kind::kMetaspace,
                       .pattern = metaspace.literal,
                       .strips_first = metaspace.prepend != PreTokenizerStep::Prepend::kNever});
    } else if (type == "WordPiece") {
      step.know({"type", "prefix", "cleanup"});
      steps.push_back({.kind = Kind::kWordPiece,
                       .pattern = step.at("prefix").text(),
                       .cleans_up = step.at("cleanup").flag()});
    } else {
      refuse_type(
          step, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip or WordPiece");
    }
  });
  return steps;
}

}  // namespace hybrid_trainer
