package resctrl

import (
	"errors"
	"io/fs"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Features that a node may have: the file system itself, and what it can allocate and monitor.
const (
	FeatureMounted      = "resctrl"
	FeatureL3Allocation = "resctrl.L3"
	FeatureMBAllocation = "resctrl.MB"
	FeatureL3Monitoring = "resctrl.L3_MON"
)

// Probe returns whether a tree has a feature. For a node without resctrl, files is nil.
func Probe(files FS, feature string) lifecycle.Finding {
	if files == nil {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel has no resctrl, or paths.resctrl is wrong"}
	}
	_, err := files.ReadFile("schemata")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "resctrl is not mounted"}
	case err != nil:
		return lifecycle.Finding{Why: err.Error()}
	case feature == FeatureMounted:
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	fileAndReason := map[string][2]string{
		FeatureL3Allocation: {"info/L3/num_closids", "this machine cannot allocate parts of its L3 cache"},
		FeatureMBAllocation: {"info/MB/num_closids", "this machine cannot allocate memory bandwidth"},
		FeatureL3Monitoring: {"info/L3_MON/num_rmids", "this machine cannot monitor its L3 cache"},
	}[feature]
	_, err = files.ReadFile(fileAndReason[0])
	switch {
	case fileAndReason[0] == "":
		return lifecycle.Finding{Why: "unknown feature of resctrl: " + feature}
	case errors.Is(err, fs.ErrNotExist):
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: fileAndReason[1]}
	case err != nil:
		return lifecycle.Finding{Why: err.Error()}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}
