#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/tokenizer_steps.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;
using StepKind = PreTokenizerStep::Kind;

BpeWords words_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2: return BpeWords::kGpt2;
    case WordPattern::kLlama3: return BpeWords::kLlama3;
    case WordPattern::kQwen2: return BpeWords::kQwen2;
    case WordPattern::kQwen35: return BpeWords::kQwen35;
    case WordPattern::kTekken: return BpeWords::kTekken;
    case WordPattern::kGpt4o: return BpeWords::kGpt4o;
    case WordPattern::kOther: break;
  }
  return BpeWords::kOther;
}

BpeWords words_of_bytes(const std::vector<PreTokenizerStep>& steps) {
  if (steps.size() == 1 && steps[0].kind == StepKind::kWords)
    return words_of(steps[0].words.pattern());
  const bool are_digits = steps.size() == 2 && steps[0].kind == StepKind::kDigits &&
                          steps[0].behavior == SplitBehavior::kIsolated &&
                          steps[1].kind == StepKind::kWords &&
                          steps[1].words.pattern() == WordPattern::kGpt2;
  return are_digits ? BpeWords::kGpt2Digits : BpeWords::kOther;
}

constexpr const char* kBlank = "▁";

/// Detects whole-text pipelines, which replace each blank by "▁" and may put one before the text.
void describe_whole_text(const std::vector<NormalizerStep>& normalizers,
                         const std::vector<PreTokenizerStep>& steps, BpeDescription& found) {
  bool replaces = false, prepends = false, is_other = false;
  for (const NormalizerStep& step : normalizers) {
    const bool is_blank = step.kind == NormalizerStep::Kind::kReplace && step.pattern == " " &&
                          step.content == kBlank;
    const bool is_first = step.kind == NormalizerStep::Kind::kPrepend && step.content == kBlank;
    (is_blank ? replaces : is_first ? prepends : is_other) = true;
  }
  for (const PreTokenizerStep& step : steps) {
    const bool is_metaspace =
        step.kind == StepKind::kMetaspace && step.literal == kBlank && !step.splits;
    // There are no blanks to split at if they were replaced.
    const bool never_splits = step.kind == StepKind::kLiteral && step.literal == " " && replaces;
    if (is_metaspace) replaces = true;
    if (is_metaspace && step.prepend != PreTokenizerStep::Prepend::kNever) prepends = true;
    if (!is_metaspace && !never_splits) is_other = true;
  }
  if (!replaces || is_other) return;
  found.words = BpeWords::kWholeText;
  found.adds_prefix_space = prepends;
}

json::value parsed(const TokenizerFiles& files, const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return {};
  boost::system::error_code error;
  json::value value = json::parse(found->second, error);
  if (error) throw DataError(concat(name, ": is not JSON: ", error.message()));
  return value;
}

void read_vocabulary(const json::object& vocabulary, BpeDescription& found) {
  for (const auto& [text, id] : vocabulary) {
    const auto place = static_cast<std::size_t>(id.is_int64() ? id.get_int64() : -1);
    if (place >= found.tokens.size()) continue;  // not an id of the tokenizer
    found.tokens[place] = std::string(text);
    found.uses[place] = TokenUse::kText;
  }
}

/// Returns whether each added token, by its text, is special.
std::map<std::string, bool> added_tokens(const TokenizerFiles& files, const JsonPlace& root) {
  std::map<std::string, bool> added;
  const auto add = [&](const JsonPlace& place) {
    const AddedToken token = listed_token(place).token;
    added[token.content] = token.special;
  };
  if (const auto list = root.find("added_tokens"))
    for (const JsonPlace& token : list->items()) add(token);
  const json::value settings = parsed(files, "tokenizer_config.json");
  if (!settings.is_object()) return added;
  if (const auto decoder =
          JsonPlace(settings, "tokenizer_config.json").find("added_tokens_decoder"))
    for (const auto& [id, token] : decoder->object()) add(decoder->at(id));
  return added;
}

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
}

/// Reads the text of ids that the vocabulary does not use, and which tokens are special, added,
/// bytes or unknown.
void read_added(const Tokenizer& tokenizer, const JsonPlace& root, const std::string& unknown,
                BpeDescription& found) {
  const std::map<std::string, bool> added = added_tokens(tokenizer.files(), root);
  for (std::size_t id = 0; id < found.tokens.size(); ++id) {
    std::string& token = found.tokens[id];
    TokenUse& use = found.uses[id];
    if (use == TokenUse::kNone) {
      token = std::string(tokenizer.token_bytes(narrow<std::int32_t>(id)));
      if (!token.empty()) use = TokenUse::kSpecial;
    }
    if (const auto listed = added.find(token); listed != added.end())
      use = listed->second ? TokenUse::kSpecial : TokenUse::kAdded;
    const bool is_whole = found.words == BpeWords::kWholeText;
    if (is_whole && use == TokenUse::kText && is_byte_token(token)) use = TokenUse::kByte;
    if (is_whole && !unknown.empty() && token == unknown) use = TokenUse::kUnknown;
  }
}

/// Describes a tokenizer.json. Returns the text of its unknown token, or "".
std::string describe_file(const JsonPlace& place, const Tokenizer& tokenizer,
                          BpeDescription& found) {
  const JsonPlace model = place.at("model");
  PreTokenizer pre = read_pre_tokenizer(place.find("pre_tokenizer"), {});
  const std::vector<NormalizerStep> normalizers = read_normalizer(place.find("normalizer"));
  for (const NormalizerStep& step : normalizers)
    found.composes = found.composes || step.kind == NormalizerStep::Kind::kNfc;
  found.ignores_merges = model.flag("ignore_merges");
  if (const auto steps = place.find("pre_tokenizer")) found.steps = json::serialize(steps->value());
  const bool composes_only = normalizers.empty() || (normalizers.size() == 1 && found.composes);
  if (pre.by_bytes) {
    std::erase_if(pre.steps, [](const auto& step) { return step.kind == StepKind::kPrefixSpace; });
    found.adds_prefix_space = tokenizer.adds_prefix_space();  // may come from another file
    if (composes_only) found.words = words_of_bytes(pre.steps);
  }
  if (!pre.by_bytes && model.flag("byte_fallback"))
    describe_whole_text(normalizers, pre.steps, found);
  read_vocabulary(model.at("vocab").object(), found);
  const JsonPlace merges = model.at("merges");
  for (std::size_t i = 0; i < merges.array().size(); ++i)
    found.merges.push_back(merge_parts(merges, i));
  const auto unknown = model.find("unk_token");
  return unknown ? unknown->text() : "";
}

}  // namespace

BpeDescription describe_bpe(const Tokenizer& tokenizer) {
  if (tokenizer.kind() != TokenizerKind::kBpe)
    throw DataError(concat("the tokenizer has the type ", name_of(tokenizer.kind()), ", want bpe"));
  BpeDescription found;
  const auto size = static_cast<std::size_t>(tokenizer.vocabulary_size());
  found.tokens.resize(size);
  found.uses.resize(size);
  const json::value root = parsed(tokenizer.files(), "tokenizer.json");
  const JsonPlace place(root, "tokenizer.json");
  const std::string unknown = describe_file(place, tokenizer, found);
  read_added(tokenizer, place, unknown, found);
  return found;
}

}  // namespace hybrid_trainer
