// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/extension_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

// The opaque types of the interface.
struct nccl_ext_snapshot {
  const nccl_exporter::exporter::ExtensionSnapshot& snapshot;
};
struct nccl_ext_claims {
  nccl_exporter::exporter::ExtensionRound& round;
};
struct nccl_ext_output {
  nccl_exporter::exporter::ExtensionRound& round;
};

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kObject = "nccl_exporter_extension_1";

const PlainFamily* FamilyAt(const nccl_ext_snapshot* snapshot, size_t family) {
  const auto& families = snapshot->snapshot.families;
  return family < families.size() ? &families[family] : nullptr;
}

const PlainSample* SampleAt(const nccl_ext_snapshot* snapshot, size_t family, size_t sample) {
  const PlainFamily* const place = FamilyAt(snapshot, family);
  return place != nullptr && sample < place->samples.size() ? &place->samples[sample] : nullptr;
}

const Label* LabelAt(const nccl_ext_snapshot* snapshot, size_t family, size_t sample,
                     size_t label) {
  const PlainSample* const place = SampleAt(snapshot, family, sample);
  return place != nullptr && label < place->labels.size() ? &place->labels[label] : nullptr;
}

nccl_ext_type TypeOf(MetricType type) {
  return type == MetricType::kCounter     ? NCCL_EXT_COUNTER
         : type == MetricType::kHistogram ? NCCL_EXT_HISTOGRAM
                                          : NCCL_EXT_GAUGE;
}

void SetAccessors(nccl_ext_host& host) {
  using Snapshot = const nccl_ext_snapshot*;
  host.time_ns = [](Snapshot s) { return s->snapshot.time_ns; };
  host.processes = [](Snapshot s) { return s->snapshot.processes.size(); };
  host.process_label = [](Snapshot s, size_t process, const char* name) -> const char* {
    const auto& processes = s->snapshot.processes;
    if (process >= processes.size() || name == nullptr) return nullptr;
    const std::string* const value = LabelOf(processes[process]->labels, name);
    return value == nullptr ? nullptr : value->c_str();
  };
  host.families = [](Snapshot s) { return s->snapshot.families.size(); };
  host.family_name = [](Snapshot s, size_t family) {
    const PlainFamily* const place = FamilyAt(s, family);
    return place == nullptr ? nullptr : place->name.c_str();
  };
  host.family_help = [](Snapshot s, size_t family) {
    const PlainFamily* const place = FamilyAt(s, family);
    return place == nullptr ? nullptr : place->help.c_str();
  };
  host.family_type = [](Snapshot s, size_t family) {
    const PlainFamily* const place = FamilyAt(s, family);
    return place == nullptr ? nccl_ext_type{} : TypeOf(place->type);
  };
  host.samples = [](Snapshot s, size_t family) {
    const PlainFamily* const place = FamilyAt(s, family);
    return place == nullptr ? 0 : place->samples.size();
  };
  host.sample_value = [](Snapshot s, size_t family, size_t sample) {
    const PlainSample* const place = SampleAt(s, family, sample);
    return place == nullptr ? std::numeric_limits<double>::quiet_NaN() : place->value;
  };
  host.sample_sum = [](Snapshot s, size_t family, size_t sample) {
    const PlainSample* const place = SampleAt(s, family, sample);
    return place == nullptr ? std::numeric_limits<double>::quiet_NaN() : place->sum;
  };
  host.sample_labels = [](Snapshot s, size_t family, size_t sample) {
    const PlainSample* const place = SampleAt(s, family, sample);
    return place == nullptr ? 0 : place->labels.size();
  };
  host.sample_label_name = [](Snapshot s, size_t family, size_t sample, size_t label) {
    const Label* const place = LabelAt(s, family, sample, label);
    return place == nullptr ? nullptr : place->name.c_str();
  };
  host.sample_label_value = [](Snapshot s, size_t family, size_t sample, size_t label) {
    const Label* const place = LabelAt(s, family, sample, label);
    return place == nullptr ? nullptr : place->value.c_str();
  };
}

void SetGifts(nccl_ext_host& host) {
  host.claim_label = [](nccl_ext_claims* claims, size_t process, const char* name) {
    return claims->round.Count("label", name, claims->round.ClaimLabel(process, name));
  };
  host.claim_family = [](nccl_ext_claims* claims, const char* name, const char* help,
                         nccl_ext_type type) {
    return claims->round.Count("family", name, claims->round.ClaimFamily(name, help, type));
  };
  host.set_label = [](nccl_ext_output* output, size_t process, const char* name,
                      const char* value) {
    return output->round.Count("label", name, output->round.SetLabel(process, name, value));
  };
  host.add_sample = [](nccl_ext_output* output, const char* family, size_t count,
                       const char* const* names, const char* const* values, double value) {
    return output->round.Count("family", family,
                               output->round.AddSample(family, count, names, values, value));
  };
  host.append = [](nccl_ext_output* output, const char* file, const void* bytes, size_t size) {
    return output->round.Count("file", file, output->round.Append(file, bytes, size));
  };
}

std::string PathOf(const std::string& name, const std::vector<std::string>& folders) {
  if (name.find('/') != std::string::npos) return name;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/libnccl-exporter-extension-" + name + ".so";
    if (::access(path.c_str(), F_OK) == 0) return path;
  }
  std::string where;
  for (const std::string& folder : folders) where += (where.empty() ? "" : ", ") + folder;
  throw std::runtime_error("no libnccl-exporter-extension-" + name + ".so in " + where);
}

bool IsExtensionName(const char* name) {
  constexpr size_t kMostBytes = 32;
  const std::string_view view(name == nullptr ? "" : name);
  return !view.empty() && view.size() <= kMostBytes && std::ranges::all_of(view, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// The fault of the object, or an empty text.
std::string FaultOf(const nccl_ext_extension& extension, const std::string& name) {
  constexpr uint32_t kKnown = NCCL_EXT_LABELS | NCCL_EXT_FAMILIES | NCCL_EXT_SINK;
  if (extension.abi_major != NCCL_EXT_ABI_MAJOR)
    return "is of ABI major " + std::to_string(extension.abi_major) + ", this host of " +
           std::to_string(NCCL_EXT_ABI_MAJOR);
  if (extension.struct_size < sizeof(nccl_ext_extension))
    return "has a struct of " + std::to_string(extension.struct_size) + " bytes in place of " +
           std::to_string(sizeof(nccl_ext_extension));
  if (!IsExtensionName(extension.name)) return "has no name of small letters, digits and -";
  if (name.find('/') == std::string::npos && name != extension.name)
    return "names itself " + std::string(extension.name);
  if (extension.version == nullptr || extension.create == nullptr ||
      extension.partition == nullptr || extension.compile == nullptr ||
      extension.destroy == nullptr)
    return "lacks its version or a function";
  if (extension.capabilities == 0 || (extension.capabilities & ~kKnown) != 0)
    return "has no capability that is known";
  return "";
}

}  // namespace

ExtensionLibrary::ExtensionLibrary(const std::string& name, const std::vector<std::string>& folders,
                                   std::map<std::string, std::string> settings, Log log)
    : settings_(std::move(settings)), log_(std::move(log)), path_(PathOf(name, folders)) {
  void* const library = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  extension_ = static_cast<const nccl_ext_extension*>(::dlsym(library, kObject));
  if (extension_ == nullptr) throw std::runtime_error(path_ + " exports no " + kObject);
  if (const std::string fault = FaultOf(*extension_, name); !fault.empty())
    throw std::runtime_error(path_ + ' ' + fault);
  host_.struct_size = sizeof(host_);
  host_.data = this;
  host_.log = [](void* data, int is_error, const char* text) {
    static_cast<ExtensionLibrary*>(data)->log_(is_error != 0, text == nullptr ? "" : text);
  };
  host_.config = [](void* data, const char* key) -> const char* {
    const auto& own = static_cast<ExtensionLibrary*>(data)->settings_;
    const auto setting = own.find(key == nullptr ? "" : key);
    return setting == own.end() ? nullptr : setting->second.c_str();
  };
  SetAccessors(host_);
  SetGifts(host_);
}

ExtensionLibrary::~ExtensionLibrary() {
  if (is_created_) extension_->destroy(self_);
}

bool ExtensionLibrary::Create() {
  is_created_ = true;
  return extension_->create(&host_, &self_) == NCCL_EXT_OK;
}

bool ExtensionLibrary::Claim(const ExtensionSnapshot& snapshot, ExtensionRound& round) {
  const nccl_ext_snapshot seen{snapshot};
  nccl_ext_claims claims{round};
  round.Begin(*extension_);
  return extension_->partition(self_, &seen, &claims) == NCCL_EXT_OK;
}

ExtensionGifts ExtensionLibrary::Take(const ExtensionSnapshot& snapshot, ExtensionRound& round,
                                      std::string& failed) {
  const nccl_ext_snapshot seen{snapshot};
  nccl_ext_output output{round};
  failed = Claim(snapshot, round) ? "" : "partition";
  const bool is_wanted = round.has_claims() || (extension_->capabilities & NCCL_EXT_SINK) != 0;
  if (failed.empty() && is_wanted && extension_->compile(self_, &seen, &output) != NCCL_EXT_OK)
    failed = "compile";
  ExtensionGifts gifts = round.End();
  return failed.empty() ? std::move(gifts) : ExtensionGifts();
}

}  // namespace nccl_exporter::exporter
