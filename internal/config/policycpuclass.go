package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/placement/balloons"
)

// policyCPUClass is a CPU class in a custom resource of nri-plugins. It has the keys of Trimtab's CPU classes, and
// keys without an equivalent. Frequencies are integers in kHz, or texts.
type policyCPUClass struct {
	balloons.CPUClassOptions
	MinFreq                     anyNode `json:"minFreq"`
	MaxFreq                     anyNode `json:"maxFreq"`
	EnergyPerformancePreference anyNode `json:"energyPerformancePreference"`

	UncoreMinFreq anyNode `json:"uncoreMinFreq" none:"the frequency of the uncore"`
	UncoreMaxFreq anyNode `json:"uncoreMaxFreq" none:"the frequency of the uncore"`
	TurboPriority anyNode `json:"turboPriority" none:"priorities of CPU classes"`
	PCTPriority   anyNode `json:"pctPriority" none:"Speed Select (PCT)"`
	SSTClosID     anyNode `json:"sstClosID" none:"Speed Select (PCT)"`
	PCTMinFreq    anyNode `json:"pctMinFreq" none:"Speed Select (PCT)"`
	PCTMaxFreq    anyNode `json:"pctMaxFreq" none:"Speed Select (PCT)"`
	PCTResource   anyNode `json:"publishExtendedResource" none:"Speed Select (PCT)"`
}

// convertCPUClasses converts the CPU classes of a custom resource to those of Trimtab.
func (r *crReader) convertCPUClasses(all []policyCPUClass) []balloons.CPUClassOptions {
	out := []balloons.CPUClassOptions{}
	for i := range all {
		c, at := &all[i], fmt.Sprintf("spec.cpuClasses[%d]", i)
		o := c.CPUClassOptions
		o.MinFreq, o.MaxFreq = r.textOrNumber(c.MinFreq, at+".minFreq"), r.textOrNumber(c.MaxFreq, at+".maxFreq")
		o.EnergyPerformancePreference = r.textOrNumber(c.EnergyPerformancePreference, at+".energyPerformancePreference")
		out = append(out, o)
	}
	return out
}

// knownCPUClass returns name if the document has a CPU class with this name. Otherwise it notes that the key at path is
// ignored and returns "". nri-plugins ignores unknown names, too.
func (r *crReader) knownCPUClass(name string, s *balloonsSpec, path string) string {
	if name == "" || slices.ContainsFunc(s.CPUClasses, func(c policyCPUClass) bool { return c.Name == name }) {
		return name
	}
	r.noteUnconverted(path, "is ignored: %s is not a class of cpuClasses", quoteShort(name))
	return ""
}

// textOrNumber returns the text of a value that is a text or a number. Like nri-plugins, it takes 0 for no value and
// returns "". Only for energyPerformancePreference, 0 is a value.
func (r *crReader) textOrNumber(n anyNode, path string) string {
	switch {
	case n.node == nil, isNull(n.node):
		return ""
	case n.node.Kind != yaml.ScalarNode || !slices.Contains([]string{"!!str", "!!int"}, n.node.ShortTag()):
		r.addProblem(n.node.Line, path, "want a text or a number, got %s", describeNode(n.node))
		return ""
	case n.node.Value == "0" && !strings.HasSuffix(path, "Preference"):
		return ""
	}
	return n.node.Value
}
