// The files of a library that serves several programs: one module, and report, certificate and graphs with a part per point.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "driver/output/write_result.h"
#include "mirage/spec/spec.h"

namespace mirage {

/// A point's decision, for whoever writes it down. References live as long as the compilation.
struct ResultOfPoint {
  const std::vector<int64_t>& values;
  const Folding& folding;
  const Found& found;
  const Choices& choices;
  const Decision& decision;
  const Plan& straightforward;
  const Measured& measured;
  std::vector<std::string> not_done;
  const Remembered* remembered = nullptr;   ///< of a decision that was recalled
};

/// How often searches were made, and answered by what others had found.
struct FamilyCounts { int64_t searched = 0, shared = 0; };

struct FamilyResult {
  const std::vector<VarAxis>& axes;
  std::vector<bool> is_padded;            ///< per axis
  const std::vector<ResultOfPoint>& points;
  size_t hint = 0;
  const Target& target;
  FamilyCounts counts;
};

/// Builds, reports, certifies and writes. CompileResult::certificates has the points'.
CompileResult write_family(CompileResult r, const Options& o, const Source& source, const FamilyResult& family,
                           std::optional<OutputFolder>& folder, Trace& trace, const Listener& listener);
/// The same into a staging folder of its own; for a run that must end now.
CompileResult write_best_family(const Options& o, const Source& source, const FamilyResult& family, const Listener& listener);

/// spec_id of the whole: axes, values and the canonical text of every program.
std::string family_id(const std::vector<VarAxis>& axes, const std::vector<std::string>& canonical);
/// "M16_S1024": in names of files and graphs.
std::string point_label(const std::vector<VarAxis>& axes, const std::vector<int64_t>& values);

/// The certificate of a family, as read: one per point.
struct FamilyCertificate {
  Options options;
  std::vector<std::vector<int64_t>> values;   ///< per point
  std::vector<Source> points;
  std::vector<std::string> gates;             ///< as recorded, of all points
  std::string built_with;
};
bool is_family_certificate(const Source&);
/// Errors: kCertificate.
Result<FamilyCertificate> read_family_certificate(const Source&);

}  // namespace mirage
