#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/added_tokens.h"
#include "src/data/text/bpe_tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/files/folder_files.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// An added token as a file lists it, with the id that stands there.
struct ListedToken {
  AddedToken token;  // its id is not set
  bool normalized = false;
  std::optional<std::int64_t> id;
  std::string place;  // in its file, for messages
};

/// What stands beside a tokenizer.json in other files of its folder.
struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // for that of a pre-tokenizer ByteLevel that makes words
  std::optional<std::string> end_of_text;  // instead of "<|endoftext|>"; must be a token
  std::string end_of_text_file;            // that names it
  std::vector<ListedToken> added_tokens;   // added_tokens_decoder, by id
  /// Tokens that join where the tokenizer has none of that text: those of added_tokens.json, by id;
  /// with roles; with other names, as image_token; additional ones.
  std::vector<ListedToken> named_tokens;
};

/// The token of a JSON object {"content": …, "lstrip": …}, of which content alone must be there.
ListedToken listed_token(const JsonPlace& place);

/// What tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder say, as far
/// as they are there. As in transformers, add_prefix_space overrides what the tokenizer's own file
/// says; the two other files, which are older, count where tokenizer_config.json has no
/// added_tokens_decoder, and then the map's names come first. Without an eos_token in what counts,
/// that of the map does. Warns of keys that are not known. Throws DataError.
TokenizerSettings read_tokenizer_settings(const FolderFiles& folder);

/// The tokenizer that the content of a tokenizer.json of Hugging Face describes; `file` stands for
/// it in messages. Throws DataError, which names what is damaged or not supported by its JSON path.
std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files);

/// The two tokens of a merge of tokenizer.json's model.
std::pair<std::string, std::string> merge_parts(const JsonPlace& merges, std::size_t i);

/// Step ByteLevel of a tokenizer.json.
boost::json::object byte_level(bool adds_prefix_space, bool makes_words);
/// Element of a tokenizer.json's added_tokens that is found in a text as it is.
boost::json::object added_token(std::int64_t id, std::string_view content, bool special);
/// Parts of a tokenizer.json.
struct TokenizerJson {
  boost::json::array added_tokens{};
  boost::json::value normalizer{}, pre_tokenizer{}, post_processor{}, decoder{};
  boost::json::object model{};
  boost::json::object root() &&;
};

/// What was trained, with the `tokenizer.json`, `vocab.json` and `merges.txt` that it is saved as.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model);

/// Loads the tokenizer of a folder, of its file `name` if that is given; see load_tokenizer of a path.
std::unique_ptr<Tokenizer> load_tokenizer(const FolderFiles& folder, const std::string& name = "");
/// The files of a tokenizer's folder that belong to it. Throws IoError.
TokenizerFiles read_tokenizer_files(const FolderFiles& folder);

/// The tokenizer that a model file of llama.cpp holds, with the files that it would have in a Hugging Face
/// folder. Of one by scores (SentencePiece), merges follow from the scores; where all are the same,
/// as some converters write them, from the order of the tokens. Throws MissingInput where there is
/// none, DataError where it is damaged or cuts words in a way that is not known here.
std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file);

}  // namespace hybrid_trainer
