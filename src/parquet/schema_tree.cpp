#include "src/parquet/schema_tree.h"

#include <array>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {
namespace {

constexpr int kDeepest = 32;
constexpr std::size_t kLongestPath = 4096;  // each column below a group has the group's name
enum { kOptional = 1, kRepeated = 2 };

/// Why values of such an element cannot be read, or "".
std::string problem_of(const SchemaElement& element) {
  static constexpr std::array kOfLogical{"",          "", "", "", "", "DECIMAL", "DATE", "TIME",
                                         "TIMESTAMP", "", "", "", "", "BSON",    "UUID", "FLOAT16"};
  static constexpr std::array kOfConverted{
      "", "", "", "", "", "DECIMAL", "DATE", "TIME", "TIME", "TIMESTAMP", "TIMESTAMP",
      "", "", "", "", "", "",        "",     "",     "",     "BSON",      "INTERVAL"};
  const auto named = [](const auto& names, int number) -> std::string {
    const auto place = static_cast<std::size_t>(number);  // huge if it is negative
    return place < names.size() ? names[place] : "";
  };
  std::string name = named(kOfLogical, element.logical);
  if (name.empty()) name = named(kOfConverted, element.converted);
  if (name.empty() && element.type == narrow<int>(ParquetType::kInt96)) name = "INT96";
  if (name.empty() && element.type == narrow<int>(ParquetType::kFixedLenByteArray))
    name = "FIXED_LEN_BYTE_ARRAY";
  return name.empty() ? "" : "of type " + name;
}

ParquetNode::Type type_of(ParquetType type) {
  switch (type) {
    case ParquetType::kBoolean:
      return ParquetNode::Type::kBoolean;
    case ParquetType::kInt32:
    case ParquetType::kInt64:
      return ParquetNode::Type::kInteger;
    case ParquetType::kFloat:
    case ParquetType::kDouble:
      return ParquetNode::Type::kReal;
    default:
      return ParquetNode::Type::kText;
  }
}

class TreeBuilder {
 public:
  explicit TreeBuilder(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  SchemaTree run() {
    const SchemaElement& root = next();
    for (int i = 0; i < root.children; ++i) tree_.nodes.push_back(node({}, {"", 0}));
    if (at_ != elements_.size()) throw DataError("its schema has elements below none");
    return std::move(tree_);
  }

 private:
  struct Levels {
    int definition = 0, repetition = 0;
  };
  struct Above {
    std::string path;
    int depth = 0;
  };

  const SchemaElement& next() {
    if (at_ == elements_.size()) throw DataError("its schema ends early");
    return elements_[at_++];
  }

  /// The element that is next, with all below it.
  ParquetNode node(Levels levels, const Above& above) {
    const SchemaElement& element = next();
    if (element.repetition != kRepeated)
      return required(element, with_null(levels, element), above);
    ParquetNode list{.name = std::string(element.name), .kind = ParquetNode::Kind::kList};
    return filled(std::move(list), levels, [&](ParquetNode& of, Levels inner) {
      of.children.push_back(required(element, inner, above));
    });
  }

  static Levels with_null(Levels levels, const SchemaElement& element) {
    return {levels.definition + (element.repetition == kOptional ? 1 : 0), levels.repetition};
  }

  /// A list or map at these levels whose elements `fill` adds.
  template <class F>
  ParquetNode filled(ParquetNode list, Levels levels, const F& fill) {
    list.present = levels.definition;
    list.has_element = levels.definition + 1;
    list.repeated = levels.repetition + 1;
    begin(list);
    fill(list, Levels{list.has_element, list.repeated});
    for (const ParquetNode& child : list.children)
      if (list.problem.empty()) list.problem = child.problem;
    end(list);
    return list;
  }

  ParquetNode required(const SchemaElement& element, Levels levels, const Above& above) {
    if (above.depth > kDeepest) throw DataError("its columns are nested too deep");
    const Above here{concat(above.path, above.path.empty() ? "" : ".", element.name),
                     above.depth + 1};
    if (here.path.size() > kLongestPath)
      throw DataError(concat("has a column whose name, with those of its groups, takes ",
                             here.path.size(), " bytes; want at most ", kLongestPath));
    if (element.children < 0) return leaf(element, levels, here);
    const bool has_one =
        element.children == 1 && at_ < elements_.size() && elements_[at_].repetition == kRepeated;
    const bool is_list = element.converted == 3 || element.logical == 3;
    const bool is_map = element.converted == 1 || element.converted == 2 || element.logical == 2;
    if (has_one && is_list) return list_of(element, levels, here);
    if (has_one && is_map && elements_[at_].children == 2) return map_of(element, levels, here);
    ParquetNode group{.name = std::string(element.name), .kind = ParquetNode::Kind::kStruct};
    group.present = levels.definition;
    begin(group);
    std::string problem = "without columns";
    for (int i = 0; i < element.children; ++i) {
      ParquetNode child = node(levels, here);
      if (child.problem.empty())
        group.children.push_back(std::move(child));
      else
        problem = child.problem;
    }
    if (group.children.empty()) group.problem = problem;
    end(group);
    return group;
  }

  /// The repeated group in a list is no element itself, but for older files.
  ParquetNode list_of(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode list{.name = std::string(element.name), .kind = ParquetNode::Kind::kList};
    return filled(std::move(list), levels, [&](ParquetNode& of, Levels inner) {
      const SchemaElement& repeated = elements_[at_];
      const bool is_element = repeated.children != 1 || repeated.name == "array" ||
                              repeated.name == std::string(element.name) + "_tuple";
      const Above inside{concat(here.path, ".", repeated.name), here.depth + 1};
      ++at_;
      of.children.push_back(is_element ? required(repeated, inner, here) : node(inner, inside));
    });
  }

  ParquetNode map_of(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode map{.name = std::string(element.name), .kind = ParquetNode::Kind::kMap};
    return filled(std::move(map), levels, [&](ParquetNode& of, Levels inner) {
      ++at_;  // the repeated group
      for (int i = 0; i < 2; ++i) of.children.push_back(node(inner, here));
      const ParquetNode& key = of.children.front();
      if (key.kind != ParquetNode::Kind::kLeaf || key.type != ParquetNode::Type::kText)
        of.problem = "a map with keys that are no texts";
    });
  }

  ParquetNode leaf(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode node{.name = std::string(element.name)};
    node.present = levels.definition;
    node.problem = problem_of(element);
    begin(node);
    const std::size_t chunk = tree_.all_columns++;
    if (node.problem.empty()) {
      const auto type = static_cast<ParquetType>(element.type);
      node.type = type_of(type);
      tree_.columns.push_back(
          {here.path, chunk, type, element.is_unsigned, levels.repetition, levels.definition});
    }
    end(node);
    return node;
  }

  void begin(ParquetNode& node) const { node.leaf = tree_.columns.size(); }
  /// What cannot be read leaves no columns.
  void end(ParquetNode& node) {
    if (!node.problem.empty()) {
      tree_.columns.resize(node.leaf);
      node.children.clear();
    }
    node.leaves = tree_.columns.size() - node.leaf;
  }

  const std::vector<SchemaElement>& elements_;
  std::size_t at_ = 0;
  SchemaTree tree_;
};

}  // namespace

SchemaTree schema_tree(const std::vector<SchemaElement>& elements) {
  return TreeBuilder(elements).run();
}

}  // namespace hybrid_trainer
