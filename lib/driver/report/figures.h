// The pictures of report.html: the muGraph at its levels from a plan, and charts from what report.json says. All are SVG elements that take
// their colours from the page's classes.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// Kernel level: inputs, kernels in launch order, outputs; inside a graph-defined kernel its block graph, phase by phase; inside others the
/// operators that they compute. Too large ones are said to be.
std::string mugraph_figure(const Plan&, const Program&);

std::string bytes_text(double bytes);      ///< "50.7 MB"
std::string operations_text(double n);     ///< "805.3 Mflop"

/// Kernels one after another on an axis of time, above the straightforward ones' total; kernels: of report.json.
std::string schedule_figure(const nlohmann::ordered_json& result);
/// Shared memory of a kernel (its `timeline` in report.json): places over steps. "" where it has none.
std::string shared_figure(const nlohmann::ordered_json& kernel);
/// Intensity against rate, both logarithmic: the machine's roof, and each kernel as predicted. "" where nothing computes.
std::string roofline_figure(const nlohmann::ordered_json& report);
/// Per gate how many branches it closed, logarithmic. "" if nothing was searched.
std::string funnel_figure(const nlohmann::ordered_json& search);

}  // namespace mirage
