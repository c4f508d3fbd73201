package hook

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// MemoryQoS lets the kernel swap a part of a container's memory. The memory class of the container determines how large
// this part is. Pods can also set memory.high and memory.swap.max themselves. The annotations and the formula are those
// of nri-plugins 0.14, plugin memory-qos.
type MemoryQoS struct {
	// SwapPercent has, by name of a memory class, the percentage of the memory limit that the kernel may swap.
	SwapPercent map[string]int
	// Files are the files whose values pods may set.
	Files []string
	// KernelFiles reports, by name of a file, whether the kernel has the file.
	KernelFiles map[string]lifecycle.Support
}

// swapMaxFile is the file of cgroup v2 that limits swap.
const swapMaxFile = "memory.swap.max"

// MemoryQoSOptions tunes the hook of memory classes.
type MemoryQoSOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Classes are the classes that pods can name, as NAME=PERCENT. PERCENT is the part of the memory limit that the
	// kernel may swap. The swaplimitratio 0.2 of nri-plugins is the same as PERCENT 20.
	Classes []string `json:"classes" check:"memory classes"`
	// Files are the files of cgroup v2 whose values pods may set.
	Files []string `json:"files" check:"memory.high|memory.swap.max"`
}

// Make makes the hook for a node.
func (o MemoryQoSOptions) Make(n Node, _ *Options) (Hook, error) {
	h := MemoryQoS{SwapPercent: map[string]int{}, Files: o.Files, KernelFiles: map[string]lifecycle.Support{}}
	for _, class := range o.Classes {
		name, percent, _ := strings.Cut(class, "=")
		part, err := strconv.Atoi(percent)
		if err != nil {
			return nil, fmt.Errorf("hooks.memoryQoS.classes: %q: %w", class, err)
		}
		h.SwapPercent[name] = part
	}
	for _, file := range MemoryQoSFiles() {
		h.KernelFiles[file] = n.Probe(file).Support
	}
	return h, nil
}

// MemoryQoSFiles returns the cgroup files that the hook may set.
func MemoryQoSFiles() []string { return []string{memoryHighFile, swapMaxFile} }

// AfterOthers marks the hook, so that the engine calls it when the memory limit is final.
func (MemoryQoS) AfterOthers() {}

// Info describes the hook.
func (MemoryQoS) Info() Info {
	return Info{
		Name:           "memoryQoS",
		About:          "memory that the kernel may swap: a part of a container's memory limit by its memory class, or values that the pod sets for the files",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.NRIMemoryQoS, intent.NRIMemoryHigh, intent.NRISwapMax},
		Sets:           []lifecycle.Field{lifecycle.Unified},
		KernelFeatures: MemoryQoSFiles(),
		Compose:        "uses the memory limit that results from the other hooks; preemption sets memory.high of pods, this hook sets memory.high of containers",
		Differs: []string{
			"a resize of the memory limit changes memory.high, which nri-plugins sets only when the container is created",
			"a class or file that the configuration does not have is reported, and the creation does not fail",
			"a class needs a memory limit; if the container has none, the agent reports that",
			"a value that the pod sets for a file has priority over the value of its class",
		},
	}
}

// Propose sets the files of a container to the values that its pod requests, and to the values of its class.
func (h MemoryQoS) Propose(in *Input, out *Output) {
	for _, own := range []struct {
		file string
		from intent.Sourced[intent.PerContainer[intent.MemoryBytes]]
	}{{memoryHighFile, in.Intent.MemoryHigh}, {swapMaxFile, in.Intent.SwapMax}} {
		asked, why, ok := scopedRequest(in, own.from, "memoryQoS")
		switch {
		case !ok:
		case !slices.Contains(h.Files, own.file):
			out.decline(asked.Key, asked.V.String(), "hooks.memoryQoS.files does not list "+own.file)
		default:
			h.setFile(in, out, own.file, asked.V.String(), why)
		}
	}
	if asked, why, ok := scopedRequest(in, in.Intent.MemoryClass, "memoryQoS"); ok {
		h.setClass(in, out, asked, why)
	}
}

// setClass sets memory.high to the part of the limit that stays in memory, and removes the limit of swap.
func (h MemoryQoS) setClass(in *Input, out *Output, asked intent.Sourced[string], why lifecycle.Reason) {
	part, known := h.SwapPercent[asked.V]
	limit := memoryLimit(in, out)
	switch {
	case !known:
		out.decline(asked.Key, asked.V, "no class of hooks.memoryQoS.classes has this name")
	case limit <= 0:
		out.decline(asked.Key, asked.V, "a memory class needs a memory limit, and the container has none")
	default:
		why.Text = fmt.Sprintf("memory class %s: the kernel may swap %d %% of the limit", asked.V, part)
		high := percentOfLimit(&lifecycle.Resources{Memory: lifecycle.Memory{Limit: lifecycle.Some(limit)}}, 100-part)
		h.setFile(in, out, memoryHighFile, intent.MemoryBytes(high).String(), why)
		h.setFile(in, out, swapMaxFile, intent.NoLimit.String(), why)
	}
}

// setFile proposes the text of a cgroup file. If a text for the file is already proposed, setFile does nothing. If the
// kernel lacks the file, setFile reports that.
func (h MemoryQoS) setFile(in *Input, out *Output, file, text string, why lifecycle.Reason) {
	switch {
	case out.hasProposal(lifecycle.Unified, file):
	case h.KernelFiles[file] == lifecycle.NotSupported:
		out.decline(why.Source, text, "this kernel has no "+file+", which needs cgroup v2")
	default:
		out.setFile(in, file, text, why)
	}
}

// memoryLimit returns the memory limit that other hooks decided, or else the requested limit; 0 or less for no limit.
func memoryLimit(in *Input, out *Output) (limit int64) {
	if in.Pristine != nil {
		limit = in.Pristine.Memory.Limit.V
	}
	for i := range out.Values {
		if out.Values[i].Field == lifecycle.MemoryLimit {
			limit = out.Values[i].Int
		}
	}
	return limit
}
