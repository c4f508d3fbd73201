package hook

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// CPUEnv sets environment variables with a container's CPUs, for programs that size thread
// pools.
type CPUEnv struct {
	// Usual are the variables for a pod that requests variables without names.
	Usual []intent.CPUVariable
}

// AfterOthers marks the hook, so that the engine asks it when all quotas are final.
func (CPUEnv) AfterOthers() {}

// CPUEnvOptions tunes the hook that sets environment variables with a container's CPUs, if its
// pod asks for it (trimtab.io/cpu-env).
type CPUEnvOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
	// Variables are those that pods get which ask for the usual ones: NAME=list
	// is the list of the CPUs a container owns, and not there for one that owns
	// none; NAME=count, or NAME, how many CPUs it can keep busy.
	Variables []string `json:"variables" default:"TRIMTAB_CPUS=list,TRIMTAB_CPU_COUNT=count" check:"variables"`
}

// AllOn is the hook with everything switched on.
func (CPUEnvOptions) AllOn() Hook { return CPUEnv{} }

// Make makes the hook for a node.
func (o CPUEnvOptions) Make(_ Node, _ *Options) (Hook, error) {
	h := CPUEnv{Usual: make([]intent.CPUVariable, len(o.Variables))}
	for i, text := range o.Variables {
		v, err := intent.ParseCPUVariable(text)
		if err != nil {
			return nil, fmt.Errorf("hooks.cpuEnv.variables: %w", err)
		}
		h.Usual[i] = v
	}
	return h, nil
}

// Info describes the hook.
func (CPUEnv) Info() Info {
	return Info{
		Name:    "cpuEnv",
		About:   "environment variables with the CPUs that a container owns and the number that it can use, for programs that size thread pools",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.TrimtabCPUEnv},
		Sets:    []lifecycle.Field{lifecycle.Env},
		Compose: "runs after all other hooks; a variable that the container or another hook sets is not changed",
		Differs: []string{
			"the number is that of the container's CPUs, or, if that is less, of the CPUs that its quota or its pod's quota allows, rounded up",
			"lists are given only to containers that own CPUs, because the CPUs of a pool change while its containers run",
			"variables cannot change after the creation of a container: a later resize of the container or its pool does not change them",
			"variables that an image sets are known over NRI. Requests of the CRI and of hook servers have only the variables of the pod's spec, so there the hook overrides an image's variable",
		},
	}
}

// Propose gives a container its variables.
func (h CPUEnv) Propose(in *Input, out *Output) {
	ask := in.Intent.CPUEnv
	if in.Container == "" || !ask.IsSet() {
		return
	}
	if in.Creation == nil {
		for _, name := range slices.Sorted(maps.Keys(in.CPUEnv)) {
			out.env(name, in.CPUEnv[name], lifecycle.Reason{Hook: "cpuEnv", Source: ask.Key, Text: "as it was when the container was created"})
		}
		return
	}
	wanted := ask.V.Variables
	if ask.V.Usual {
		wanted = h.Usual
	}
	count, by := in.busy(out.Values)
	for _, v := range wanted {
		value, text := in.Creation.Owned, "the CPUs it owns"
		if !v.List {
			value, text = strconv.Itoa(count), by
		}
		if value == "" || in.Creation.sets(v.Name) || out.sets(v.Name) {
			continue
		}
		out.env(v.Name, value, lifecycle.Reason{Hook: "cpuEnv", Source: ask.Key, Text: text})
		if out.CPUEnv == nil {
			out.CPUEnv = map[string]string{}
		}
		out.CPUEnv[v.Name] = value
	}
}

// busy returns how many CPUs a container can use at a time, and the reason for the number.
func (in *Input) busy(decided []lifecycle.Value) (count int, by string) {
	count, by = in.Creation.CPUs, "the number of CPUs that it may run on"
	if in.Creation.Owned != "" {
		by = "the number of CPUs that it owns"
	}
	for _, limit := range []struct {
		of     string
		values []lifecycle.Value
		asked  *lifecycle.Resources
	}{{"its", decided, in.Pristine}, {"its pod's", in.Creation.PodValues, in.Pod.Resources}} {
		if n := quotaCPUs(limit.values, limit.asked); n > 0 && n < count {
			count, by = n, fmt.Sprintf("what %s quota comes to, of %d CPUs it may run on", limit.of, in.Creation.CPUs)
		}
	}
	return count, by
}

// quotaCPUs returns the quota in whole CPUs, rounded up, as decided or else as requested; 0 if
// there is none.
func quotaCPUs(decided []lifecycle.Value, asked *lifecycle.Resources) int {
	var quota, period int64
	if asked != nil {
		quota, period = asked.CPU.Quota.V, int64(min(asked.CPU.Period.V, longestPeriod))
	}
	for i := range decided {
		switch decided[i].Field {
		case lifecycle.CPUQuota:
			quota = decided[i].Int
		case lifecycle.CPUPeriod:
			period = decided[i].Int
		}
	}
	if quota <= 0 {
		return 0
	}
	if period <= 0 {
		period = defaultPeriod
	}
	return int((quota-1)/period + 1)
}

// longestPeriod is the kernel's longest CFS period, in µs.
const longestPeriod = 1e6

// sets reports whether the request of a container has a variable.
func (c *Creation) sets(name string) bool {
	return slices.ContainsFunc(c.Env, func(e string) bool {
		has, _, _ := strings.Cut(e, "=")
		return has == name
	})
}

// sets reports whether another hook has already decided a variable.
func (o *Output) sets(name string) bool {
	return slices.ContainsFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == lifecycle.Env && v.Key == name })
}

func (o *Output) env(name, value string, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: lifecycle.Env, Key: name, Text: value, Why: why})
}
