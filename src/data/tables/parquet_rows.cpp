#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/row_formats.h"
#include "src/files/json.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

/// Limits the size of one row, so that a few bytes of the file are not expanded to gigabytes.
struct RowBudget {
  std::size_t values = 0, bytes = 0;
};

/// Limits the bytes of all rows: dictionaries and runs expand, and a reader may keep all rows.
class TableBudget {
 public:
  explicit TableBudget(const ParquetFile& file)
      : file_bytes_(file.bytes()), left_(kAlwaysAllowed + kMaxTimes * file.bytes()) {}

  void charge(std::size_t bytes) {
    if (bytes > left_)
      throw DataError(concat("the rows of the file, which has ", file_bytes_,
                             " bytes, take more than ", kAlwaysAllowed >> 20, " MiB plus ",
                             kMaxTimes,
                             " times its size; leave out columns with the same value in all rows"));
    left_ -= bytes;
  }

 private:
  static constexpr std::size_t kAlwaysAllowed = 64 << 20, kMaxTimes = 256;
  std::size_t file_bytes_, left_;
};

constexpr std::size_t kBytesOfRow = 64, kBytesOfValue = 16;

class ColumnRows {
 public:
  ColumnRows(const ParquetFile& file, std::size_t group, const ParquetNode& node, bool allows_bytes,
             TableBudget& table)
      : node_(node),
        allows_bytes_(allows_bytes),
        leaves_(file.open(group, node)),
        allowed_{(64u << 10) + file.bytes() / 16, (16u << 20) + 16 * file.bytes()},
        table_(table) {}

  json::value next() {
    left_ = allowed_;
    json::value value = read(node_);
    for (const auto& leaf : leaves_)
      if (!leaf->at_end() && leaf->repetition() != 0)
        throw DataError(
            concat("column ", node_.name, " is damaged: its parts have different lengths"));
    return value;
  }

 private:
  ParquetLeaf& first_of(const ParquetNode& node) { return *leaves_[node.leaf - node_.leaf]; }

  void pass(const ParquetNode& node) {
    ParquetValue none;
    for (std::size_t i = 0; i < node.leaves; ++i) leaves_[node.leaf - node_.leaf + i]->take(none);
  }

  json::value read(const ParquetNode& node) {
    if (left_.values-- == 0) throw DataError(concat("column ", node_.name, " has too many values"));
    table_.charge(kBytesOfValue);
    if (node.kind == ParquetNode::Kind::kLeaf) return read_leaf(node);
    if (first_of(node).definition() < node.present) {
      pass(node);
      return nullptr;
    }
    if (node.kind == ParquetNode::Kind::kList) return read_list(node);
    if (node.kind == ParquetNode::Kind::kMap) return read_map(node);
    json::object object;  // a member that a row lacks is null there, which is equivalent
    for (const ParquetNode& child : node.children) {
      table_.charge(child.name.size());
      if (json::value held = read(child); !held.is_null()) object[child.name] = std::move(held);
    }
    return object;
  }

  json::value read_leaf(const ParquetNode& node) {
    ParquetValue value;
    if (!first_of(node).take(value)) return nullptr;
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      if (text->size() > left_.bytes)
        throw DataError(concat("column ", node_.name, " has a row with too much text"));
      left_.bytes -= text->size();
      table_.charge(text->size());
      if (!allows_bytes_ && valid_utf8_bytes(*text, 0) != text->size())
        throw DataError(concat("column ", node_.name,
                               node.name == node_.name ? "" : "." + node.name,
                               " is not UTF-8; if it contains binary data such as audio, write "
                               "that to files, and their paths to a text column"));
      return json::string(json::string_view(text->data(), text->size()));
    }
    if (const bool* truth = std::get_if<bool>(&value)) return *truth;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
    const double real = std::get<double>(value);
    return std::isfinite(real) ? json::value(real) : json::value();  // JSON has no NaN or infinity
  }

  template <class F>
  void for_each_element(const ParquetNode& node, const F& f) {
    if (first_of(node).definition() < node.has_element) return pass(node);
    do {
      f();
    } while (!first_of(node).at_end() && first_of(node).repetition() == node.repeated);
  }

  json::value read_list(const ParquetNode& node) {
    json::array list;
    for_each_element(node, [&] { list.push_back(read(node.children[0])); });
    return list;
  }

  json::value read_map(const ParquetNode& node) {
    json::object object;
    for_each_element(node, [&] {
      const json::value key = read(node.children[0]);
      json::value held = read(node.children[1]);
      if (!key.is_string())
        throw DataError(concat("column ", node_.name, " has a map without a key"));
      object[key.get_string()] = std::move(held);
    });
    return object;
  }

  const ParquetNode& node_;
  bool allows_bytes_;
  std::vector<std::unique_ptr<ParquetLeaf>> leaves_;
  RowBudget allowed_, left_;
  TableBudget& table_;
};

std::vector<const ParquetNode*> wanted_nodes(const ParquetFile& file,
                                             const std::vector<std::string>& wanted,
                                             const std::string& renaming) {
  std::vector<const ParquetNode*> nodes;
  for (const ParquetNode& node : file.footer().nodes()) {
    const bool is_wanted = wanted.empty() || std::ranges::find(wanted, node.name) != wanted.end();
    if (!is_wanted) continue;
    if (!node.problem.empty())
      throw DataError(concat("column ", node.name, " is ", node.problem,
                             ", which is not supported; write it as text or as 64-bit numbers"));
    nodes.push_back(&node);
  }
  if (nodes.empty()) throw DataError(no_wanted_column(file.columns(), wanted, renaming));
  return nodes;
}

}  // namespace

/// Returns "audio=COLUMN,text=COLUMN" with the first two names.
static std::string renamed_columns(const std::vector<std::string>& wanted) {
  if (wanted.empty()) return "prompt=COLUMN,completion=COLUMN";
  return concat(wanted[0], "=COLUMN", wanted.size() > 1 ? concat(",", wanted[1], "=COLUMN") : "");
}

std::string no_wanted_column(const std::vector<std::string>& columns,
                             const std::vector<std::string>& wanted, const std::string& renaming) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> first(
      wanted.begin(),
      wanted.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, wanted.size())));
  if (wanted.size() > kNamed) first.emplace_back("…");
  return concat("has the columns ", join(columns).substr(0, 300), ", but none of ", join(first),
                "; name them with --columns ",
                renaming.empty() ? renamed_columns(wanted) : renaming);
}

/// Returns the names of a feature {"names": […], "_type": "ClassLabel"}, or of a list of them.
static std::vector<std::string> names_of_feature(const json::value& feature) {
  const json::value* of_class = &feature;
  if (const json::array* list = feature.if_array(); list != nullptr && list->size() == 1)
    of_class = &list->front();
  else if (const json::object* object = feature.if_object())
    if (const json::value* element = object->if_contains("feature")) of_class = element;
  const json::object* const found = of_class->if_object();
  const json::value* const type = found == nullptr ? nullptr : found->if_contains("_type");
  const json::value* const names = found == nullptr ? nullptr : found->if_contains("names");
  if (type == nullptr || names == nullptr || *type != "ClassLabel") return {};
  return json::value_to<std::vector<std::string>>(*names);
}

std::map<std::string, std::vector<std::string>> class_names_in(const ParquetFile& file) {
  std::map<std::string, std::vector<std::string>> names;
  const std::string_view text = file.footer().property("huggingface");
  if (text.empty()) return names;
  try {
    const json::value root = parse_json_text(text, file.name());
    for (const auto& [column, feature] : root.at("info").at("features").as_object())
      if (auto of_column = names_of_feature(feature); !of_column.empty())
        names[column] = std::move(of_column);
  } catch (const std::exception&) {  // another program uses the key for something else
    names.clear();
  }
  return names;
}

void read_parquet_rows(const ParquetFile& file, const std::vector<std::string>& wanted,
                       const std::function<void(std::int64_t, json::object&)>& f,
                       const std::string& renaming, bool allows_bytes) {
  std::int64_t number = 0;
  const auto named = [&](const auto& read) {
    try {
      return read();
    } catch (const DataError& error) {
      throw DataError(
          concat(file.name(), ": ", number > 0 ? concat("row ", number, ": ") : "", error.what()));
    }
  };
  const std::vector<const ParquetNode*> nodes =
      named([&] { return wanted_nodes(file, wanted, renaming); });
  TableBudget table(file);
  std::size_t row_bytes = kBytesOfRow;
  for (const ParquetNode* node : nodes) row_bytes += node->name.size();
  for (std::size_t group = 0; group < file.footer().row_groups(); ++group) {
    std::vector<ColumnRows> columns;
    named([&] {
      for (const ParquetNode* node : nodes)
        columns.emplace_back(file, group, *node, allows_bytes, table);
      return true;
    });
    for (std::int64_t i = 0; i < file.footer().rows_of_group(group); ++i) {
      ++number;
      json::object row = named([&] {
        json::object read;
        table.charge(row_bytes);
        for (std::size_t c = 0; c < nodes.size(); ++c) read[nodes[c]->name] = columns[c].next();
        return read;
      });
      f(number, row);
    }
  }
}

}  // namespace hybrid_trainer
