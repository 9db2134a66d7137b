#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// A class that pictures may be of. JSON list `model.vision.labels`.
struct ClassLabel {
  std::string name{};
  bool operator==(const ClassLabel&) const = default;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name, "What people call the class."});
  }
};

/// What a model of pictures sees, and what it tells apart.
struct VisionConfig {
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::vector<ClassLabel> labels{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"image_size", self.image_size,
                "Rows and columns of pixels of a picture as the model sees it; 0: 224.",
                Range::between(0, 1 << 14)});
    visit(Field{"patch_size", self.patch_size,
                "Rows and columns of a patch, which becomes a token; 0: 16.",
                Range::between(0, 1 << 14)});
    visit(Field{"labels", self.labels,
                "The classes, in the order of the logits. Left out: those of the data."});
  }
};

}  // namespace hybrid_trainer
