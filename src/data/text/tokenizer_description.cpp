#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/core/sha256.h"
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

constexpr const char *kBlank = "▁", *kContinuation = "##";

/// Detects pipelines that replace each blank by "▁" and may insert "▁" before the text.
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
    if (is_metaspace && step.prepend != PreTokenizerStep::Prepend::kNever)
      prepends = found.keeps_first_space = true;
    if (!is_metaspace && !never_splits) is_other = true;
  }
  if (!replaces || is_other) return;
  found.words = BpeWords::kWholeText;
  found.adds_prefix_space = prepends;
}

json::value parsed(const TokenizerFiles& files, const char* name, json::value missing = {}) {
  const auto found = files.find(name);
  if (found == files.end()) return missing;
  boost::system::error_code error;
  json::value value = json::parse(found->second, error);
  if (error) throw DataError(concat(name, ": is not JSON: ", error.message()));
  return value;
}

void set_size(const Tokenizer& tokenizer, TokenList& found) {
  found.tokens.resize(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  found.uses.resize(found.tokens.size());
}

void read_vocabulary(const json::object& vocabulary, TokenList& found) {
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

/// Reads the text of ids that the vocabulary does not use, and which tokens are special or added.
void read_added(const Tokenizer& tokenizer, const JsonPlace& root, TokenList& found) {
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
  }
}

void mark_bytes(const std::string& unknown, TokenList& found) {
  for (std::size_t id = 0; id < found.tokens.size(); ++id) {
    TokenUse& use = found.uses[id];
    if (use == TokenUse::kText && is_byte_token(found.tokens[id])) use = TokenUse::kByte;
    if (!unknown.empty() && found.tokens[id] == unknown) use = TokenUse::kUnknown;
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

void require_kind(const Tokenizer& tokenizer, TokenizerKind wanted) {
  if (tokenizer.kind() != wanted)
    throw DataError(concat("the tokenizer has the type ", name_of(tokenizer.kind()), ", want ",
                           name_of(wanted)));
}

JsonPlace require_type(const JsonPlace& root, const char* member, const char* type) {
  const JsonPlace place = root.at(member);
  const std::string got = place.at("type").text();
  if (got != type) place.fail("is ", got, ", want ", type);
  return place;
}

void require_flag(const JsonPlace& place, const char* key) {
  if (!place.at(key).flag()) place.at(key).fail("is false, want true");
}

/// Returns the tokenizer.json, or one that equals BERT's vocab.txt.
json::value word_piece_file(const TokenizerFiles& files) {
  const auto lines = files.find("vocab.txt");
  if (files.contains("tokenizer.json") || lines == files.end())
    return parsed(files, "tokenizer.json");
  const auto settings = [&](const char* name) { return parsed(files, name, json::object()); };
  return word_piece_json(lines->second, settings("tokenizer_config.json"),
                         settings("special_tokens_map.json"), "");
}

/// Returns whether a normalizer replaces each run of blanks by one blank. Splitting into words has
/// the same result without it.
bool joins_blanks(const JsonPlace& step) {
  return step.at("type").text() == "Replace" &&
         step.at("pattern").value() == json::object{{"Regex", " {2,}"}} &&
         step.at("content").text() == " ";
}

std::string character_map_of(const JsonPlace& root) {
  const std::optional<JsonPlace> place = root.find("normalizer");
  if (!place) return "";
  std::vector<JsonPlace> steps{*place};
  if (place->at("type").text() == "Sequence") {
    const auto items = place->at("normalizers").items();
    steps = {items.begin(), items.end()};
  }
  if (steps.size() == 2 && joins_blanks(steps[1])) steps.pop_back();
  if (steps.size() != 1 || steps[0].at("type").text() != "Precompiled")
    place->fail("is ", shortened(place->value()), ", want Precompiled");
  return bytes_of_base64(steps[0].at("precompiled_charsmap").text()).value_or("");
}

}  // namespace

BpeDescription describe_bpe(const Tokenizer& tokenizer) {
  require_kind(tokenizer, TokenizerKind::kBpe);
  BpeDescription found;
  set_size(tokenizer, found);
  const json::value root = parsed(tokenizer.files(), "tokenizer.json");
  const JsonPlace place(root, "tokenizer.json");
  const std::string unknown = describe_file(place, tokenizer, found);
  read_added(tokenizer, place, found);
  if (found.words == BpeWords::kWholeText) mark_bytes(unknown, found);
  return found;
}

WordPieceDescription describe_word_pieces(const Tokenizer& tokenizer) {
  require_kind(tokenizer, TokenizerKind::kWordPiece);
  const json::value root = word_piece_file(tokenizer.files());
  const JsonPlace place(root, "tokenizer.json");
  const JsonPlace normalizer = require_type(place, "normalizer", "BertNormalizer");
  for (const char* key : {"clean_text", "handle_chinese_chars"}) require_flag(normalizer, key);
  require_type(place, "pre_tokenizer", "BertPreTokenizer");
  const JsonPlace model = place.at("model"), prefix = model.at("continuing_subword_prefix");
  if (prefix.text() != kContinuation) prefix.fail("is ", prefix.text(), ", want ", kContinuation);
  WordPieceDescription found;
  found.lowers_case = normalizer.at("lowercase").flag();
  found.strips_accents = normalizer.flag("strip_accents", found.lowers_case);
  set_size(tokenizer, found);
  read_vocabulary(model.at("vocab").object(), found);
  read_added(tokenizer, place, found);
  found.unknown = model.at("vocab").at(model.at("unk_token").text()).count();
  return found;
}

UnigramDescription describe_unigrams(const Tokenizer& tokenizer) {
  using Prepend = PreTokenizerStep::Prepend;
  require_kind(tokenizer, TokenizerKind::kUnigram);
  const json::value root = parsed(tokenizer.files(), "tokenizer.json");
  const JsonPlace place(root, "tokenizer.json");
  const std::vector<PreTokenizerStep> steps =
      read_pre_tokenizer(place.find("pre_tokenizer"), {}).steps;
  const bool are_words = steps.size() == 2 && steps[0].kind == StepKind::kWhiteSpace &&
                         steps[1].kind == StepKind::kMetaspace && steps[1].literal == kBlank &&
                         steps[1].prepend == Prepend::kAlways;
  if (!are_words)
    place.fail("has a pre_tokenizer other than WhitespaceSplit and Metaspace with ", kBlank);
  const JsonPlace model = place.at("model");
  UnigramDescription found;
  found.character_map = character_map_of(place);
  set_size(tokenizer, found);
  found.scores.resize(found.tokens.size());
  for (std::size_t id = 0; id < model.at("vocab").array().size(); ++id) {
    const JsonPlace item = model.at("vocab").item(id);
    found.tokens[id] = item.item(0).text();
    found.scores[id] = item.item(1).number();
    found.uses[id] = TokenUse::kText;
  }
  read_added(tokenizer, place, found);
  if (model.flag("byte_fallback")) mark_bytes("", found);
  if (const auto unknown = model.find("unk_id"))
    found.unknown = unknown->count(),
    found.uses.at(static_cast<std::size_t>(*found.unknown)) = TokenUse::kUnknown;
  return found;
}

}  // namespace hybrid_trainer
