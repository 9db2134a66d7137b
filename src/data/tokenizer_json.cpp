#include "tokenizer_json.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <unordered_map>
#include <utility>

#include "bpe_model.h"
#include "bpe_tokenizer.h"
#include "byte_symbols.h"
#include "hybrid_trainer/files/utf8.h"
#include "tokenizer_steps.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kUnassigned = BpeVocabulary::kNoId;

/// Reads the parts that speak of tokens and checks that they fit together.
class PipelineReader {
 public:
  PipelineReader(const JsonPlace& root, const TokenizerSettings& settings)
      : root_(root), settings_(settings) {}

  std::unique_ptr<Tokenizer> read(TokenizerFiles files) {
    root_.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
    root_.expect("version", "1.0");
    root_.expect("truncation", nullptr);
    root_.expect("padding", nullptr);
    PreTokenizer pre = read_pre_tokenizer(root_.find("pre_tokenizer"), settings_.adds_prefix_space);
    pipeline_.adds_prefix_space = pre.adds_prefix_space;
    pipeline_.text = TextPipeline(read_normalizer(root_.find("normalizer")), std::move(pre.steps));
    pipeline_.decoder = read_decoder(root_.at("decoder"));
    pipeline_.vocabulary.by_bytes = pre.by_bytes;
    read_vocabulary();
    read_added_tokens();
    read_model();
    if (const auto post = root_.find("post_processor")) read_post_processor(*post);
    return std::make_unique<BpeTokenizer>(std::move(pipeline_), end_of_text(), std::move(files));
  }

 private:
  void read_vocabulary() {
    const JsonPlace vocab = root_.at("model").at("vocab");
    const std::size_t size = vocab.object().size();
    spelling().resize(size);
    for (const auto& [key, value] : vocab.object()) {
      const std::string token(key);
      const auto place = static_cast<std::size_t>(
          value.is_int64() && value.get_int64() >= 0 ? value.get_int64() : INT64_MAX);
      if (place >= size || !spelling()[place].empty()) {
        vocab.fail("token \"", token, "\" has the id ", boost::json::serialize(value),
                   "; want each of 0 … ", size - 1, " once");
      }
      if (token.empty()) vocab.fail("has an empty token");
      spelling()[place] = token;
      id_of_[token] = static_cast<std::int32_t>(place);
    }
  }

  void read_added_tokens() {
    pipeline_.least_table = model_tokens_ = spelling().size();
    const auto tokens = root_.find("added_tokens");
    if (!tokens) return;
    for (const JsonPlace& place : tokens->items()) {
      place.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token{.content = place.at("content").text(),
                       .id = static_cast<std::int32_t>(place.at("id").count()),
                       .single_word = place.at("single_word").flag(),
                       .lstrip = place.at("lstrip").flag(),
                       .rstrip = place.at("rstrip").flag(),
                       .special = place.at("special").flag()};
      if (token.content.empty()) place.at("content").fail("is empty");
      if (!added_.insert(token.content).second)
        place.at("content").fail("\"", token.content, "\" was added before");
      const auto next = static_cast<std::int32_t>(spelling().size());
      const auto [found, is_new] = id_of_.emplace(token.content, next);
      if (token.id != found->second) {
        place.at("id").fail("of \"", token.content, "\" is ", token.id, "; want ", found->second,
                            is_new ? ", the next one that is free" : ", as in model.vocab");
      }
      if (is_new) spelling().push_back(token.content);
      if (is_new && !token.special) pipeline_.least_table = spelling().size();
      if (!place.at("normalized").flag()) {
        pipeline_.added.add(std::move(token));
        continue;
      }
      token.content = pipeline_.text.normalized(token.content, {});
      if (token.content.empty()) place.at("content").fail("is nothing after the normalizer");
      spelling()[static_cast<std::size_t>(token.id)] = token.content;
      pipeline_.added_normalized.add(std::move(token));
    }
  }

  void read_model() {
    const JsonPlace model = root_.at("model");
    model.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    model.expect("type", "BPE");
    model.expect("continuing_subword_prefix", "");
    model.expect("end_of_word_suffix", "");
    if (const auto dropout = model.find("dropout"))
      if (dropout->value() != boost::json::value(0)) model.expect("dropout", 0.0);
    const auto flag = [&](const char* key) {
      const auto place = model.find(key);
      return place && place->flag();
    };
    BpeVocabulary& vocabulary = pipeline_.vocabulary;
    vocabulary.fuses_unknown = flag("fuse_unk");
    vocabulary.ignores_merges = flag("ignore_merges");
    if (const auto unknown = model.find("unk_token")) {
      vocabulary.unknown = model_id(unknown->text());
      if (!vocabulary.unknown) unknown->fail("is \"", unknown->text(), "\", not in model.vocab");
    }
    vocabulary.tokens.assign(model_tokens_, "");
    for (const auto& [token, id] : id_of_) {
      if (static_cast<std::size_t>(id) < model_tokens_)
        vocabulary.tokens[static_cast<std::size_t>(id)] = token;
    }
    const bool falls_back = flag("byte_fallback");
    if (vocabulary.by_bytes && falls_back)
      model.at("byte_fallback").fail("is true, which is not supported with ByteLevel");
    vocabulary.by_bytes ? set_byte_symbols(model) : set_characters(falls_back);
    read_merges(model.at("merges"));
  }

  /// Tokens are spelled in GPT-2's symbols for bytes, all of which there must be.
  void set_byte_symbols(const JsonPlace& model) {
    BpeVocabulary& vocabulary = pipeline_.vocabulary;
    const ByteSymbolCoder coder;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto id = model_id(coder.to_symbols(std::string(1, static_cast<char>(byte))));
      if (!id) model.at("vocab").fail("has no token for byte ", byte, "; want all 256");
      vocabulary.byte_ids[byte] = *id;
    }
    for (std::string& token : vocabulary.tokens) {
      const auto bytes = coder.to_bytes(token);
      if (!bytes && !added_.contains(token))
        model.at("vocab").fail("token \"", token, "\" is not written in GPT-2's byte symbols");
      token = bytes.value_or("");
    }
  }

  void set_characters(bool falls_back) {
    BpeVocabulary& vocabulary = pipeline_.vocabulary;
    for (std::size_t id = 0; id < model_tokens_; ++id) {
      const std::string& token = vocabulary.tokens[id];
      const CodePoint found = decode_utf8(token, 0);
      if (found.bytes == token.size())
        vocabulary.character_ids[found.value] = static_cast<std::int32_t>(id);
    }
    vocabulary.byte_ids.fill(kUnassigned);
    for (unsigned byte = 0; byte < 256 && falls_back; ++byte) {
      char token[8];
      std::snprintf(token, sizeof(token), "<0x%02X>", byte);
      vocabulary.byte_ids[byte] = model_id(token).value_or(kUnassigned);
    }
  }

  /// The id of a token of model.vocab.
  std::optional<std::int32_t> model_id(const std::string& token) const {
    const auto found = id_of_.find(token);
    if (found == id_of_.end() || static_cast<std::size_t>(found->second) >= model_tokens_)
      return {};
    return found->second;
  }

  /// The two tokens of a merge.
  std::pair<std::string, std::string> parts_of(const JsonPlace& merges, std::size_t i) const {
    const boost::json::value& merge = merges.value().get_array()[i];
    if (merge.is_string()) {
      const std::string line(merge.get_string());
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos)
        return {line.substr(0, space), line.substr(space + 1)};
    }
    const bool are_two = merge.is_array() && merge.get_array().size() == 2 &&
                         merge.at(0).is_string() && merge.at(1).is_string();
    if (!are_two) merges.item(i).fail("is ", boost::json::serialize(merge), ", not two tokens");
    return {std::string(merge.at(0).get_string()), std::string(merge.at(1).get_string())};
  }

  void read_merges(const JsonPlace& place) {
    if (!place.value().is_array()) place.items();  // says so
    std::set<std::pair<std::int32_t, std::int32_t>> known;
    for (std::size_t i = 0; i < place.value().get_array().size(); ++i) {
      const auto [left, right] = parts_of(place, i);
      const auto id = [&](const std::string& token) {
        const auto found = model_id(token);
        if (!found)
          place.item(i).fail("needs the token \"", token, "\", which is not in model.vocab");
        return *found;
      };
      const BpeMerge merge{id(left), id(right), id(left + right)};
      if (!known.emplace(merge.left, merge.right).second)
        place.item(i).fail("joins \"", left, "\" and \"", right, "\" a second time");
      pipeline_.vocabulary.merges.push_back(merge);
    }
  }

  void read_post_processor(const JsonPlace& place) {
    const std::string type = place.at("type").text();
    if (type == "ByteLevel") {  // moves offsets alone
      place.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "Sequence") {
      place.allow({"type", "processors"});
      for (const JsonPlace& part : place.at("processors").items()) read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(place);
    } else {
      place.fail("is ", type,
                 ", which is not supported; want ByteLevel, TemplateProcessing or Sequence");
    }
  }

  static constexpr std::size_t kMostTemplateTokens = 64;

  /// The tokens of the special tokens before and behind the one sequence.
  void read_template(const JsonPlace& place) {
    place.allow({"type", "single", "pair", "special_tokens"});  // "pair" is of two texts
    std::vector<std::int32_t> before, behind;
    bool is_behind = false;
    for (const JsonPlace& piece : place.at("single").items()) {
      piece.allow({"SpecialToken", "Sequence"});
      if (const auto sequence = piece.find("Sequence")) {
        sequence->expect("id", "A");
        if (std::exchange(is_behind, true)) piece.fail("is a second Sequence");
        continue;
      }
      const std::string name = piece.at("SpecialToken").at("id").text();
      const JsonPlace ids = place.at("special_tokens").at(name).at("ids");
      for (const JsonPlace& id : ids.items()) {
        if (id.count() >= static_cast<std::int64_t>(spelling().size()))
          id.fail("is ", id.count(), ", and the vocabulary has ", spelling().size(), " tokens");
        (is_behind ? behind : before).push_back(static_cast<std::int32_t>(id.count()));
        if (before.size() + behind.size() > kMostTemplateTokens)
          piece.fail("puts more than ", kMostTemplateTokens, " tokens beside a text");
      }
    }
    if (!is_behind) place.at("single").fail("has no Sequence");
    pipeline_.template_start.insert(pipeline_.template_start.begin(), before.begin(), before.end());
    pipeline_.template_end.insert(pipeline_.template_end.end(), behind.begin(), behind.end());
  }

  std::optional<std::int32_t> end_of_text() const {
    const auto found = id_of_.find(settings_.end_of_text.value_or(std::string(kEndOfText)));
    if (found != id_of_.end()) return found->second;
    if (!settings_.end_of_text) return {};
    root_.fail("has no token \"", *settings_.end_of_text,
               "\", which tokenizer_config.json names as eos_token");
  }

  std::vector<std::string>& spelling() { return pipeline_.spelling; }

  const JsonPlace& root_;
  const TokenizerSettings& settings_;
  BpePipeline pipeline_;
  std::size_t model_tokens_ = 0;  // ids below are model.vocab's
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::set<std::string> added_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files) {
  const JsonPlace place(root, file);
  return PipelineReader(place, settings).read(std::move(files));
}

}  // namespace hybrid_trainer
